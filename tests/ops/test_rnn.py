"""What goldens cannot show of recurrent layers: sequence lengths, begin states of batch 1, open sizes, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from requant import eager, engines
from requant.engines.base import EngineOptions
from requant.errors import AttributeValueError, ShapeError, UnsupportedError
from requant.lower import to_onnx
from requant.ops import registry
from requant.ops.emit import NeedsShape
from requant.symbol.tree import compose, variable

ENGINES = ("onnxruntime", "openvino")
GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}
#: Steps, batch, features, state size.
T, N, F, H = 5, 3, 4, 2


def parameters(mode: str, ways: int = 1, layers: int = 1, hidden: int = H) -> np.ndarray:
    op = registry.get("RNN")
    a = op.parse(
        {
            "mode": mode,
            "state_size": H,
            "num_layers": layers,
            "bidirectional": ways == 2,
            "projection_size": None if hidden == H else hidden,
        }
    )
    count = a.parameter_count(F)  # type: ignore[attr-defined]
    return np.random.default_rng(3).normal(0, 0.5, count).astype(np.float32)


def run(
    engine: str, arrays: list[np.ndarray], dims: list[list[int | str]] | None = None, **attrs: object
) -> list[np.ndarray]:
    op = registry.get("RNN")
    parsed = op.parse({"state_size": H, "num_layers": 1, "state_outputs": True, **attrs})
    shapes = dims or [list(a.shape) for a in arrays]
    model, used = eager.lower_one(op, parsed, [(a.dtype, s) for a, s in zip(arrays, shapes)])
    session = engines.get(engine).load(model, EngineOptions(threads=1), None)
    return session.run({f"in{i}": arrays[i] for i in used})


def inputs(mode: str, ways: int = 1, layers: int = 1, batch: int = N, hidden: int = H) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    states = [rng.normal(size=(layers * ways, batch, hidden))]
    if mode == "lstm":
        states.append(rng.normal(size=(layers * ways, batch, H)))
    data = rng.normal(size=(T, N, F)).astype(np.float32)
    return [data, parameters(mode, ways, layers, hidden), *(s.astype(np.float32) for s in states)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("hidden", [H, 1])
@pytest.mark.parametrize("ways", [1, 2])
@pytest.mark.parametrize("mode", sorted(GATES))
def test_lengths_are_as_if_each_sample_ran_alone(engine: str, mode: str, ways: int, hidden: int) -> None:
    # MXNet's CPU ignores the lengths (and crashes for all but LSTM); its GPUs do this.
    if hidden != H and mode != "lstm":
        pytest.skip("only an LSTM has a projection")
    data, vector, *states = inputs(mode, ways, hidden=hidden)
    attrs = {"mode": mode, "bidirectional": ways == 2, "projection_size": None if hidden == H else hidden}
    lengths = np.array([2, 5, 3], np.int32)
    got = run(engine, [data, vector, *states, lengths], use_sequence_length=True, **attrs)
    for k, length in enumerate(lengths):
        alone = [data[:length, k : k + 1], vector, *(s[:, k : k + 1] for s in states)]
        want = run(engine, alone, **attrs)
        np.testing.assert_allclose(got[0][:length, k : k + 1], want[0], rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(got[0][length:, k], 0)
        for mine, theirs in zip(got[1:], want[1:]):
            np.testing.assert_allclose(mine[:, k : k + 1], theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("open_batch", [False, True])
@pytest.mark.parametrize("mode", ["gru", "lstm"])
def test_a_begin_state_of_batch_1_serves_every_sample(engine: str, mode: str, open_batch: bool) -> None:
    data, vector, *states = inputs(mode, 2, 2, batch=1)
    attrs = {"mode": mode, "bidirectional": True, "num_layers": 2}
    many = [np.repeat(s, N, axis=1) for s in states]
    want = run(engine, [data, vector, *many], **attrs)
    dims = [["T", "N", F] if open_batch else [T, N, F], list(vector.shape), *(list(s.shape) for s in states)]
    got = run(engine, [data, vector, *states], dims, **attrs)
    for mine, theirs in zip(got, want):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_open_features_follow_from_the_parameters(engine: str) -> None:
    arrays = inputs("lstm")
    want = run(engine, arrays, mode="lstm")
    dims = [["T", "N", "I"], list(arrays[1].shape), [1, "N", H], [1, "N", H]]
    for mine, theirs in zip(run(engine, arrays, dims, mode="lstm"), want):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_gluon_layer_with_begin_states_of_unknown_batch(engine: str) -> None:
    """The graph that a Gluon LSTM exports: weights flattened and concatenated, zero states made in the graph."""
    shapes = {"w_i": (4 * H, F), "w_h": (4 * H, H), "b_i": (4 * H,), "b_h": (4 * H,)}
    rng = np.random.default_rng(5)
    params = {n: rng.normal(0, 0.5, s).astype(np.float32) for n, s in shapes.items()}
    flat = [compose(registry.get("Reshape"), [variable(n)], {"shape": "(-1,)"}, name=f"{n}_flat") for n in shapes]
    vector = compose(registry.get("_rnn_param_concat"), flat, {"dim": "0", "num_args": "4"}, name="vector")
    begin = [
        compose(registry.get("_zeros"), [], {"shape": f"(1, 0, {H})"}, name=n) for n in ("begin_state", "begin_cell")
    ]
    layer = compose(
        registry.get("RNN"),
        [variable("data"), vector, *begin],
        {"mode": "lstm", "state_size": str(H), "num_layers": "1"},
        name="lstm",
    )
    model = to_onnx(layer, params, {"data": (None, None, F)}).model
    session = engines.get(engine).load(model, EngineOptions(threads=1), None)
    data = rng.normal(size=(T, N, F)).astype(np.float32)
    (got,) = session.run({"data": data})
    zeros = np.zeros((1, N, H), np.float32)
    packed = np.concatenate([p.ravel() for p in params.values()])
    want = run(engine, [data, packed, zeros, zeros], mode="lstm")[0]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_constant_zero_states_are_left_out(engine: str) -> None:
    data, vector, *_ = inputs("gru")
    op = registry.get("RNN")
    symbol = compose(
        op,
        [variable("data"), variable("parameters"), variable("state")],
        {"mode": "gru", "state_size": str(H), "num_layers": "1"},
        name="gru",
    )
    zeros = np.zeros((1, 1, H), np.float32)
    model = to_onnx(symbol, {"parameters": vector, "state": zeros}, {"data": (T, None, F)}).model
    (node,) = [n for n in model.graph if n.op_type == "GRU"]
    assert len([v for v in node.inputs if v is not None]) == 4  # data, weights, recurrent weights, bias
    session = engines.get(engine).load(model, EngineOptions(threads=1), None)
    want = run(engine, [data, vector, np.zeros((1, N, H), np.float32)], mode="gru")[0]
    np.testing.assert_allclose(session.run({"data": data})[0], want, rtol=1e-5, atol=1e-6)


def test_refusals() -> None:
    data, vector, *states = inputs("lstm")
    with pytest.raises(UnsupportedError, match="clipping of LSTM cells"):
        run("onnxruntime", [data, vector, *states], mode="lstm", lstm_state_clip_min=-1, lstm_state_clip_max=1)
    with pytest.raises(ShapeError, match="length of an RNN's parameters"):
        run("onnxruntime", [data, vector[:-1], *states], mode="lstm")
    with pytest.raises(AttributeValueError, match="only an LSTM has a projection"):
        run("onnxruntime", [data, vector, states[0]], mode="gru", projection_size=1)
    with pytest.raises(AttributeValueError, match="must be positive"):
        run("onnxruntime", [data, vector, states[0]], mode="gru", state_size=0)
    with pytest.raises(ShapeError, match=r"\(time, batch, features\)"):
        run("onnxruntime", [data[0], vector, states[0]], mode="gru")
    with pytest.raises(NeedsShape, match="number of input features"):
        run("onnxruntime", [data, vector, states[0]], [["T", "N", "I"], ["P"], [1, "N", H]], mode="gru")
