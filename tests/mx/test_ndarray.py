"""NDArray beyond what MXNet's recorded answers show: memory, files, numbers, errors that teach."""

import copy
import pickle
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import requant.mx as mx
from requant.errors import DTypeError, InputError, RequantError, ShapeError, UnsupportedError
from requant.mx import nd


def test_slices_share_memory_only_where_mxnet_shares_it() -> None:
    x = nd.zeros((4, 3))
    x[1:3][:] = 1
    x.reshape((12,))[0] = 5
    x[:, 1][:] = 9  # not contiguous: a copy
    assert x.asnumpy().tolist() == [[5, 0, 0], [1, 1, 1], [1, 1, 1], [0, 0, 0]]


def test_an_index_array_never_gives_a_view() -> None:
    x = nd.arange(4)
    y = x[nd.array([0, 1, 2, 3])]
    y[:] = 0
    assert x.asnumpy().tolist() == [0, 1, 2, 3]


def test_numpy_copies_are_the_callers() -> None:
    x = nd.zeros((2,))
    x.asnumpy()[:] = 1
    assert x.asnumpy().tolist() == [0, 0]
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(x)[:] = 1
    assert np.asarray(x, dtype=np.int32).dtype == np.int32


def test_arrays_are_copied_and_pickled_with_their_device() -> None:
    x = nd.array([1, 2], ctx=mx.cpu(3))
    for y in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert y.context == mx.cpu(3)
        y[:] = 0
    assert x.asnumpy().tolist() == [1, 2]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "uint8", "int32", "int64"])
def test_arithmetic_keeps_the_dtype(dtype: str) -> None:
    x = nd.array([1, 2, 3], dtype=dtype)
    for y in (x + x, x * 2, 3 - x, x > 1, -x if dtype != "uint8" else x, abs(x), x.sum(), x.max()):
        assert np.dtype(y.dtype).name == dtype
    assert (x + 1).asnumpy().astype(np.float64).tolist() == [2, 3, 4]


def test_bfloat16_prints_and_converts() -> None:
    x = nd.array([1.5, 2], dtype="bfloat16")
    assert x.dtype is ml_dtypes.bfloat16
    assert x.astype("float32").asnumpy().tolist() == [1.5, 2]
    assert repr(x) == "\n[1.5 2]\n<NDArray 2 @cpu(0)>"


def test_dtypes_are_not_mixed_silently() -> None:
    with pytest.raises(DTypeError, match="float32 and int32"):
        nd.ones((2,)) + nd.ones((2,), dtype="int32")


def test_operands_of_other_kinds_are_refused_with_advice() -> None:
    with pytest.raises(TypeError, match=r"mx\.nd\.array"):
        nd.ones((2,)) + np.ones(2)
    with pytest.raises(TypeError):
        nd.ones((2,)) + "a"


def test_scalars_do_not_make_new_sessions() -> None:
    from requant import eager

    x = nd.ones((2,))
    x * 0.5
    before = len(eager._cache._calls)
    for i in range(20):
        x * (0.1 * i) + i
    assert len(eager._cache._calls) <= before + 1


def test_unknown_attributes_name_the_closest() -> None:
    with pytest.raises(RequantError, match="'num_filter'"):
        nd.Convolution(nd.ones((1, 1, 3, 3)), nd.ones((1, 1, 3, 3)), kernel=(3, 3), num_filters=1)
    with pytest.raises(AttributeError, match="'Convolution'"):
        nd.Convolutoin  # noqa: B018


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(InputError, match="given twice"):
        nd.clip(nd.ones((2,)), 0, 1, a_max=2)
    with pytest.raises(InputError, match="too many"):
        nd.clip(nd.ones((2,)), 0, 1, 2)
    with pytest.raises(InputError, match="bias"):
        nd.Convolution(
            nd.ones((1, 1, 3, 3)), nd.ones((1, 1, 3, 3)), nd.ones((1,)), kernel=(3, 3), num_filter=1, no_bias=True
        )
    with pytest.raises(ShapeError):
        nd.ones((2,)).copyto(nd.ones((3,)))
    with pytest.raises(ShapeError):
        nd.ones((2, 3)).expand_dims(7)


def test_results_go_into_out() -> None:
    out = nd.zeros((2,), dtype="float64")
    got = nd.clip(nd.array([-1, 5]), 0, 1, out=out)
    assert got is out
    assert out.asnumpy().tolist() == [0, 1]
    both = [nd.zeros((1, 2)), nd.zeros((1, 2))]
    nd.SliceChannel(nd.array([[1, 2, 3, 4]]), num_outputs=2, out=both)
    assert both[1].asnumpy().tolist() == [[3, 4]]


def test_gradients_are_refused_in_a_sentence() -> None:
    x = nd.ones((1,))
    x.attach_grad()
    with pytest.raises(UnsupportedError, match="does not compute gradients"):
        x.backward()


