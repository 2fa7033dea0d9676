from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from damage import damaged, small_memory
from hypothesis import given, settings
from hypothesis import strategies as st

from requant.dtypes import MX_CODES
from requant.errors import DTypeError, FormatError, ShapeError
from requant.formats.params import params_bytes, read_params, split_arg_aux, write_params
from requant.formats.sparse import Csr, RowSparse

DATA = Path(__file__).parent / "data"
EXPECTED = json.loads((DATA / "params.json").read_text())
SHARED = Path(__file__).parents[3] / "shared" / "models"


def dense(param):
    return param.to_dense() if isinstance(param, (RowSparse, Csr)) else param


def same(a, b) -> bool:
    if a is None or b is None:
        return a is b
    if type(a) is not type(b):
        return False
    if isinstance(a, RowSparse):
        return a.shape == b.shape and same(a.data, b.data) and same(a.indices, b.indices)
    if isinstance(a, Csr):
        return a.shape == b.shape and same(a.data, b.data) and same(a.indices, b.indices) and same(a.indptr, b.indptr)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def as_dict(found):
    return found if isinstance(found, dict) else dict(enumerate(found))


@pytest.mark.parametrize("name", sorted(EXPECTED))
@pytest.mark.parametrize("copy", [False, True])
def test_reads_what_mxnet_wrote(name, copy):
    found = read_params(DATA / name, copy=copy)
    expected = EXPECTED[name]
    assert isinstance(found, dict) == isinstance(expected, dict)
    assert isinstance(found, list) or list(found) == [*found]  # file order is kept
    wanted = expected if isinstance(expected, dict) else {str(i): e for i, e in enumerate(expected)}
    assert {str(k) for k in as_dict(found)} == set(wanted)
    for key, param in as_dict(found).items():
        array, want = dense(param), wanted[str(key)]
        assert str(array.dtype) == want["dtype"]
        assert list(array.shape) == want["shape"]
        assert array.reshape(-1).tolist() == want["values"]
        assert array.flags.aligned
        assert array.flags.writeable or not copy


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_writes_the_bytes_of_mxnet(name, tmp_path):
    version = int(name[-len("2.params")])
    written = tmp_path / name
    write_params(written, read_params(DATA / name), version=version)
    assert written.read_bytes() == (DATA / name).read_bytes()
    assert params_bytes(read_params(DATA / name), version=version) == written.read_bytes()
    assert os.listdir(tmp_path) == [name]


def test_sparse_arrays_stay_sparse():
    found = read_params(DATA / "sparse_v2.params")
    rows, csr = found["rows"], found["csr"]
    assert isinstance(rows, RowSparse) and isinstance(csr, Csr)
    assert rows.indices.tolist() == [1, 3] and rows.data.shape == (2, 2) and rows.shape == (5, 2)
    assert csr.indptr.tolist() == [0, 2, 2, 3] and csr.indices.tolist() == [0, 2, 1]
    assert found["no_rows"].data.shape == (0, 2) and found["no_csr"].data.shape == (0,)


# -- round trips ---------------------------------------------------------------------------------------------------

DTYPES = st.sampled_from(sorted(MX_CODES.values(), key=str))
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@st.composite
def arrays(draw, min_ndim=0):
    dtype = draw(DTYPES)
    shape = tuple(draw(st.lists(st.integers(0, 3), min_size=min_ndim, max_size=4)))
    count = int(np.prod(shape, dtype=int)) * dtype.itemsize
    raw = np.frombuffer(draw(st.binary(min_size=count, max_size=count)), np.uint8)
    return ((raw & 1) if dtype == np.bool_ else raw).copy().view(dtype).reshape(shape)


@st.composite
def row_sparse(draw):
    rows = draw(st.integers(1, 6))
    indices = sorted(draw(st.sets(st.integers(0, rows - 1))))
    columns = draw(st.integers(1, 3))
    data = np.arange(len(indices) * columns).reshape(len(indices), columns).astype(draw(DTYPES))
    return RowSparse(data, np.array(indices, np.int64), (rows, columns))


@st.composite
def csr(draw):
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    places = [sorted(draw(st.sets(st.integers(0, columns - 1)))) for _ in range(rows)]
    indices = np.array([c for row in places for c in row], np.int64)
    indptr = np.cumsum([0] + [len(row) for row in places], dtype=np.int64)
    return Csr(np.arange(len(indices)).astype(draw(DTYPES)), indptr, indices, (rows, columns))


def lists(values):
    return st.one_of(st.lists(values, max_size=5), st.dictionaries(NAMES, values, min_size=1, max_size=5))


