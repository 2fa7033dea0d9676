"""What goldens cannot show of network layers: what MXNet 1.9.1 cannot run, parameter shapes, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from requant import eager, engines
from requant.engines.base import EngineOptions
from requant.errors import AttributeValueError, DTypeError, RequantError, ShapeError, UnsupportedError
from requant.ops import registry
from requant.ops.emit import NeedsShape
from requant.ops.registry import Shape
from requant.symbol.infer import infer_shape
from requant.symbol.tree import compose, variable

ENGINES = ("onnxruntime", "openvino")


def run(engine: str, name: str, *arrays: np.ndarray, **attrs: object) -> list[np.ndarray]:
    """One operator on one engine: open sizes on ONNX Runtime, fixed ones on OpenVINO."""
    op = registry.get(name)
    parsed = op.parse({k: str(v) for k, v in attrs.items()})
    if engine == "onnxruntime":
        return eager.invoke(op, parsed, arrays)
    model, used = eager.lower_one(op, parsed, [(a.dtype, list(a.shape)) for a in arrays])
    session = engines.get(engine).load(model, EngineOptions(threads=1), None)
    return session.run({f"in{i}": arrays[i] for i in used})


def random(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def to_last(x: np.ndarray) -> np.ndarray:
    return np.moveaxis(x, 1, -1)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("name", ["Convolution", "Deconvolution"])
def test_channels_last_is_channels_first_transposed(engine: str, name: str, n: int) -> None:
    kernel, layout = (3, 2, 2)[:n], ("NWC", "NHWC", "NDHWC")[n - 1]
    data, bias = random(2, 4, *(6, 5, 4)[:n]), random(6, seed=2)
    weight = random(*((6, 2) if name == "Convolution" else (4, 3)), *kernel, seed=1)
    attrs = {"kernel": kernel, "num_filter": 6, "num_group": 2, "stride": (2,) * n, "pad": (1,) * n, "no_bias": False}
    (first,) = run(engine, name, data, weight, bias, **attrs)
    (last,) = run(engine, name, to_last(data), to_last(weight), bias, layout=layout, **attrs)
    np.testing.assert_allclose(last, to_last(first), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("name", "weight", "attrs"),
    [
        ("Convolution", (4, 3, 3, 3), {"kernel": (3, 3), "num_filter": 4}),
        ("Deconvolution", (3, 4, 3, 3), {"kernel": (3, 3), "num_filter": 4, "no_bias": False}),
        ("FullyConnected", (4, 75), {"num_hidden": 4}),
    ],
)
def test_half_precision(engine: str, name: str, weight: tuple[int, ...], attrs: dict[str, object]) -> None:
    arrays = [random(2, 3, 5, 5), 0.1 * random(*weight, seed=1), random(4, seed=2)]
    (exact,) = run("onnxruntime", name, *arrays, **attrs)
    (half,) = run(engine, name, *(a.astype(np.float16) for a in arrays), **attrs)
    assert half.dtype == np.float16
    np.testing.assert_allclose(half.astype(np.float32), exact, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("size", "kernel", "stride"), [(9, 3, 2), (10, 3, 2), (7, 2, 3), (5, 4, 1)])
def test_pooling_convention_same(engine: str, size: int, kernel: int, stride: int) -> None:
    # MXNet 1.9.1 refuses every use of this convention; its shape rule and kernel say what was meant.
    x = random(2, 3, size) - 5
    starts = np.arange(math.ceil(size / stride)) * stride
    want = np.stack([x[:, :, s : s + kernel].max(-1) for s in starts], -1)
    (got,) = run(engine, "Pooling", x, kernel=(kernel,), stride=(stride,), pooling_convention="same")
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("engine", ENGINES)
def test_group_norm_with_a_gamma_per_channel(engine: str) -> None:
    # MXNet 2.0 has one gamma and beta per channel, where 1.x has one per group.
    x, gamma, beta = random(2, 6, 3, 4), random(6, seed=1), random(6, seed=2)
    grouped = x.reshape(2, 3, -1)
    normal = (grouped - grouped.mean(-1, keepdims=True)) / np.sqrt(grouped.var(-1, keepdims=True) + 1e-5)
    want = normal.reshape(x.shape) * gamma[:, None, None] + beta[:, None, None]
    op = registry.get("GroupNorm")
    model, used = eager.lower_one(
        op, op.parse({"num_groups": 3}), [(x.dtype, ["N", 6, "H", "W"]), (x.dtype, [6]), (x.dtype, [6])]
    )
    session = engines.get(engine).load(model, EngineOptions(threads=1), None)
    (got,) = session.run(dict(zip((f"in{i}" for i in used), (x, gamma, beta))))
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_sync_batch_norm_tells_its_statistics(engine: str) -> None:
    # MXNet 1.9.1 leaves both outputs unwritten at inference; they are BatchNorm's.
    arrays = [random(2, 3, 4), random(3, seed=1), random(3, seed=2), random(3, seed=3), np.abs(random(3, seed=4)) + 0.1]
    got = run(engine, "_contrib_SyncBatchNorm", *arrays, key="a", output_mean_var=True, fix_gamma=False)
    want = run(engine, "BatchNorm", *arrays, output_mean_var=True, fix_gamma=False)
    assert len(got) == len(want) == 3
    for mine, theirs in zip(got, want):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_allclose(got[2], 1 / np.sqrt(arrays[4] + 1e-3), rtol=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_activations_of_mxnet_2(engine: str) -> None:
    x = np.array([-30, -2, -0.5, 0, 0.5, 2, 30], np.float32)
    softplus = np.logaddexp(0, x.astype(np.float64))
    gelu = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x.astype(np.float64) ** 3)))
    erf = np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x.tolist()])
    for want, name, attrs in [
        (-np.logaddexp(0, -x.astype(np.float64)), "log_sigmoid", {}),
        (-np.logaddexp(0, -x.astype(np.float64)), "Activation", {"act_type": "log_sigmoid"}),
        (x * np.tanh(softplus), "mish", {}),
        (x * np.tanh(softplus), "Activation", {"act_type": "mish"}),
        (gelu, "LeakyReLU", {"act_type": "gelu_tanh"}),
        (erf, "LeakyReLU", {"act_type": "gelu_erf"}),
    ]:
        (got,) = run(engine, name, x, **attrs)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=f"{name} {attrs}")


def test_rrelu_tells_its_slope() -> None:
    out, mask = run("onnxruntime", "LeakyReLU", random(2, 3), act_type="rrelu", lower_bound=0.1, upper_bound=0.3)
    assert out.shape == mask.shape == (2, 3)
    np.testing.assert_allclose(mask, 0.2, rtol=1e-6)


#: Operator, attributes, shape of its first input, shapes of the others as MXNet 1.9.1 infers them.
PARAMETERS: list[tuple[str, dict[str, str], Shape, dict[str, Shape]]] = [
    (
        "Convolution",
        {"kernel": "(3, 2)", "num_filter": "8", "num_group": "2"},
        (2, 4, 5, 5),
        {"weight": (8, 2, 3, 2), "bias": (8,)},
    ),
    ("Convolution", {"kernel": "(3,)", "num_filter": "8", "no_bias": "True"}, (2, 4, 5), {"weight": (8, 4, 3)}),
    (
        "Deconvolution",
        {"kernel": "(3, 2)", "num_filter": "8", "num_group": "2", "no_bias": "False"},
        (2, 4, 5, 5),
        {"weight": (4, 4, 3, 2), "bias": (8,)},
    ),
    ("FullyConnected", {"num_hidden": "3"}, (2, 4, 5), {"weight": (3, 20), "bias": (3,)}),
    ("FullyConnected", {"num_hidden": "3", "flatten": "False"}, (2, 4, 5), {"weight": (3, 5), "bias": (3,)}),
    (
        "BatchNorm",
        {"axis": "2"},
        (2, 4, 5),
        {"gamma": (5,), "beta": (5,), "moving_mean": (5,), "moving_var": (5,)},
    ),
    ("LayerNorm", {"axis": "-2"}, (2, 4, 5), {"gamma": (4,), "beta": (4,)}),
    ("InstanceNorm", {}, (2, 4, 5), {"gamma": (4,), "beta": (4,)}),
    ("GroupNorm", {"num_groups": "2"}, (2, 4, 5), {"gamma": (2,), "beta": (2,)}),
    ("LeakyReLU", {"act_type": "prelu"}, (2, 4, 5), {"gamma": (4,)}),
    ("softmax", {"use_length": "True", "axis": "1"}, (2, 4, 5), {"length": (2, 5)}),
    ("SoftmaxOutput", {}, (2, 4, 5), {"label": (2, 4)}),
    ("SoftmaxOutput", {"multi_output": "True"}, (2, 4, 5, 6), {"label": (2, 30)}),
    ("LinearRegressionOutput", {}, (2, 1), {"label": (2,)}),
    ("SVMOutput", {}, (2, 4), {"label": (2,)}),
    ("IdentityAttachKLSparseReg", {}, (2, 4), {"moving_avg": (4,)}),
    (
        "UpSampling",
        {"scale": "3", "sample_type": "bilinear", "num_filter": "4", "num_args": "2"},
        (2, 4, 5, 5),
        {"weight": (4, 1, 5, 5)},
    ),
    (
        "RNN",
        {
            "state_size": "3",
            "num_layers": "2",
            "mode": "lstm",
            "bidirectional": "True",
            "use_sequence_length": "True",
        },
        (5, 2, 4),
        {"parameters": (480,), "state": (4, 2, 3), "state_cell": (4, 2, 3), "sequence_length": (2,)},
    ),
    (
        "RNN",
        {"state_size": "3", "num_layers": "1", "mode": "gru"},
        (5, 2, 4),
        {"parameters": (81,), "state": (1, 2, 3)},
    ),
    (
        "RNN",
        {"state_size": "4", "num_layers": "2", "mode": "lstm", "projection_size": "3"},
        (5, 2, 4),
        {"parameters": (296,), "state": (2, 2, 3), "state_cell": (2, 2, 4)},
    ),
]


@pytest.mark.parametrize(
    ("name", "attrs", "shape", "want"), PARAMETERS, ids=[f"{p[0]}-{i}" for i, p in enumerate(PARAMETERS)]
)
def test_parameter_shapes(name: str, attrs: dict[str, str], shape: Shape, want: dict[str, Shape]) -> None:
    symbol = compose(registry.get(name), [variable("data")], attrs, name="op")
    args, _, aux = infer_shape(symbol, {"data": shape})
    found = dict(zip([*symbol.list_arguments(), *symbol.list_auxiliary_states()], [*args, *aux]))
    assert {k[3:]: v for k, v in found.items() if k != "data"} == want


def test_channels_follow_from_a_convolution_s_weight() -> None:
    op = registry.get("Convolution")
    attrs = op.parse({"kernel": (3, 3), "num_filter": 8, "num_group": 2})
    assert op.param_shapes is not None
    shapes = {"data": None, "weight": (8, 2, 3, 3), "bias": None, "output": None}
    assert op.param_shapes(attrs, shapes)["data"] == (0, 4, 0, 0)


@pytest.mark.parametrize(
    ("error", "text", "name", "shapes", "attrs"),
    [
        (
            ShapeError,
            "rank 3",
            "Convolution",
            [(1, 2, 5), (3, 2, 3, 3)],
            {"kernel": (3, 3), "num_filter": 3, "no_bias": True},
        ),
        (
            ShapeError,
            "4, weight's dimension 1",
            "Convolution",
            [(1, 2, 5), (3, 4, 3)],
            {"kernel": (3,), "num_filter": 3, "no_bias": True},
        ),
        (
            AttributeValueError,
            "stride must have one number",
            "Convolution",
            [(1, 2, 5), (3, 2, 3)],
            {"kernel": (3,), "num_filter": 3, "stride": (1, 1), "no_bias": True},
        ),
        (
            ShapeError,
            "at most 9",
            "Deconvolution",
            [(1, 2, 4), (2, 3, 3)],
            {"kernel": (3,), "num_filter": 3, "stride": (2,), "target_shape": (12,)},
        ),
        (ShapeError, "kernel is larger", "Pooling", [(1, 2, 4, 4)], {"kernel": (5, 5)}),
        (AttributeValueError, "2 numbers", "Pooling", [(1, 2, 4, 4)], {"kernel": (2,)}),
        (AttributeValueError, "1, 2 or 3", "Pooling", [(1, 2, 4)], {"kernel": (2,), "pool_type": "lp"}),
        (
            AttributeValueError,
            "no pad",
            "Pooling",
            [(1, 2, 4)],
            {"kernel": (2,), "pad": (1,), "pooling_convention": "same"},
        ),
        (AttributeValueError, "positive", "Pooling", [(1, 2, 4)], {"kernel": (2,), "stride": (0,)}),
        (ShapeError, "rank 3 to 5", "Pooling", [(1, 2)], {"global_pool": True}),
        (ShapeError, "spatial dimensions", "InstanceNorm", [(2, 3), (3,), (3,)], {}),
        (ShapeError, "3 dimensions", "L2Normalization", [(2, 3)], {"mode": "channel"}),
        (ShapeError, "axis out of range", "LayerNorm", [(2, 3), (3,), (3,)], {"axis": 2}),
        (ShapeError, "(N, C, H, W)", "_contrib_AdaptiveAvgPooling2D", [(2, 3, 4)], {}),
        (AttributeValueError, "output_size", "_contrib_AdaptiveAvgPooling2D", [(1, 1, 4, 4)], {"output_size": (0, 2)}),
        (AttributeValueError, "go together", "_contrib_BilinearResize2D", [(1, 1, 4, 4)], {"scale_height": 2}),
        (ShapeError, "empty", "_contrib_BilinearResize2D", [(1, 1, 4, 4)], {"scale_height": 0.1, "scale_width": 1}),
        (
            ShapeError,
            "divisor",
            "UpSampling",
            [(1, 1, 2, 2), (1, 1, 3, 3)],
            {"scale": 2, "sample_type": "nearest", "num_args": 2},
        ),
        (
            AttributeValueError,
            "channel count",
            "UpSampling",
            [(1, 2, 2, 2), (2, 1, 4, 4)],
            {"scale": 2, "sample_type": "bilinear", "num_args": 2},
        ),
        (AttributeValueError, "8 numbers", "Pad", [(1, 1, 2, 2)], {"mode": "edge", "pad_width": (0, 0, 1, 1)}),
        (AttributeValueError, "none negative", "Pad", [(1, 1)], {"mode": "edge", "pad_width": (0, 0, -1, 1)}),
        (ShapeError, "reflection", "Pad", [(1, 1, 2, 2)], {"mode": "reflect", "pad_width": (0, 0, 0, 0, 2, 0, 0, 0)}),
        (ShapeError, "within the image", "Crop", [(1, 1, 4, 4)], {"h_w": (3, 3), "offset": (2, 0), "num_args": 1}),
        (ShapeError, "within the image", "Crop", [(1, 1, 4, 4)], {"num_args": 1}),
        (ShapeError, "vector", "LeakyReLU", [(1, 2, 3), (1, 2)], {"act_type": "prelu"}),
        (UnsupportedError, "random at inference", "Dropout", [(1, 2)], {"mode": "always"}),
        (ShapeError, "multiple of 6", "_contrib_interleaved_matmul_selfatt_qk", [(2, 2, 8)], {"heads": 2}),
        (AttributeValueError, "positive", "_contrib_interleaved_matmul_selfatt_qk", [(2, 2, 6)], {"heads": 0}),
        (AttributeValueError, "height, width", "GridGenerator", [(2, 6)], {"transform_type": "affine"}),
        (NeedsShape, "dimension 0", "CTCLoss", [("T", 2, 4), (2, 3)], {}),
    ],
)
def test_refusals(
    error: type[RequantError], text: str, name: str, shapes: list[tuple[int | str, ...]], attrs: dict[str, object]
) -> None:
    op = registry.get(name)
    parsed = op.parse({k: str(v) for k, v in attrs.items()})
    with pytest.raises(error) as caught:
        eager.lower_one(op, parsed, [(np.dtype(np.float32), list(s)) for s in shapes])
    assert text in str(caught.value)


def test_softmax_of_integers_is_refused() -> None:
    with pytest.raises(DTypeError, match="cast the data to float32"):
        run("onnxruntime", "softmax", np.arange(3, dtype=np.int32))