def test_files_round_trip(tmp_path: Path) -> None:
    name = tmp_path / "x.params"
    dense = {"arg:a": nd.array([[1, 2]]), "aux:b": nd.array([1], dtype="int8")}
    nd.save(name, dense)
    found = nd.load(name)
    assert list(found) == ["arg:a", "aux:b"]
    assert found["aux:b"].dtype == np.int8
    found["arg:a"][0, 0] = 7  # what is mapped from the file becomes memory of its own
    assert nd.load(name)["arg:a"].asnumpy().tolist() == [[1, 2]]
    nd.save(name, [nd.ones((2,)), nd.zeros((1,))])
    assert [x.shape for x in nd.load(name)] == [(2,), (1,)]
    nd.save(name, nd.ones((2,)))
    assert len(nd.load_frombuffer(name.read_bytes())) == 1
    with pytest.raises(InputError, match="only NDArrays"):
        nd.save(name, {"a": np.ones(2)})


def test_sparse_files_round_trip(tmp_path: Path) -> None:
    name = tmp_path / "x.params"
    dense = np.array([[0, 1, 0], [0, 0, 0], [2, 0, 3]], np.float32)
    nd.save(name, {"csr": nd.array(dense).tostype("csr"), "rows": nd.array(dense).tostype("row_sparse")})
    found = nd.load(name)
    assert found["csr"].stype == "csr"
    assert found["csr"].indptr.asnumpy().tolist() == [0, 1, 1, 3]
    assert found["rows"].indices.asnumpy().tolist() == [0, 2]
    for x in found.values():
        assert x.tostype("default").asnumpy().tolist() == dense.tolist()
    made = nd.sparse.csr_matrix(([1.0, 2.0], [0, 2], [0, 1, 2]), shape=(2, 3))
    assert made.asnumpy().tolist() == [[1, 0, 0], [0, 0, 2]]
    rows = nd.sparse.row_sparse_array((np.ones((1, 2)), [1]), shape=(3, 2))
    assert rows.asnumpy().tolist() == [[0, 0], [1, 1], [0, 0]]


def test_contexts_are_remembered_and_computed_on_the_cpu(caplog: pytest.LogCaptureFixture) -> None:
    with mx.Context("cpu", 2):
        assert nd.zeros((1,)).context == mx.cpu(2)
    assert mx.current_context() == mx.cpu()
    x = nd.ones((2,), ctx=mx.gpu(1))
    assert (x + 1).context == mx.gpu(1)
    assert str(mx.gpu(1)) == "gpu(1)"
    assert {mx.cpu(): 1}[mx.cpu(0)] == 1
    assert mx.num_gpus() == 0
    with pytest.raises(RequantError, match="unknown device"):
        mx.Context("tpu")


def test_random_numbers_follow_the_seed() -> None:
    mx.random.seed(3)
    a = nd.random.normal(shape=(3,))
    b = mx.random.uniform(shape=(3,))
    mx.random.seed(3)
    assert nd.random.normal(shape=(3,)).asnumpy().tolist() == a.asnumpy().tolist()
    assert mx.random.uniform(shape=(3,)).asnumpy().tolist() == b.asnumpy().tolist()
    wide = nd.random.uniform(nd.array([0, 10]), nd.array([1, 11]), shape=(50,)).asnumpy()
    assert wide.shape == (2, 50)
    assert 0 <= wide[0].min() <= wide[0].max() <= 1
    assert 10 <= wide[1].min() <= wide[1].max() <= 11
    out = nd.zeros((4,))
    nd.random.randint(2, 3, out=out)
    assert out.asnumpy().tolist() == [2, 2, 2, 2]


def test_pictures_are_resized_and_normalized() -> None:
    pytest.importorskip("PIL")
    picture = nd.array(np.full((4, 6, 3), 128), dtype="uint8")
    small = nd.image.resize(picture, (3, 2))
    assert small.shape == (2, 3, 3)
    assert small.dtype == np.uint8
    tensor = nd.image.normalize(nd.image.to_tensor(small), mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    assert tensor.shape == (3, 2, 3)
    np.testing.assert_allclose(tensor.asnumpy(), 128 / 255 * 2 - 1, atol=1e-6)
    assert nd.image.resize(picture, 2, keep_ratio=True).shape == (2, 3, 3)
    assert nd.image.crop(picture, 1, 0, 3, 2).shape == (2, 3, 3)


def test_helpers_for_tests_compare() -> None:
    mx.test_utils.assert_almost_equal(nd.ones((2,)), np.ones(2))
    with pytest.raises(AssertionError, match="left and right differ"):
        mx.test_utils.assert_almost_equal(nd.ones((2,)), np.zeros(2), names=("left", "right"))
    assert mx.test_utils.same(nd.ones((2,)), np.ones(2))
    assert mx.test_utils.rand_ndarray((2, 3), "csr").stype == "csr"