@settings(max_examples=120, deadline=None)
@given(lists(st.one_of(arrays(min_ndim=1), row_sparse(), csr(), st.none())))
def test_round_trip_version_2(params):
    found = as_dict(read_params(params_bytes(params)))
    assert list(found) == list(as_dict(params))
    assert all(same(found[key], value) for key, value in as_dict(params).items())


@pytest.mark.parametrize("version", [0, 1, 3])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_round_trip_other_versions(version, data):
    params = data.draw(lists(st.one_of(arrays(min_ndim=0 if version == 3 else 1), st.none())))
    found = as_dict(read_params(params_bytes(params, version=version)))
    assert list(found) == list(as_dict(params))
    assert all(same(found[key], value) for key, value in as_dict(params).items())


def test_other_memory_layouts_are_written_as_c_order():
    array = np.arange(6, dtype=">f4").reshape(2, 3)
    found = read_params(params_bytes([array, np.asfortranarray(array), array[:, ::2]]))
    assert [a.tolist() for a in found] == [array.tolist(), array.tolist(), array[:, ::2].tolist()]
    assert {a.dtype for a in found} == {np.dtype("float32")}


def test_any_byte_but_zero_is_true():
    blob = params_bytes([np.array([1, 0, 1, 1], bool)]).replace(b"\x01\x00\x01\x01", b"\x02\x00\x80\x01")
    (found,) = read_params(blob)
    assert found.view(np.uint8).tolist() == [1, 0, 1, 1]


def test_bfloat16():
    array = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    (found,) = read_params(params_bytes([array]))
    assert found.dtype == ml_dtypes.bfloat16 and found.tolist() == [1.5, -2.0]


# -- reading files ---------------------------------------------------------------------------------------------------


def test_a_file_is_mapped_and_may_be_replaced(tmp_path):
    path = tmp_path / "a.params"
    write_params(path, {"x": np.arange(1000, dtype=np.float32)})
    before = read_params(path)["x"]
    assert not before.flags.owndata and not before.flags.writeable
    write_params(path, {"x": np.zeros(3, np.float32)})
    assert before[999] == 999 and read_params(path)["x"].shape == (3,)


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.params"
    write_params(path, {"x": np.ones(2, np.float32)})
    with pytest.raises(DTypeError):
        write_params(path, {"x": np.ones(2, np.float32), "y": np.ones(2, np.complex64)})
    assert read_params(path)["x"].tolist() == [1, 1]
    assert os.listdir(tmp_path) == ["a.params"]


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="no trained models beside the checkout")
def test_trained_models_come_back_byte_for_byte():
    files = sorted(SHARED.glob("*.params"))
    assert files
    for path in files:
        version = 0 if path.name.startswith("mnist-lenet") else 2
        assert params_bytes(read_params(path), version=version) == path.read_bytes()


# -- faults ----------------------------------------------------------------------------------------------------------


def header(count=1):
    return struct.pack("<QQQ", 0x112, 0, count)


def v2(stype=0, dims=(2,), dtype=0, data=b"\0" * 8):
    shape = struct.pack(f"<i{len(dims)}q", len(dims), *dims)
    return struct.pack("<Ii", 0xF993FAC9, stype) + shape + struct.pack("<iii", 1, 0, dtype) + data


END = struct.pack("<Q", 0)
HUGE = 1 << 62
FAULTS = {
    "empty": (b"", "not a list of MXNet arrays"),
    "git lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
    "json": (b'{"nodes": []}', "JSON text"),
    "npz": (b"PK\x03\x04" + b"\0" * 40, "zip archive"),
    "absurd count": (header(1 << 60) + v2() + END, "more arrays are declared than the file can hold"),
    "no arrays": (header(2) + v2(), "array 1 of 2, byte"),
    "bad magic": (header() + struct.pack("<I", 0xF993FAD0) + END, "0xF993FAD0"),
    "absurd ndim": (header() + struct.pack("<Iii", 0xF993FAC9, 0, 1000) + b"\0" * 8000, "number of dimensions"),
    "negative dim": (header() + v2(dims=(-1,)) + END, "the shape is absurd"),
    "huge dim": (header() + v2(dims=(HUGE,)) + END, "the shape is absurd"),
    "huge product": (header() + v2(dims=(1 << 31, 1 << 31)) + END, "the shape is absurd"),
    "huge and empty": (header() + v2(dims=(0, HUGE), data=b"") + END, "the shape is absurd"),
    "large dim": (header() + v2(dims=(1 << 40,)) + END, "the file ends inside the values"),
    "type": (header() + v2(dtype=13) + END, "unknown type flag"),
    "storage": (header() + v2(stype=3) + END, "unknown storage type"),
    "names": (header() + v2() + struct.pack("<Q", 2), "number of names"),
    "name length": (header() + v2() + struct.pack("<QQ", 1, 1 << 63), "the file ends inside a name"),
    "name bytes": (header() + v2() + struct.pack("<QQ", 1, 1) + b"\xff", "not UTF-8"),
    "same name": (header(2) + v2() * 2 + struct.pack("<Q", 2) + (struct.pack("<Q", 1) + b"x") * 2, "more than one"),
    "more bytes": (header() + v2() + END + b"\0", "bytes follow"),
    "v3 sparse": (header() + v2(stype=1).replace(b"\xc9", b"\xca", 1) + END, "unknown storage type"),
}


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_faults_are_told(name, tmp_path):
    blob, message = FAULTS[name]
    path = tmp_path / "bad.params"
    path.write_bytes(blob)
    with pytest.raises(FormatError, match="byte") as fault, small_memory(1 << 20):
        read_params(path)
    assert message in str(fault.value) and str(path) in str(fault.value)


