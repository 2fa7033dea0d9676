"""INT8 LSTM against the intended arithmetic in numpy (MXNet 1.9.1's own always fails)."""

from __future__ import annotations

import numpy as np
import pytest

from requant import eager, engines
from requant.engines.base import EngineOptions
from requant.errors import ShapeError, UnsupportedError
from requant.ops import registry

F = np.float32
OP = registry.get("_contrib_quantized_rnn")


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def lstm(q, vector, h0, c0, scale, shift, size, layers, directions):  # type: ignore[no-untyped-def]
    """Output, last states, last cells; integers summed exactly."""
    features, at, rows = q.shape[2], 0, 4 * size
    weights = []
    for layer in range(layers):
        for _ in range(directions):
            pair = []
            for columns in (features if layer == 0 else size * directions, size):
                pair.append(vector[at : at + rows * columns].reshape(rows, columns))
                at += rows * columns
            weights.append(pair)
    biases = vector[at:].reshape(layers * directions, 2, rows).sum(1)
    ws = 127 / np.max([np.abs(m).max(1) for pair in weights for m in pair], 0)
    x, hs, cs = q.astype(np.int64), [], []
    for layer in range(layers):
        outs = []
        for d in range(directions):
            k = layer * directions + d
            ints = [np.rint(m * ws[:, None]).astype(np.int64) for m in weights[k]]
            h, c, made = h0[k], c0[k], {}
            for t in range(len(x)) if d == 0 else reversed(range(len(x))):
                qh = np.clip(np.rint(h * scale + shift), 0, 255).astype(np.int64)
                sums = x[t] @ ints[0].T + qh @ ints[1].T
                gates = (sums - shift * (ints[0].sum(1) + ints[1].sum(1))) / (scale * ws) + biases[k]
                i, f, new, o = np.split(gates, 4, 1)
                c = sigmoid(f) * c + sigmoid(i) * np.tanh(new)
                h = made[t] = sigmoid(o) * np.tanh(c)
            outs.append(np.stack([made[t] for t in range(len(x))]))
            hs.append(h)
            cs.append(c)
        out = np.concatenate(outs, 2)
        x = np.clip(np.rint(out * scale + shift), 0, 255).astype(np.int64)
    return out, np.stack(hs), np.stack(cs)


def inputs(layers: int, directions: int, steps: int = 4, batch: int = 3, features: int = 5, size: int = 6):  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(layers + directions)
    attrs = {"state_size": size, "num_layers": layers, "mode": "lstm", "bidirectional": directions == 2}
    parsed = OP.parse({**{k: str(v) for k, v in attrs.items()}, "state_outputs": "True"})
    vector = rng.normal(0, 0.4, parsed.parameter_count(features)).astype(F)  # type: ignore[attr-defined]
    x = rng.uniform(-1, 1, (steps, batch, features)).astype(F)
    q, scale, shift = eager.invoke(registry.get("_contrib_quantize_asym"), {}, [x])
    h, c = (rng.uniform(-0.5, 0.5, (layers * directions, batch, size)).astype(F) for _ in range(2))
    return parsed, [q, vector, h, c, scale, shift], x


@pytest.mark.parametrize(("layers", "directions"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_lstm(layers: int, directions: int) -> None:
    parsed, arrays, x = inputs(layers, directions)
    wanted = lstm(*arrays, 6, layers, directions)
    for mine, theirs in zip(eager.invoke(OP, parsed, arrays), wanted):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)
    model, used = eager.lower_one(OP, parsed, [(a.dtype, list(a.shape)) for a in arrays])
    session = engines.get("openvino").load(model, EngineOptions(threads=1))
    for mine, theirs in zip(session.run({f"in{i}": arrays[i] for i in used}), wanted):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-2)
    # and it is close to the float layer
    plain = registry.get("RNN")
    floats = eager.invoke(plain, parsed, [x, *arrays[1:4]])
    assert np.abs(floats[0] - wanted[0]).max() < 0.05


def test_refusals() -> None:
    parsed, arrays, _ = inputs(1, 1)
    gru = OP.parse({"state_size": "6", "num_layers": "1", "mode": "gru"})
    with pytest.raises(UnsupportedError, match="plain LSTM"):
        eager.invoke(OP, gru, arrays)
    with pytest.raises(ShapeError, match="parameters"):
        eager.invoke(OP, parsed, [arrays[0], arrays[1][:-1], *arrays[2:]])
