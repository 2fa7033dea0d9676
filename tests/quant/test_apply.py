"""QDQ models: what is stored, what is computed, and the numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_graphs import Build, ranges, run, types

from requant import qmath
from requant.errors import CalibrationError, QuantizationError
from requant.quant.apply import apply, group_params
from requant.quant.bias import mean_axes
from requant.quant.plan import Plan
from requant.quant.planner import plan
from requant.scheme import ONNXRUNTIME, OPENVINO, TENSORRT, Scheme

ASYMMETRIC = dataclasses.replace(OPENVINO, signed="uint8_asymmetric")
SCHEMES = [OPENVINO, ASYMMETRIC, ONNXRUNTIME, TENSORRT]


def feeds_of(model: ir.Model, seed: int = 0, batch: int = 4) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {str(v.name): [d if isinstance(d, int) else batch for d in v.shape or ()] for v in model.graph.inputs}
    return {n: rng.normal(size=s).astype(np.float32) for n, s in shapes.items()}


def quantized(
    model: ir.Model, scheme: Scheme = OPENVINO, mode: str = "best", feeds: Mapping[str, np.ndarray] | None = None
) -> tuple[ir.Model, Plan, dict[str, np.ndarray]]:
    feeds = dict(feeds or feeds_of(model))
    made = plan(model, mode, scheme)  # type: ignore[arg-type]
    return apply(model, made, ranges(model, made, feeds)), made, feeds


def quality(model: ir.Model, int8: ir.Model, feeds: Mapping[str, np.ndarray]) -> float:
    """The worst SQNR of the outputs."""
    names = [str(o.name) for o in model.graph.outputs]
    a, b = run(model, feeds), run(int8, feeds)
    return min(qmath.sqnr(a[n], b[n]) for n in names)


def initializers(model: ir.Model, dtype: type) -> dict[str, np.ndarray]:
    found = {n: v.const_value.numpy() for n, v in model.graph.initializers.items() if v.const_value is not None}
    return {n: a for n, a in found.items() if a.dtype == dtype}


def conv_net() -> ir.Model:
    b = Build()
    b.conv("c0", "x", 3, 8)
    b.op("Relu", "r0", "c0")
    b.op("MaxPool", "p0", "r0", kernel_shape=[2, 2], strides=[2, 2])
    b.conv("dw", "p0", 8, 8, group=8)
    b.op("Clip", "r1", "dw", "zero", "six")
    b.weights["zero"], b.weights["six"] = np.float32(0), np.float32(6)  # type: ignore[assignment]
    b.conv("c2", "r1", 8, 8, k=1)
    b.op("Add", "s", "c2", "p0")
    b.op("GlobalAveragePool", "gap", "s")
    b.op("Flatten", "f", "gap")
    b.op("Gemm", "y", "f", b.weight("fc.w", 5, 8), b.weight("fc.b", 5), transB=1)
    return b.model({"x": ("N", 3, 8, 8)}, {"y": ("N", 5)})


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: f"{s.name}-{s.signed}")
def test_a_network_keeps_its_outputs(scheme: Scheme) -> None:
    model = conv_net()
    int8, _, feeds = quantized(model, scheme)
    assert quality(model, int8, feeds) > 25
    onnx.checker.check_model(ir.to_proto(int8), full_check=True)


def test_weights_are_stored_as_int8_and_biases_as_int32() -> None:
    model = conv_net()
    int8, _, _ = quantized(model)
    assert set(initializers(int8, np.int8)) >= {"c0.w_int8", "dw.w_int8", "c2.w_int8", "fc.w_int8"}
    biases = {n for n in initializers(int8, np.int32) if n.endswith("_int32")}
    assert biases == {"c0.b_int32", "dw.b_int32", "c2.b_int32", "fc.b_int32"}
    assert not {n for n in initializers(int8, np.float32) if n.endswith((".w", ".b"))}
    weight = initializers(int8, np.int8)["c0.w_int8"]
    assert weight.min() >= -127
    assert (np.abs(weight).max(axis=(1, 2, 3)) == 127).all()  # a scale a channel


def test_the_given_model_is_left_alone() -> None:
    model = conv_net()
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    quantized(model)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


def test_quantizers_absorb_activations_that_they_imply() -> None:
    model = conv_net()
    int8, _, feeds = quantized(model)
    # what saturation to uint8 does needs no relu, and no clip at 6 where the range ends at 6 or before
    assert types(int8) == ["Conv", "MaxPool", "Conv", "Conv", "Add", "GlobalAveragePool", "Flatten", "Gemm"]
    kept, _, _ = quantized(model, dataclasses.replace(OPENVINO, absorbs=False))
    assert "Relu" in types(kept)
    np.testing.assert_array_equal(run(int8, feeds)["y"], run(kept, feeds)["y"])
    made = plan(model, "best", OPENVINO)
    found = ranges(model, made, feeds)
    assert "Clip" not in types(apply(model, made, {**found, "r1": qmath.Range(0, 6)}))
    assert "Clip" in types(apply(model, made, {**found, "r1": qmath.Range(0, 9)}))


def test_a_signed_range_keeps_the_relu() -> None:
    """Behind an asymmetric quantizer a relu that cuts inside the range must stay."""
    b = Build()
    b.conv("c0", "x", 3, 4)
    b.op("Relu", "r0", "c0")
    b.conv("c1", "r0", 4, 4)
    model = b.model({"x": ("N", 3, 4, 4)}, {"c1": ("N", 4, 4, 4)})
    made = plan(model, "best", ASYMMETRIC)
    int8 = apply(model, made, {"x": (-3, 3), "r0": (-1, 3)})
    assert "Relu" in types(int8)


def test_through_nodes_keep_one_scale() -> None:
    int8, made, feeds = quantized(conv_net())
    params = group_params(made, ranges(conv_net(), made, feeds))
    assert params["r0"].same_as(params["p0"])
    scales = [n.inputs[1] for n in int8.graph if n.op_type == "QuantizeLinear" and str(n.name).startswith(("r0", "p0"))]
    assert len(scales) == 2 and scales[0] is scales[1]


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("scheme", [OPENVINO, ASYMMETRIC], ids=lambda s: s.signed)
def test_transposed_convolutions_scale_the_right_axis(groups: int, scheme: Scheme) -> None:
    b = Build()
    weight = b.weight("w", 4, 8 // groups, 3, 3)
    b.weights["w"] *= 10.0 ** np.arange(8 // groups)[None, :, None, None]  # channels of very different size
    b.op("ConvTranspose", "y", "x", weight, b.weight("b", 8), group=groups, strides=[2, 2])
    model = b.model({"x": ("N", 4, 5, 5)}, {"y": ("N", 8, 11, 11)})
    int8, _, feeds = quantized(model, scheme)
    a, c = run(model, feeds)["y"], run(int8, feeds)["y"]
    per_channel = [qmath.sqnr(a[:, i], c[:, i]) for i in range(8)]
    assert min(per_channel) > 30


@pytest.mark.parametrize("groups", [2, 3, 6])
def test_grouped_convolutions(groups: int) -> None:
    b = Build()
    b.conv("y", "x", 6, 12, group=groups)
    model = b.model({"x": ("N", 6, 6, 6)}, {"y": ("N", 12, 6, 6)})
    int8, _, feeds = quantized(model)
    assert quality(model, int8, feeds) > 35


@pytest.mark.parametrize("trans", [0, 1])
def test_gemm_and_matmul(trans: int) -> None:
    b = Build()
    shape = (5, 8) if trans else (8, 5)
    weight = b.weight("w", *shape)
    b.weights["w"] *= 10.0 ** np.arange(5)[:, None] if trans else 10.0 ** np.arange(5)[None, :]
    b.op("Gemm", "g", "x", weight, b.weight("b", 1, 5), transB=trans)
    b.op("MatMul", "y", "g", b.weight("v", 5, 3))
    model = b.model({"x": ("N", 8)}, {"y": ("N", 3), "g": ("N", 5)})
    int8, _, feeds = quantized(model)
    a, c = run(model, feeds)["g"], run(int8, feeds)["g"]
    assert min(qmath.sqnr(a[:, i], c[:, i]) for i in range(5)) > 30
    assert quality(model, int8, feeds) > 30


def test_a_two_dimensional_bias_that_varies_over_rows_stays_float() -> None:
    b = Build()
    b.op("Gemm", "y", "x", b.weight("w", 8, 5), b.weight("b", 4, 5))
    model = b.model({"x": (4, 8)}, {"y": (4, 5)})
    int8, _, feeds = quantized(model)
    assert "b" in initializers(int8, np.float32)
    assert quality(model, int8, feeds) > 35


def test_attention() -> None:
    b = Build()
    for name in "qkv":
        b.op("MatMul", name, "x", b.weight(f"w{name}", 16, 16, scale=0.25))
    b.op("Transpose", "kt", "k", perm=[0, 2, 1])
    b.op("MatMul", "scores", "q", "kt")
    b.op("Softmax", "p", "scores")
    b.op("MatMul", "y", "p", "v")
    model = b.model({"x": ("N", 6, 16)}, {"y": ("N", 6, 16)})
    int8, made, feeds = quantized(model)
    assert [d.chosen for d in made.decisions] == ["int8", "int8", "int8", "through", "int8", "float", "int8"]
    assert quality(model, int8, feeds) > 25


def test_concat_of_signed_and_unsigned_branches_shares_one_scale() -> None:
    b = Build()
    b.conv("a", "x", 3, 2)
    b.conv("b", "x", 3, 2)
    b.op("Relu", "r", "b")
    b.op("Concat", "c", "a", "r", axis=1)
    b.conv("y", "c", 4, 3)
    model = b.model({"x": ("N", 3, 8, 8)}, {"y": ("N", 3, 8, 8)})
    for scheme in SCHEMES:
        int8, made, feeds = quantized(model, scheme)
        params = group_params(made, ranges(model, made, feeds))
        assert params["a"].same_as(params["r"]) and params["a"].same_as(params["c"])
        assert quality(model, int8, feeds) > 25


def test_convolutions_that_feed_int8_and_float_readers() -> None:
    b = Build()
    b.conv("c0", "x", 3, 4)
    b.conv("c1", "c0", 4, 4)
    b.op("Sigmoid", "g", "c0")
    b.op("Mul", "y", "c1", "g")
    model = b.model({"x": ("N", 3, 8, 8)}, {"y": ("N", 4, 8, 8), "c0": ("N", 4, 8, 8)})
    int8, _, feeds = quantized(model)
    by_name = {str(n.name): n for n in int8.graph}
    # c0 is written as int8 once and read so by both; as a graph output it stays what the kernel computed
    assert by_name["g"].inputs[0] is by_name["c1"].inputs[0]
    assert by_name["c0"].outputs[0].is_graph_output()
    assert quality(model, int8, feeds) > 25


def test_a_float_stream_is_not_read_through_a_quantizer() -> None:
    b = Build()
    b.op("Sin", "s", "x")
    b.op("MatMul", "m", "s", b.weight("w", 8, 8))
    b.op("Add", "y", "m", "s")
    model = b.model({"x": ("N", 4, 8)}, {"y": ("N", 4, 8)})
    int8, made, _ = quantized(model)
    assert made.tensors[0].readers == ("m",)
    by_name = {str(n.name): n for n in int8.graph}
    assert by_name["y"].inputs[1] is by_name["s"].outputs[0]


def test_one_tensor_read_twice_by_one_node() -> None:
    b = Build()
    b.op("MatMul", "y", "x", "x")
    model = b.model({"x": (4, 4)}, {"y": (4, 4)})
    int8, _, feeds = quantized(model)
    assert sum(n.op_type == "QuantizeLinear" for n in int8.graph) == 1
    assert quality(model, int8, feeds) > 25


def test_shared_weights_are_stored_once() -> None:
    b = Build()
    weight = b.weight("w", 4, 4, 3, 3)
    for i, source in enumerate(("x", "c0")):
        b.op("Conv", f"c{i}", source, weight, pads=[1] * 4)
    model = b.model({"x": ("N", 4, 8, 8)}, {"c1": ("N", 4, 8, 8)})
    int8, _, feeds = quantized(model)
    assert len([a for a in initializers(int8, np.int8).values() if a.ndim == 4]) == 1
    assert quality(model, int8, feeds) > 30


def test_a_weight_that_a_float_node_reads_too_stays() -> None:
    b = Build()
    weight = b.weight("w", 4, 4, 1, 1)
    b.op("Conv", "c", "x", weight)
    b.op("Mul", "y", "c", weight)
    model = b.model({"x": (4, 4, 1, 1)}, {"y": (4, 4, 1, 1)})
    int8, _, feeds = quantized(model)
    assert "w" in initializers(int8, np.float32)
    assert quality(model, int8, feeds) > 30


def test_an_input_that_goes_straight_into_two_quantized_nodes() -> None:
    b = Build()
    b.conv("a", "x", 3, 2)
    b.conv("b", "x", 3, 2)
    model = b.model({"x": ("N", 3, 4, 4)}, {"a": ("N", 2, 4, 4), "b": ("N", 2, 4, 4)})
    int8, _, feeds = quantized(model)
    assert sum(n.op_type == "QuantizeLinear" for n in int8.graph) == 1
    assert [v.name for v in int8.graph.inputs] == ["x"]
    assert quality(model, int8, feeds) > 30


@pytest.mark.parametrize("bias", [1.0, 1e4, 1e9])
@pytest.mark.parametrize("weight", [0.0, 1e-30, 1e-12, 1.0])
def test_a_bias_cannot_overflow(bias: float, weight: float) -> None:
    """A dead channel with an ordinary bias, a huge bias: int32 holds it, and what comes out is the bias."""
    b = Build()
    b.conv("y", "x", 3, 4)
    b.weights["y.w"][0] *= weight
    b.weights["y.b"] = np.array([bias, -bias, 0, 1], np.float32)
    model = b.model({"x": ("N", 3, 4, 4)}, {"y": ("N", 4, 4, 4)})
    int8, _, feeds = quantized(model)
    stored = initializers(int8, np.int32)["y.b_int32"]
    assert np.abs(stored.astype(np.int64)).max() <= 2**30
    a, c = run(model, feeds)["y"], run(int8, feeds)["y"]
    for i in range(4):
        step = np.abs(a[:, i]).max() / 127  # of an int8 form of this channel
        assert np.abs(a[:, i] - c[:, i]).max() <= 2.1 * step, i


def test_weights_all_zero() -> None:
    b = Build()
    b.conv("y", "x", 3, 4)
    b.weights["y.w"][:] = 0
    model = b.model({"x": ("N", 3, 4, 4)}, {"y": ("N", 4, 4, 4)})
    int8, _, feeds = quantized(model)
    np.testing.assert_allclose(run(int8, feeds)["y"], run(model, feeds)["y"], rtol=1e-6)


def test_a_weight_with_nan_is_an_error_that_names_it() -> None:
    model = conv_net()
    weight = model.graph.initializers["c2.w"]
    assert weight.const_value is not None
    array = weight.const_value.numpy().copy()
    array[3, 0] = np.nan
    weight.const_value = ir.Tensor(array, name="c2.w")
    made = plan(model)
    with pytest.raises(QuantizationError, match=r"weight of c2 \(Conv\), channel 3"):
        apply(model, made, dict.fromkeys(made.observed, (-1, 1)))


def test_a_missing_range_is_an_error_that_names_the_tensor() -> None:
    model = conv_net()
    made = plan(model)
    with pytest.raises(CalibrationError, match="r0: no range"):
        apply(model, made, {t: (-1, 1) for t in made.observed if t != "r0"})
    with pytest.raises(CalibrationError, match="finite and ordered"):
        apply(model, made, dict.fromkeys(made.observed, (-1, np.inf)))


def test_an_addend_in_accumulators_needs_no_range_and_saturates_nothing() -> None:
    b = Build()
    b.conv("c0", "x", 3, 4)
    b.op("Relu", "r0", "c0")
    b.conv("c1", "r0", 4, 4)
    b.op("Add", "s", "r0", "c1")
    b.op("Relu", "r1", "s")
    b.conv("y", "r1", 4, 4)
    made = plan(b.model({"x": ("N", 3, 8, 8)}, {"y": ("N", 4, 8, 8)}), "best", OPENVINO)
    seen = {"x": (-4.0, 4.0), "r0": (0.0, 3.0), "r1": (0.0, 5.0)}
    assert set(seen) == set(made.observed)
    params = group_params(made, seen)
    low, high = (float(end) for end in qmath.represented(params["c1"]))
    assert low <= -3.0 + 1e-6  # the least that leaves r1 above 0 where r0 is 3
    assert high >= 5.0 - 0.05  # and the most: r1 is 5 where r0 is 0
    # A range that was observed is taken.
    assert group_params(made, {**seen, "c1": (-1.0, 1.0)})["c1"].scale < params["c1"].scale


def test_a_plan_of_another_model_is_refused() -> None:
    b = Build()
    b.conv("c9", "x", 3, 4)
    other = b.model({"x": ("N", 3, 8, 8)}, {"c9": ("N", 4, 8, 8)})
    made = plan(conv_net())
    with pytest.raises(QuantizationError, match="another model"):
        apply(other, made, dict.fromkeys(made.observed, (-1, 1)))


def test_finished_parameters_are_taken_as_they_are() -> None:
    model = conv_net()
    made = plan(model)
    params = qmath.QuantParams(np.float32(0.25), np.uint8(3), np.dtype(np.uint8))
    int8 = apply(model, made, {**dict.fromkeys(made.observed, (-1, 1)), "x": params})
    first = next(n for n in int8.graph if n.op_type == "QuantizeLinear" and n.inputs[0].name == "x")  # type: ignore[union-attr]
    assert first.inputs[1].const_value.numpy() == np.float32(0.25)  # type: ignore[union-attr]
    assert first.inputs[2].const_value.numpy() == 3  # type: ignore[union-attr]


def test_reduced_range_uses_seven_bits_of_weights() -> None:
    int8, _, _ = quantized(conv_net(), dataclasses.replace(OPENVINO, reduced=True))
    for name, array in initializers(int8, np.int8).items():
        if name.endswith("_int8"):
            assert np.abs(array.astype(int)).max() <= 63


def test_tensorrt_forms_are_symmetric_int8_with_float_biases() -> None:
    int8, _, feeds = quantized(conv_net(), TENSORRT)
    assert not initializers(int8, np.int32) and not initializers(int8, np.uint8)
    assert all(not np.any(a) for n, a in initializers(int8, np.int8).items() if "zero_point" in n)
    assert quality(conv_net(), int8, feeds) > 25


def test_names_of_absorbed_nodes_are_kept() -> None:
    from requant.passes.rewrite import names_of

    int8, _, _ = quantized(conv_net())
    assert names_of(next(n for n in int8.graph if n.name == "c0")) == ("c0", "r0")


def channel_means(model: ir.Model, made: Plan, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    axes = mean_axes(model, made)
    seen = run(model, feeds, tuple(axes))
    return {
        name: seen[name].mean(axis=tuple(i for i in range(seen[name].ndim) if i != axis % seen[name].ndim))
        for name, axis in axes.items()
    }


@pytest.mark.parametrize("kind", ["conv", "depthwise", "transposed", "gemm", "matmul"])
def test_bias_correction_takes_back_the_shift_of_the_mean(kind: str) -> None:
    b = Build()
    batch: tuple[object, ...] = ("N", 4, 9, 9)
    out: tuple[object, ...] = ("N", 6, 9, 9)
    if kind == "conv":
        b.conv("y", "x", 4, 6, k=1, bias=False)
    elif kind == "depthwise":
        b.op("Conv", "y", "x", b.weight("w", 4, 1, 3, 3), b.weight("b", 4), group=4)
        out = ("N", 4, 7, 7)
    elif kind == "transposed":
        b.op("ConvTranspose", "y", "x", b.weight("w", 4, 3, 2, 2), group=2, strides=[2, 2])
        out = ("N", 6, 18, 18)
    elif kind == "gemm":
        batch, out = ("N", 4), ("N", 6)
        b.op("Gemm", "y", "x", b.weight("w", 6, 4), transB=1)
    else:
        batch, out = ("N", 5, 4), ("N", 5, 6)
        b.op("MatMul", "m", "x", b.weight("w", 4, 6))
        b.op("Add", "y", "m", b.weight("b", 6))
    model = b.model({"x": batch}, {"y": out})
    feeds = {"x": np.abs(feeds_of(model, batch=64)["x"]) + 2}
    made = plan(model)
    weights = dataclasses.replace(made, tensors=())  # the shift is the weights' alone
    weights = dataclasses.replace(
        weights, decisions=tuple(dataclasses.replace(d, bias=None, inputs=()) for d in made.decisions)
    )
    exact = run(model, feeds)["y"]
    plain = run(apply(model, weights, {}), feeds)["y"] - exact
    corrected = run(apply(model, weights, {}, means=channel_means(model, made, feeds)), feeds)["y"] - exact
    axes = tuple(i for i in range(exact.ndim) if i != (2 if kind == "matmul" else 1))
    assert np.abs(corrected.mean(axis=axes)).max() < 0.02 * np.abs(plain.mean(axis=axes)).max()
    assert np.square(corrected).mean() < np.square(plain).mean()


def test_bias_correction_asks_for_tensors_that_are_observed_anyway() -> None:
    made = plan(conv_net())
    assert set(mean_axes(conv_net(), made)) <= {*made.observed, "p0"}


@given(
    st.integers(1, 3),
    st.lists(st.sampled_from(["conv", "relu", "add", "pool", "sigmoid", "concat", "max"]), min_size=1, max_size=8),
    st.sampled_from(SCHEMES),
    st.sampled_from(["full", "smart", "best"]),
)
@settings(max_examples=25, deadline=None)
def test_any_network_runs_quantized(seed: int, kinds: list[str], scheme: Scheme, mode: str) -> None:
    """Plan invariants: a quantized tensor has one pair, outputs keep their names, numbers stay close."""
    b = Build(seed)
    tensors = [b.conv("c", "x", 3, 4)]
    for i, kind in enumerate(kinds):
        last, name = tensors[-1], f"n{i}"
        other = tensors[(i * 7) % len(tensors)]
        if kind == "conv":
            b.conv(name, last, 4, 4)
        elif kind == "relu":
            b.op("Relu", name, last)
        elif kind == "add":
            b.op("Add", name, last, other)
        elif kind == "pool":
            b.op("AveragePool", name, last, kernel_shape=[3, 3], pads=[1] * 4)
        elif kind == "max":
            b.op("MaxPool", name, last, kernel_shape=[3, 3], pads=[1] * 4)
        elif kind == "sigmoid":
            b.op("Sigmoid", name, last)
        else:
            b.op("Concat", f"{name}.c", last, other, axis=1)
            b.conv(name, f"{name}.c", 8, 4, k=1)
        tensors.append(name)
    model = b.model({"x": ("N", 3, 6, 6)}, {tensors[-1]: ("N", 4, 6, 6)})
    int8, made, feeds = quantized(model, scheme, mode)
    pairs = [str(n.name).split("/")[0] for n in int8.graph if n.op_type == "QuantizeLinear"]
    assert len(pairs) == len(set(pairs)) and set(pairs) <= {t.name for t in made.tensors}
    assert set(made.observed) <= {t.name for t in made.tensors}
    assert all(d.why for d in made.decisions)
    assert quality(model, int8, feeds) > 10
