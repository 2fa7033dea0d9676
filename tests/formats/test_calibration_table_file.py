"""Calibration tables as bytes: round trips, and files that lie."""

from __future__ import annotations

import base64
import contextlib
import json
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from requant.errors import FormatError, RequantError
from requant.formats import calibration_table as ct
from requant.formats.atomic import atomic_write
from requant.quant.table import CalibrationTable

CELLS = np.array([0, 1, 2**40, 7], np.int64)


def table(**parts: object) -> ct.StoredTable:
    statistic = {"kind": "histogram", "count": 8, "low": -0.1, "high": 2.5e-42, "cells": CELLS}
    fields = {"model": "abc", "calibrator": "entropy", "tensors": {"conv0": {"statistic": statistic}}, "samples": 3}
    return ct.StoredTable(**{**fields, **parts})  # type: ignore[arg-type]


def changed(path: list[str], value: object) -> bytes:
    root = json.loads(ct.dump_table(table()))
    place = root
    for key in path[:-1]:
        place = place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return json.dumps(root).encode()


def test_round_trip_is_exact(tmp_path: Path) -> None:
    original = table(options={"percentile": 99.9}, metadata={"std": "1"}, skipped=2)
    ct.write_table(original, tmp_path / "t.json")
    again = ct.read_table(tmp_path / "t.json")
    statistic = again.tensors["conv0"]["statistic"]
    np.testing.assert_array_equal(statistic["cells"], CELLS)
    assert statistic["cells"].dtype == np.int64 and statistic["low"] == -0.1 and statistic["high"] == 2.5e-42
    assert (again.options, again.metadata, again.skipped) == ({"percentile": 99.9}, {"std": "1"}, 2)
    assert ct.dump_table(again) == (tmp_path / "t.json").read_bytes()
    json.loads((tmp_path / "t.json").read_text("utf-8"))  # any JSON reader takes it


def test_numbers_that_json_does_not_have_are_never_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        ct.dump_table(table(tensors={"x": {"statistic": {"kind": "minmax", "low": float("nan")}}}))


def _array(data: bytes, length: int = 4, dtype: str = "int64") -> dict[str, object]:
    return {"dtype": dtype, "length": length, "data": base64.b64encode(data).decode()}


ARRAY = ["tensors", "conv0", "statistic", "cells"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[]", "not a calibration table"),
        (b'{"format": "other"}', "not a calibration table"),
        (b"[" * 100000, "not JSON"),
        (b'{"a": 1, "a": 2}', "occurs twice"),
        (b'{"a": NaN}', "NaN is no JSON number"),
        (b"TRT-8601-EntropyCalibration2\n", "TensorRT"),
        (changed(["version"], 2), "another version"),
        (changed(["version"], "1"), "another version"),
        (changed(["model"], 3), "'model'"),
        (changed(["model"], "x" * 100000), "'model'"),
        (changed(["calibrator"], None), "'calibrator'"),
        (changed(["samples"], -1), "not a count"),
        (changed(["samples"], True), "not a count"),
        (changed(["samples"], 10**30), "not a count"),
        (changed(["options"], {"p": "x"}), "not a number"),
        (changed(["metadata"], {"p": 1}), "not text"),
        (changed(["tensors"], []), "'tensors'"),
        (changed(["tensors", "conv0"], {}), "without a statistic"),
        (changed(["tensors", "conv0", "statistic"], []), "not a statistic"),
        (changed(["tensors", "conv0", "statistic", "kind"], 5), "not a statistic"),
        (changed(["tensors", "conv0", "statistic", "low"], "x"), "neither a number nor an array"),
        (changed(["tensors", "conv0", "statistic", "low"], [1]), "neither a number nor an array"),
        (changed(ARRAY, {"dtype": "int64"}), "not an array"),
        (changed(ARRAY, _array(b"", dtype="object")), "not an array"),
        (changed(ARRAY, _array(b"", length=2**60)), "too many array elements"),
        (changed(ARRAY, _array(b"", length=2**20)), "impossible length"),
        (changed(ARRAY, _array(b"", length=-1)), "impossible length"),
        (changed(ARRAY, _array(b"no zlib")), "cannot be unpacked"),
        (changed(ARRAY, {"dtype": "int64", "length": 4, "data": "!!"}), "cannot be unpacked"),
        (changed(ARRAY, _array(zlib.compress(bytes(8)))), "another length"),
        (changed(ARRAY, _array(zlib.compress(bytes(10**8)))), "another length"),  # a bomb: unpacked no further than 33
        (changed(ARRAY, _array(zlib.compress(bytes(32)) + b"x")), "another length"),
        (changed(ARRAY, _array(zlib.compress(bytes(32))[:-2])), "another length"),
    ],
)
def test_hostile_tables(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        ct.parse_table(data, "t.json")


def test_a_fault_inside_names_file_and_tensor() -> None:
    with pytest.raises(FormatError, match=r"t\.json, tensor 'conv0', statistic, 'cells'"):
        ct.parse_table(changed(ARRAY, _array(b"?")), "t.json")


def test_impossible_statistics_are_refused_by_name() -> None:
    for path, value in (
        (["tensors", "conv0", "statistic", "count"], 5),
        (["tensors", "conv0", "statistic", "kind"], "other"),
        (["calibrator"], "nothing"),
    ):
        with pytest.raises(RequantError):
            CalibrationTable.from_stored(ct.parse_table(changed(path, value)))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_bytes_never_crash(data) -> None:
    t = CalibrationTable(["a", "b"])
    t.observe({"a": np.arange(50.0), "b": -np.arange(9.0)})
    good = bytearray(ct.dump_table(t.to_stored()))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(good) - 1))
        good[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(good)))
    for damaged in (bytes(good), bytes(good[:cut])):
        with contextlib.suppress(RequantError):
            CalibrationTable.from_stored(ct.parse_table(damaged)).ranges()


