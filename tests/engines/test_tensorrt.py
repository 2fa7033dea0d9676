"""TensorRT up to its engine: what is said where something is missing, and what each version is told."""

import importlib.util
import sys

import onnx
import onnx_ir as ir
import pytest
from click.testing import CliRunner

from requant import cli, engines
from requant.engines import EngineOptions, cuda, tensorrt, tensorrt_native
from requant.engines.tensorrt_native import layer_profile, typing_of
from requant.errors import EngineError
from requant.scheme import TENSORRT

HERE = engines.get("tensorrt").available()
without = pytest.mark.skipif(HERE.ok, reason="there is an NVIDIA device with TensorRT here")


def one_node() -> ir.Model:
    text = '<ir_version: 8, opset_import: ["" : 17]> one (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }'
    return ir.from_proto(onnx.parser.parse_model(text))


def test_it_is_an_engine_with_its_own_scheme() -> None:
    assert engines.get("TensorRT").scheme is TENSORRT
    assert not TENSORRT.unsigned and TENSORRT.signed == "int8" and not TENSORRT.int32_bias


@without
def test_what_is_missing_is_named() -> None:
    with pytest.raises(EngineError, match="engine 'tensorrt' is not available here") as caught:
        engines.get("tensorrt").load(one_node(), EngineOptions())
    text = str(caught.value)
    assert (cuda.missing() or "") in text
    if importlib.util.find_spec("tensorrt") is None:
        assert "the package tensorrt is not installed (pip install tensorrt)" in text
        assert "TensorrtExecutionProvider (install onnxruntime-gpu in its place)" in text or "libnvinfer" in text
    assert "never switched silently" in text


@without
def test_doctor_and_the_commands_say_why_not() -> None:
    shown = CliRunner().invoke(cli.group, ["doctor", "--json"])
    assert shown.exit_code == 0
    assert str(HERE.why)[:60] in shown.output


def test_a_machine_without_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "LIBRARY", "libcuda-of-nobody.so.1")
    cuda.missing.cache_clear()
    try:
        found = cuda.missing()
        assert found is not None and found.startswith("no NVIDIA device")
        if sys.platform != "darwin":
            assert "libcuda-of-nobody.so.1 is not installed" in found
        with pytest.raises(EngineError, match="there is no NVIDIA device"):
            cuda.Device()
        assert found in str(engines.get("tensorrt").available().why)
    finally:
        cuda.missing.cache_clear()


@pytest.mark.parametrize(
    ("version", "precision", "quantized", "told"),
    [
        ("8.6.1", "f32", False, (False, ())),
        ("8.6.1", "f32", True, (False, ("INT8",))),
        ("8.6.1", "f16", True, (False, ("FP16", "INT8"))),
        ("9.3.0", "bf16", False, (False, ("BF16",))),
        ("10.13.0.35", "f32", True, (True, ())),
        ("10.13.0.35", "f16", True, (False, ("FP16", "INT8"))),
        ("11.4.0.106", "f32", True, (True, ())),
    ],
)
def test_typing_by_version(version: str, precision: str, quantized: bool, told: tuple[bool, tuple[str, ...]]) -> None:
    assert typing_of(version, precision, quantized) == told


@pytest.mark.parametrize(("version", "precision"), [("8.6.1", "bf16"), ("11.4.0", "f16"), ("11.4.0", "bf16")])
def test_precisions_that_a_version_does_not_have(version: str, precision: str) -> None:
    with pytest.raises(EngineError, match=f"TensorRT {version} cannot run a float32 graph in {precision}"):
        typing_of(version, precision, True)


def test_options_of_the_provider() -> None:
    plain = tensorrt.provider_options(EngineOptions(), quantized=True)
    assert plain["trt_int8_enable"] == "True" and plain["trt_fp16_enable"] == "False"
    assert "trt_engine_cache_path" not in plain
    kept = tensorrt.provider_options(EngineOptions(precision="f16", cache_dir="plans"), quantized=False)
    assert kept["trt_int8_enable"] == "False" and kept["trt_fp16_enable"] == "True"
    assert kept["trt_engine_cache_enable"] == "True" and kept["trt_engine_cache_path"] == "plans"


@pytest.mark.parametrize(
    ("facts", "precision"),
    [
        (
            {"Inputs": [{"Name": "x", "Format/Datatype": "Thirty-two wide channel vectorized row major Int8 format"}]},
            "i8",
        ),
        ({"Inputs": [{"Name": "x", "Format/Datatype": "Row major linear FP32"}]}, "f32"),
        ({"Inputs": [{"Name": "x", "Format": "Row major linear", "DataType": "Int8"}]}, "i8"),
        ({"Inputs": [{"Name": "x", "Format": "Row major linear", "DataType": "Half"}]}, "f16"),
        ({}, "unknown"),
    ],
)
def test_layers_as_the_inspector_tells_them(facts: dict[str, object], precision: str) -> None:
    found = layer_profile("conv", {"LayerType": "CaskConvolution", "TacticName": "sm80_xmma_i8", **facts}, [0.1, 0.3])
    assert (found.op, found.kernel, found.precision) == ("CaskConvolution", "sm80_xmma_i8", precision)
    assert found.microseconds == pytest.approx(200)


def test_it_keeps_to_supported_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    old = type(sys)("tensorrt")
    old.__version__ = "8.4.3"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tensorrt", old)
    assert tensorrt.package_version() == (None, "the package tensorrt is too old: 8.4.3, 8.5 is needed")
    assert tensorrt_native.numbers("10.13.0.35") == (10, 13)
