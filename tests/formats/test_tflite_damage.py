"""TFLite files that are not built, damaged, or not TFLite: refused in words, never a crash."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_checks import IMAGE, load, numbers, one
from tflite_writer import Bytes, File, small

import requant
from requant.errors import FormatError, RequantError, UnsupportedError
from requant.formats import tflite

# --- what is refused --------------------------------------------------------------------------------------------------


def refused(f: File, *words: str) -> None:
    with pytest.raises(UnsupportedError) as fault:
        tflite.to_onnx(tflite.read_bytes(f.bytes(), "net.tflite"))
    for word in words:
        assert word in str(fault.value), str(fault.value)


def test_operators_that_are_not_built_are_named() -> None:
    refused(one("LSTM", [IMAGE], IMAGE, "int8"), "LSTM", "'y'", "int8 (1, 6, 7, 4)", "CONV_2D")
    refused(one("CUSTOM", [IMAGE], IMAGE, "int8"), "CUSTOM Mine", "'y'")


def test_data_types_that_are_not_built_are_named() -> None:
    f = one("RELU", [IMAGE], IMAGE, "float32")
    f.tensors[1].dtype = "int16"
    refused(f, "data type", "int16", "'y'")
    f.tensors[1].dtype, f.tensors[0].dtype = "float32", "int16"
    refused(f, "data type", "int16", "'x0'")


def test_what_no_output_needs_is_not_asked_for(tmp_path: Path) -> None:
    """A dead branch of an unknown operator."""
    f = one("RELU", [IMAGE], IMAGE, "float32")
    feeds = numbers(f)
    wanted = f.run(*feeds)
    f.op("LSTM", [0], f.tensor("dead", IMAGE, "float32"))
    np.testing.assert_array_equal(load(f, tmp_path).run(feeds)[0], wanted[0])


def test_other_files_are_recognized(tmp_path: Path) -> None:
    path = tmp_path / "x.tflite"
    for content, word in ((b"", "empty"), (b"PK\x03\x04" + bytes(60), "zip"), (b"version https://git-lfs", "LFS")):
        path.write_bytes(content)
        with pytest.raises(FormatError, match=word):
            requant.load(path)


# --- damage -----------------------------------------------------------------------------------------------------------


def survives(data: bytes) -> bool:
    """Whether a file is read and built, or refused in words."""
    try:
        tflite.to_onnx(tflite.read_bytes(data, "damaged"))
    except RequantError:
        return False
    return True


def test_a_truncated_file_is_refused() -> None:
    whole = small().bytes()
    assert survives(whole)
    assert not any(survives(whole[:size]) for size in range(0, len(whole), 37))


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_file_never_crashes(seed: int) -> None:
    """Bytes anywhere, and words that offsets, counts and sizes are made of, become others."""
    whole, random = small().bytes(), np.random.RandomState(seed)
    absurd = (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 20, 0xFFFF, len(whole))
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(random.randint(1, 4)):
            at = random.randint(8, len(data) - 4)
            if random.rand() < 0.5:
                data[at] = random.randint(256)
            else:
                struct.pack_into("<I", data, at & ~3, absurd[random.randint(len(absurd))])
        survives(bytes(data))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"shape": (1 << 15, 1 << 15, 4, 4)}, "absurd size"),
        ({"shape": (1, -4, 7, 4)}, "absurd shape"),
        ({"scale": np.array([np.nan], np.float32)}, "positive and finite"),
        ({"scale": np.array([0.0], np.float32)}, "positive and finite"),
        ({"scale": np.full(3, 0.1, np.float32), "zero": np.zeros(3, np.int64), "axis": 3}, "do not fit the channels"),
        ({"zero": np.zeros(2, np.int64)}, "as many scales"),
        ({"zero": np.array([1000])}, "zero point lies outside"),
    ],
)
def test_absurd_tensors_are_refused(change: dict[str, Any], word: str) -> None:
    f = one("LEAKY_RELU", [IMAGE], IMAGE, "int8", alpha=0.1)
    for name, value in change.items():
        setattr(f.tensors[0], name, value)
    with pytest.raises(FormatError, match=word):
        tflite.to_onnx(tflite.read_bytes(f.bytes(), "absurd"))


def test_a_zero_point_of_a_result_is_looked_at() -> None:
    f = one("LEAKY_RELU", [IMAGE], IMAGE, "int8", alpha=0.1)
    f.tensors[1].zero = np.array([1 << 40])
    with pytest.raises(FormatError, match="zero point lies outside"):
        tflite.to_onnx(tflite.read_bytes(f.bytes(), "absurd"))


def test_axes_are_integers() -> None:
    f = one("MEAN", [IMAGE], [1, 4], "int8", [np.array([np.nan, 2.0], np.float32)], keep_dims=False)
    refused(f, "MEAN", "float32, not integers")


def test_sizes_of_zero_are_refused() -> None:
    f = File()
    x = f.tensor("x", [1, 4, 4, 0], scale=[0.1])
    f.inputs = [x]
    w = f.tensor("w", [1, 1, 1, 4], "int8", np.ones((1, 1, 1, 4), np.int8), [0.1])
    y = f.tensor("y", [1, 4, 4, 4], scale=[0.1])
    f.outputs = [f.op("DEPTHWISE_CONV_2D", [x, w], y, padding="SAME", stride_h=1, stride_w=1)]
    with pytest.raises(FormatError, match="does not fit its data"):
        tflite.to_onnx(tflite.read_bytes(f.bytes(), "zero"))


def test_a_cycle_is_refused() -> None:
    f = one("ADD", [IMAGE, IMAGE], IMAGE, "int8")
    f.operators[0][1][1] = f.outputs[0]
    with pytest.raises(FormatError, match="before it is made"):
        tflite.to_onnx(tflite.read_bytes(f.bytes(), "cycle"))


def test_missing_parts_are_refused() -> None:
    for root, word in (
        ({0: ("I", 3)}, "0 graphs"),
        ({0: ("I", 2), 2: [{2: ("i", [0])}]}, "version 2"),
        ({0: ("I", 3), 2: [{}]}, "no outputs"),
        ({0: ("I", 3), 2: [{2: ("i", [0])}]}, "names a tensor"),
    ):
        with pytest.raises(FormatError, match=word):
            tflite.read_bytes(bytes(Bytes(root).out), "part")