def test_tensorrt_cache_text() -> None:
    """One step of 1/127: 0x3c010204 are the bits of the float32."""
    cache = ct.parse_tensorrt_cache(b"TRT-8601-EntropyCalibration2\ndata: 3c010a14\nblob:0: 3c010204\nzero: 0\n")
    assert cache.scales["blob:0"] == np.float32(1 / 127) and cache.scales["zero"] == 0.0
    assert cache.scales["data"] == pytest.approx(0.00787593, rel=1e-5)
    assert (cache.version, cache.algorithm) == (8601, "EntropyCalibration2")
    text = ct.dump_tensorrt_cache(cache)
    assert text == b"TRT-8601-EntropyCalibration2\ndata: 3c010a14\nblob:0: 3c010204\nzero: 00000000\n"
    assert ct.parse_tensorrt_cache(text.replace(b"\n", b"\r\n")) == cache


@given(
    st.dictionaries(st.text("abc/:._ é", min_size=1).filter(lambda s: s == s.strip()), st.floats(0, 2.0**100, width=32))
)
def test_tensorrt_round_trip(scales: dict[str, float]) -> None:
    cache = ct.TensorRTCache(scales)
    assert ct.parse_tensorrt_cache(ct.dump_tensorrt_cache(cache)) == cache


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a TensorRT calibration cache"),
        (b"\xff\xff", "no text"),
        (b"TRT-x-Y\n", "not a TensorRT calibration cache"),
        (b'{"format"', "not a TensorRT calibration cache"),
        (b"TRT-8601-EntropyCalibration2\ndata 3c010a14\n", "line 2"),
        (b"TRT-8601-EntropyCalibration2\ndata: 3c010a14f\n", "line 2"),
        (b"TRT-8601-EntropyCalibration2\n\ndata: xyz\n", "line 3"),
        (b"TRT-8601-EntropyCalibration2\n: 3c010a14\n", "line 2"),
        (b"TRT-8601-EntropyCalibration2\ndata: 7f800000\n", "impossible scale"),
        (b"TRT-8601-EntropyCalibration2\ndata: bf800000\n", "impossible scale"),
        (b"TRT-8601-EntropyCalibration2\na: 0\na: 1\n", "occurs twice"),
    ],
)
def test_hostile_caches(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        ct.parse_tensorrt_cache(data)


def test_what_a_cache_cannot_hold_is_refused() -> None:
    for cache in (
        ct.TensorRTCache({"a\nb": 1.0}),
        ct.TensorRTCache({"": 1.0}),
        ct.TensorRTCache({"a": -1.0}),
        ct.TensorRTCache({"a": float("nan")}),
        ct.TensorRTCache({"a": 1e300}),
        ct.TensorRTCache({}, algorithm="Entropy Calibration"),
    ):
        with pytest.raises(FormatError):
            ct.dump_tensorrt_cache(cache)


def test_a_file_that_cannot_be_written_is_named_by_its_own_name(tmp_path: Path) -> None:
    wanted = tmp_path / "none" / "net.calib.json"
    with pytest.raises(FileNotFoundError) as fault, atomic_write(wanted):
        pass
    assert fault.value.filename == str(wanted)
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError) as other, atomic_write(tmp_path / "folder"):
        pass
    assert other.value.filename == str(tmp_path / "folder")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]
