"""The fused RNN operator and _rnn_param_concat."""

from case import Case, In

GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}


def rnn(mode, steps, batch, features, size, layers=1, bidirectional=False, dtype="float32", **attrs):
    ways = 2 if bidirectional else 1
    hidden = attrs.get("projection_size", size)
    rows, count = GATES[mode] * size, 0
    for layer in range(layers):
        inner = features if layer == 0 else ways * hidden
        count += ways * (rows * (inner + hidden) + 2 * rows + (hidden * size if hidden != size else 0))
    inputs = [
        In(steps, batch, features, dtype=dtype),
        In(count, scale=0.4, dtype=dtype),
        In(layers * ways, batch, hidden, dtype=dtype),
    ]
    if mode == "lstm":
        inputs.append(In(layers * ways, batch, size, dtype=dtype))
    full = dict(attrs, mode=mode, state_size=size, num_layers=layers)
    if bidirectional:
        full["bidirectional"] = True
    return Case("RNN", inputs, full)


CASES = []
for mode in ("rnn_relu", "rnn_tanh", "lstm", "gru"):
    CASES += [
        rnn(mode, 5, 2, 4, 3),
        rnn(mode, 4, 2, 3, 5, state_outputs=True),
        rnn(mode, 4, 1, 3, 2, layers=3, state_outputs=True),
        rnn(mode, 5, 2, 4, 3, bidirectional=True),
        rnn(mode, 3, 3, 2, 4, layers=2, bidirectional=True, state_outputs=True, p=0.5),
        rnn(mode, 1, 2, 3, 3, state_outputs=True),
    ]
CASES += [
    rnn("lstm", 4, 2, 3, 5, projection_size=2, state_outputs=True),
    rnn("lstm", 4, 2, 3, 4, layers=2, bidirectional=True, projection_size=3, state_outputs=True),
    rnn("lstm", 4, 2, 3, 4, bidirectional=True, projection_size=2, state_outputs=True),
    rnn("lstm", 3, 2, 3, 4, state_outputs=True, dtype="float64"),
    rnn("gru", 3, 2, 3, 4, state_outputs=True, dtype="float64"),
    Case("_rnn_param_concat", [In(3), In(5), In(2)], {"dim": 0, "num_args": 3}),
    Case("_rnn_param_concat", [In(4)], {"dim": 0, "num_args": 1}),
]