def sparse_blob(**changes):
    param = {"data": np.ones((2, 2), "f4"), "indices": np.array([1, 3], "i8"), "shape": (5, 2), **changes}
    return params_bytes([RowSparse(**param)])


def csr_blob(**changes):
    param = {
        "data": np.ones(3, "f4"),
        "indptr": np.array([0, 2, 2, 3], "i8"),
        "indices": np.array([0, 2, 1], "i8"),
        "shape": (3, 4),
    }
    return params_bytes([Csr(**{**param, **changes})])


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (sparse_blob(indices=np.array([1, 5], "i8")), "row numbers lie outside"),
        (sparse_blob(indices=np.array([-1, 3], "i8")), "row numbers lie outside"),
        (sparse_blob(indices=np.array([3, 3], "i8")), "not strictly ascending"),
        (sparse_blob(indices=np.array([1, 2, 3], "i8")), "row numbers do not fit"),
        (sparse_blob(shape=(5, 3)), "stored shape does not fit a row_sparse"),
        (csr_blob(indices=np.array([0, 4, 1], "i8")), "column numbers lie outside"),
        (csr_blob(indptr=np.array([0, 3, 2, 3], "i8")), "row pointers do not count"),
        (csr_blob(indptr=np.array([1, 2, 2, 3], "i8")), "row pointers do not count"),
        (csr_blob(indptr=np.array([0, 2, 3], "i8")), "row pointers do not fit"),
        (csr_blob(shape=(3, 4, 1)), "stored shape does not fit a csr"),
    ],
)
def test_broken_sparse_arrays(blob, message):
    with pytest.raises(FormatError, match=message):
        read_params(blob)


def test_a_sparse_array_of_absurd_shape_is_not_made_dense():
    wide = RowSparse(np.ones((0, 1 << 40), "f4"), np.empty(0, "i8"), (1 << 18, 1 << 40))
    (found,) = read_params(params_bytes([wide]))
    with pytest.raises(ShapeError, match="max_bytes"), small_memory():
        found.to_dense()


def test_what_a_version_cannot_hold():
    with pytest.raises(ShapeError, match="version=3"):
        params_bytes({"x": np.float32(1)})
    with pytest.raises(FormatError, match="sparse"):
        params_bytes([RowSparse(np.ones((1, 1)), np.zeros(1, "i8"), (2, 1))], version=3)
    with pytest.raises(FormatError, match="unknown version"):
        params_bytes([], version=4)


GOOD = [(DATA / name).read_bytes() for name in sorted(EXPECTED)]


@settings(max_examples=1000, deadline=None)
@given(damaged(GOOD))
def test_damaged_files_are_refused_or_read(blob):
    try:
        found = read_params(blob)
    except FormatError:
        return
    for param in as_dict(found).values():
        assert param is None or param.data.nbytes <= len(blob)
        if isinstance(param, (RowSparse, Csr)) and np.prod(param.shape, dtype=float) < 1e6:
            param.to_dense()


def test_split_arg_aux():
    args, aux, bare = split_arg_aux({"arg:a": 1, "aux:m": 2, "0.weight": 3, "arg:x:y": 4, "argument": 5, "other:z": 6})
    assert args == {"a": 1, "x:y": 4} and aux == {"m": 2} and bare == {"0.weight": 3, "argument": 5, "other:z": 6}
