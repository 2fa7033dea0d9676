"""Large batches run as small ones: only where samples are proved to be apart, and with the same numbers."""

from __future__ import annotations

import threading

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from requant import engines
from requant.engines import EngineOptions
from requant.engines.openvino_session import SplitSession
from requant.engines.split import pieces, sample_wise
from requant.errors import InputError


def parse(text: str, opset: int = 18) -> ir.Model:
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')
    onnx.checker.check_model(proto)
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


def graph(body: str, inputs: str = "float[N, 4, 6, 6] x", outputs: str = "float[N, c, h, w] y", more: str = "") -> str:
    return f"g ({inputs}) => ({outputs}) {more} {{ {body} }}"


K = f"<float[4, 4, 3, 3] k = {{{', '.join(['0.5'] * 144)}}}>"
ROW = "float[N, 6] x"

APART = [
    graph("y = Relu(x)"),
    graph("y = Conv<pads = [1, 1, 1, 1]>(x, k)", more=K),
    graph("p = GlobalAveragePool(x)  y = Add(x, p)"),
    graph("y = Concat<axis = 1>(x, x)"),
    graph("y = Softmax<axis = -1>(x)"),
    graph("y = Transpose<perm = [0, 2, 3, 1]>(x)"),
    graph("y = Mul(x, c)", more="<float[4, 1, 1] c = {1, 2, 3, 4}>"),
    graph("y = Flatten(x)", outputs="float[N, f] y"),
    graph("y = Reshape(x, s)", outputs="float[N, f] y", more="<int64[2] s = {0, -1}>"),
    graph("y = Reshape(x, s)", outputs="float[M, f] y", more="<int64[2] s = {-1, 144}>"),
    graph("y = ReduceMean<keepdims = 0>(x, a)", outputs="float[N, c] y", more="<int64[2] a = {2, 3}>"),
    graph("y = Gemm<transB = 1>(x, w)", ROW, "float[N, o] y", "<float[2, 6] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}>"),
    graph("y = MatMul(x, x2)", "float[N, 6, 6] x, float[N, 6, 6] x2", "float[N, a, b] y"),
    graph("y = Slice(x, s, e, a)", more="<int64[1] s = {1}, int64[1] e = {3}, int64[1] a = {1}>"),
    graph("u, y = Split<axis = 1, num_outputs = 2>(x)"),
]

TOGETHER = [
    graph("y = Softmax<axis = 0>(x)"),
    graph("y = Softmax<axis = -4>(x)"),
    graph("y = Concat<axis = 0>(x, x)"),
    graph("y = Transpose<perm = [1, 0, 2, 3]>(x)"),
    graph("y = ReduceMean<keepdims = 1>(x, a)", outputs="float[1, c, h, w] y", more="<int64[1] a = {0}>"),
    graph("m = ReduceMean<keepdims = 1>(x, a)  y = Sub(x, m)", more="<int64[1] a = {0}>"),
    graph("m = ReduceMax<keepdims = 1>(x)  y = Sub(x, m)"),
    graph("y = Reshape(x, s)", outputs="float[M, f] y", more="<int64[2] s = {-1, 72}>"),
    graph("y = Reshape(x, s)", outputs="float[a, b] y", more="<int64[2] s = {2, -1}>"),
    graph("t = Transpose<perm = [1, 0]>(x)  y = MatMul(x, t)", ROW, "float[N, M] y"),
    graph("y = Gemm<transA = 1>(x, x)", ROW, "float[a, b] y"),
    graph("y = Slice(x, s, e, a)", more="<int64[1] s = {1}, int64[1] e = {3}, int64[1] a = {0}>"),
    graph("y = CumSum(x, a)", more="<int64 a = {0}>"),
    graph("s = Shape(x)  y = Reshape(x, s)"),
    graph("y = Add(x, c)", ROW, "float[N, 6] y", "<float[3, 6] c = {1,2,3,4,5,6, 1,2,3,4,5,6, 1,2,3,4,5,6}>"),
    graph("y, i = MaxPool<kernel_shape = [2, 2]>(x)"),
    graph("y = Relu(x)", inputs="float[3, 4, 6, 6] x", outputs="float[3, 4, 6, 6] y"),
    graph("y = Relu(x)", inputs="float[N, N, 6, 6] x", outputs="float[N, N, 6, 6] y"),
    graph("y = Relu(x)", inputs="float[N, 4] x, float[M, 4] z", outputs="float[N, 4] y"),
    graph("y = Relu(x)  z = Relu(c)", outputs="float[N, 4, 6, 6] y, float[2] z", more="<float[2] c = {1, 2}>"),
    graph("y = Add(x, z)", "float[N, 6] x, float[N] z", "float[N, 6] y"),
]


@pytest.mark.parametrize("text", APART)
def test_samples_that_are_apart(text: str) -> None:
    assert sample_wise(parse(text))


@pytest.mark.parametrize("text", TOGETHER)
def test_samples_that_see_each_other(text: str) -> None:
    assert not sample_wise(parse(text))


