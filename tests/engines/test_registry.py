"""The registry, the options, and what importing costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from requant import engines
from requant.engines import EngineOptions
from requant.errors import EngineError


def test_names_come_from_the_folder_with_the_default_first() -> None:
    assert engines.names()[0] == "openvino" and set(engines.names()) >= {"openvino", "onnxruntime"}


def test_get_in_any_case_and_always_the_same() -> None:
    assert engines.get("OpenVINO") is engines.get("openvino") is engines.get()
    assert engines.get("ONNXRuntime").name == "onnxruntime"


def test_an_unknown_engine_lists_those_there_are() -> None:
    with pytest.raises(
        EngineError, match=r"unknown engine\n  got:      'openvin'\n  expected: openvino \(\d.*\n  next: .*'openvino'"
    ):
        engines.get("openvin")


def test_importing_loads_no_engine_library() -> None:
    code = "import sys; from requant import engines; engines.names(); engines.get('onnxruntime')\n"
    code += "print({'openvino', 'onnxruntime'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


def test_openvino_sends_nothing_home() -> None:
    code = "import sys; from requant import engines; assert engines.get('openvino').available().ok\n"
    code += "import openvino; print([m for m in sys.modules if m.startswith('openvino_telemetry')])\n"
    code += "print(openvino.convert_model.__name__)  # still whole for others in this process"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\nconvert_model\n", done.stderr


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"threads": 0}, "'threads' is out of range\n  got:      0"),
        ({"streams": True}, "'streams' is out of range"),
        ({"hint": "fast"}, "got:      'fast'\n  expected: 'latency' or 'throughput'"),
        ({"precision": "int8"}, "got:      'int8'\n  expected: 'f32' or 'bf16' or 'f16'"),
    ],
)
def test_options_out_of_range(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(EngineError, match=message):
        EngineOptions(**wrong)