def network() -> ir.Model:
    """Large enough to be cut: 64 x 64 pixels, 16 channels, two inputs, two outputs."""
    rng = np.random.default_rng(3)
    k, k2 = (", ".join(f"{v:.4f}" for v in rng.standard_normal(n)) for n in (16 * 3 * 9, 16 * 16 * 9))
    return parse(
        graph(
            "a = Conv<pads = [1, 1, 1, 1]>(data, k)  r = Relu(a)  b = Conv<pads = [1, 1, 1, 1]>(r, k2) "
            "s = Add(b, r)  map = Mul(s, gain)  top = GlobalAveragePool(map)",
            "float[N, 3, 64, 64] data, float[N, 1, 1, 1] gain",
            "float[N, 16, 64, 64] map, float[N, 16, 1, 1] top",
            f"<float[16, 3, 3, 3] k = {{{k}}}, float[16, 16, 3, 3] k2 = {{{k2}}}>",
        )
    )


def feeds(batch: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(batch)
    return {
        "data": rng.standard_normal((batch, 3, 64, 64)).astype(np.float32),
        "gain": rng.standard_normal((batch, 1, 1, 1)).astype(np.float32),
    }


def shapes(batch: int) -> dict[str, tuple[int | None, ...]]:
    return {"data": (batch, 3, 64, 64), "gain": (batch, 1, 1, 1)}


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("requant.engines.machine.usable_physical_cores", lambda: 2)


@pytest.mark.parametrize("batch", [8, 12, 30])
def test_the_numbers_are_those_of_the_whole(batch: int, two_cores: None) -> None:
    engine, given = engines.get("openvino"), feeds(batch)
    with (
        engine.load(network(), EngineOptions(), shapes(batch)) as cut,
        engine.load(network(), EngineOptions(split=False), shapes(batch)) as whole,
    ):
        assert isinstance(cut, SplitSession) and not isinstance(whole, SplitSession)
        assert [s.shape for s in cut.outputs] == [s.shape for s in whole.outputs]
        expected = whole.run(given)
        for found in (cut.run(given), cut.submit(given).result(), *cut.stream([given, given])):
            for a, b in zip(found, expected):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
        backwards = {n: np.ascontiguousarray(a[::-1])[::-1] for n, a in given.items()}
        for array in backwards.values():
            array.flags.writeable = False
        np.testing.assert_allclose(cut.run(backwards)[0], expected[0], rtol=1e-5, atol=1e-5)
        assert cut.look(given, lambda outs: [o.copy() for o in outs])[1].shape == (batch, 16, 1, 1)


def test_many_threads(two_cores: None) -> None:
    engine = engines.get("openvino")
    faults: list[str] = []
    with engine.load(network(), EngineOptions(), shapes(8)) as session:
        given = [{n: a * (i + 1) for n, a in feeds(8).items()} for i in range(4)]
        expected = [session.run(g) for g in given]

        def work(i: int) -> None:
            for _ in range(5):
                for a, b in zip(session.run(given[i]), expected[i]):
                    if not np.array_equal(a, b):
                        faults.append(f"thread {i}")

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not faults


def test_wrong_shapes_are_told_as_ever(two_cores: None) -> None:
    with (
        engines.get("openvino").load(network(), EngineOptions(), shapes(8)) as session,
        pytest.raises(InputError, match="wrong shape"),
    ):
        session.run(feeds(4))


def test_profile_tells_the_layers(two_cores: None) -> None:
    with engines.get("openvino").load(network(), EngineOptions(profile=True), shapes(8)) as session:
        session.run(feeds(8))
        assert sum(layer.op == "Convolution" for layer in session.profile()) == 2


@pytest.mark.parametrize(
    "batch, cores, expected",
    [
        (1, 2, None),  # nothing to cut
        (3, 2, None),
        (8, 1, None),  # nobody to share with
        (8, 2, (2, 2)),
        (16, 4, (2, 4)),  # two runs for each core
        (7, 2, None),  # one core would idle in the last of few runs
        (18, 2, (3, 2)),
    ],
)
def test_pieces(batch: int, cores: int, expected: tuple[int, int] | None) -> None:
    assert pieces(network(), shapes(batch), cores) == expected


def test_pieces_fit_into_the_caches() -> None:
    big = parse(graph("y = Relu(x)", "float[N, 4, 512, 512] x", "float[N, 4, 512, 512] y"))
    assert pieces(big, {"x": (64, 4, 512, 512)}, 2) == (1, 2)
    assert pieces(big, {"x": (64, 4, None, 512)}, 2) is None


def test_small_networks_stay_whole() -> None:
    small = parse(graph("y = Relu(x)", "float[N, 4] x", "float[N, 4] y"))
    assert pieces(small, {"x": (64, 4)}, 2) is None


@pytest.mark.parametrize("options", [EngineOptions(hint="throughput"), EngineOptions(streams=1)])
def test_who_arranges_runs_himself_is_left_alone(options: EngineOptions, two_cores: None) -> None:
    with engines.get("openvino").load(network(), options, shapes(8)) as session:
        assert not isinstance(session, SplitSession)
