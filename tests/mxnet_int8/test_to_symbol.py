"""Plans written as MXNet int8 files, and read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from golden import compact, differences, ranges

import requant
import requant.mx as mx
from requant.cli import group
from requant.errors import FormatError
from requant.pipeline.quantization import QuantizedModel, quantize
from requant.qmath import Range
from requant.quant.plan import Decision, Plan
from requant.rewrite.to_symbol import to_symbol
from requant.scheme import Scheme
from requant.symbol.tree import Node

DIGITS = Path(__file__).parents[1] / "digits"


@pytest.fixture(scope="module")
def digits() -> dict[str, np.ndarray]:
    stored = np.load(DIGITS / "digits.npz")
    return {"images": stored["x"] / np.float32(16), "calibration": stored["calibration"] / np.float32(16)}


@pytest.fixture(scope="module")
def int8(digits: dict[str, np.ndarray]) -> QuantizedModel:
    return quantize(requant.load(str(DIGITS / "digits")), digits["calibration"], check=False)


def test_files_hold_the_plan_in_mxnets_words(
    int8: QuantizedModel, digits: dict[str, np.ndarray], tmp_path: Path
) -> None:
    files = int8.save(str(tmp_path / "net"))
    assert [Path(f).name for f in files] == ["net-symbol.json", "net-0000.params"]
    read = requant.load(str(tmp_path / "net"))
    assert read.symbol is not None
    layers = [n for n in read.symbol.nodes if n.op is not None and n.op.name.startswith("_sg_mkldnn_")]
    wanted = {n for d in int8.plan.decisions if d.chosen == "int8" and d.weight is not None for n in d.names}
    for layer in layers:
        seed = next(n for n in layer.subgraphs[0].nodes if n.op and n.op.name in ("Convolution", "FullyConnected"))
        assert ("quantized" in layer.attrs) == (seed.name in wanted), layer.name
    x = digits["images"][:200]
    floating = requant.load(str(DIGITS / "digits")).run(x)[0]
    theirs, ours = read.run(x)[0], int8.run(x)[0]
    assert float((theirs.argmax(1) == floating.argmax(1)).mean()) >= 0.98
    assert float((theirs.argmax(1) == ours.argmax(1)).mean()) >= 0.98


def test_parameters_keep_their_names_and_types(int8: QuantizedModel) -> None:
    made = int8.to_symbol()
    source = requant.load(str(DIGITS / "digits"))
    held = [n for n in made.params if n not in source.params]  # the biases that batch normalization became
    assert held and all(n.endswith("_bias") and n.removesuffix("bias") + "weight" in source.params for n in held)
    assert all(v.dtype == np.float32 for v in made.params.values())


def test_the_command_writes_mxnet_files(digits: dict[str, np.ndarray], tmp_path: Path) -> None:
    np.savez(tmp_path / "calib.npz", data=digits["calibration"][:64])
    result = CliRunner().invoke(
        group,
        ["quantize", str(DIGITS / "digits"), "--data", str(tmp_path / "calib.npz"), "-o", str(tmp_path / "q")],
    )
    assert result.exit_code == 0, result.output
    assert (tmp_path / "q-symbol.json").exists() and (tmp_path / "q-0000.params").exists()


def test_a_model_that_came_from_onnx_cannot_be_written_so(
    int8: QuantizedModel, digits: dict[str, np.ndarray], tmp_path: Path
) -> None:
    requant.load(str(DIGITS / "digits")).save(tmp_path / "float.onnx")
    made = quantize(requant.load(str(tmp_path / "float.onnx")), digits["calibration"][:32], check=False)
    with pytest.raises(FormatError, match="MXNet"):
        made.save(str(tmp_path / "net"))
    assert made.save(str(tmp_path / "net.onnx")) == [str(tmp_path / "net.onnx")]


def test_mxnet_computes_from_our_files_what_we_compute(digits: dict[str, np.ndarray]) -> None:
    # What MXNet 1.9.1 made of the files that stand beside it (record_digits_int8.py).
    prefix = Path(__file__).parent / "data" / "digits-int8"
    theirs = np.load(f"{prefix}-outputs.npz")["outputs"]
    ours = requant.load(str(prefix)).run(digits["images"])[0]
    exact = requant.load(str(DIGITS / "digits")).run(digits["images"])[0]
    labels = np.load(DIGITS / "digits.npz")["y"]
    scores = [float((out.argmax(1) == labels).mean()) for out in (theirs, ours, exact)]
    assert max(scores) - min(scores) <= 0.01
    noise = [np.linalg.norm(out - exact) / np.linalg.norm(exact) for out in (theirs, ours)]
    assert noise[0] < 0.1 and noise[1] < 0.1
    assert np.linalg.norm(ours - theirs) / np.linalg.norm(exact) < 0.01
    for engine in ("onnxruntime", "openvino"):
        same = requant.load(str(prefix), exact=True).run(digits["images"], engine=engine)[0]
        np.testing.assert_allclose(same, theirs, rtol=0, atol=1e-5 * np.abs(theirs).max())


def test_the_files_are_those_that_we_write_today(int8: QuantizedModel) -> None:
    written_then = requant.load(str(Path(__file__).parent / "data" / "digits-int8")).symbol
    assert written_then is not None
    now, then = compact(int8.to_symbol().symbol), compact(written_then)
    assert differences(now, then) == []
    for name, pair in ranges(now).items():
        np.testing.assert_allclose(pair, ranges(then)[name], rtol=1e-3, atol=1e-3)


# -- MXNet's bugs -----------------------------------------------------------------------------------------------------


def layer(mx_: Any, x: Any, name: str, act: bool = False, **more: Any) -> Any:
    x = mx_.sym.Convolution(x, kernel=(1, 1), num_filter=4, no_bias=True, name=name, **more)
    return mx_.sym.Activation(x, act_type="relu", name=f"{name}_relu") if act else x


def written(symbol: Any, float_nodes: tuple[str, ...] = ()) -> dict[str, Node]:
    """The int8 form of a symbol whose every tensor reaches from -1 (0 behind a ReLU) to 1, by node name."""
    names = [n.name for n in symbol.nodes if n.op is not None]
    decisions = tuple(Decision(n, "", "float" if n in float_nodes else "int8", "") for n in names)
    tensors = {o: n for n in symbol.nodes for o in n.output_names()}
    reach = {t: Range(0.0 if n.op is not None and n.op.name == "Activation" else -1.0, 1.0) for t, n in tensors.items()}
    params = {n: np.ones((4, 4, 1, 1), np.float32) for n in symbol.list_arguments() if n != "data"}
    made = to_symbol(symbol, params, Plan("full", Scheme("mxnet"), decisions, ()), reach, list(tensors))
    return {n.name: n for n in made.symbol.nodes}


def test_a_signed_operand_of_an_unsigned_sum_widens_the_range() -> None:
    # B1: MXNet keeps 127 of the 255 levels there.
    x = mx.sym.Variable("data")
    y = mx.sym.elemwise_add(layer(mx, x, "main"), layer(mx, x, "side"), name="s")
    found = written(mx.sym.Activation(y, act_type="relu", name="r"))
    high = float(found["quantized_sg_mkldnn_conv_add_act_0"].attrs["max_calib_range"])
    assert high == pytest.approx(255.5 / 127, abs=1e-6)


def test_an_unsigned_operand_of_a_signed_sum_is_not_fused() -> None:
    # B1: MXNet would read the bytes of a uint8 sum as int8.
    x = layer(mx, mx.sym.Variable("data"), "first", act=True)
    found = written(mx.sym.elemwise_add(layer(mx, x, "main"), x, name="s"))
    assert "quantized_s" in found and found["quantized_s"].attrs["max_calib_range"] == "1.000000"


def test_groups_other_than_depthwise_stay_float() -> None:
    x = layer(mx, mx.sym.Variable("data"), "a")
    x = layer(mx, layer(mx, x, "grouped", num_group=2), "depthwise", num_group=4)
    found = written(x)
    assert {"quantized_sg_mkldnn_conv_0", "sg_mkldnn_conv_1", "quantized_sg_mkldnn_conv_2"} <= set(found)


def test_what_the_plan_leaves_in_float_stays_float() -> None:
    x = layer(mx, mx.sym.Variable("data"), "a", act=True)
    found = written(layer(mx, layer(mx, x, "b"), "c"), float_nodes=("b",))
    assert {"quantized_sg_mkldnn_conv_act_0", "sg_mkldnn_conv_1", "quantized_sg_mkldnn_conv_2"} <= set(found)


def test_products_and_leaky_dense_layers_are_not_left_to_mxnet() -> None:
    x = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, no_bias=True, name="f")
    x = mx.sym.LeakyReLU(x, act_type="leaky", name="leaky")
    y = mx.sym.FullyConnected(x, num_hidden=4, no_bias=True, name="g")
    found = written(mx.sym.elemwise_mul(x, y, name="m"))
    assert {"leaky", "m", "quantized_sg_mkldnn_fully_connected_0"} <= set(found)


def test_padding_that_was_folded_has_the_range_of_what_it_pads() -> None:
    x = layer(mx, mx.sym.Variable("data"), "a")
    x = mx.sym.Pad(x, mode="constant", pad_width=(0, 0, 0, 0, 1, 1, 1, 1), name="p")
    symbol = layer(mx, x, "b")
    decisions = tuple(Decision(n, "", "int8", "") for n in ("a", "b"))
    reach = {t: Range(-1.0, 1.0) for t in ("data", "a_output", "b_output")}
    params = {n: np.ones((4, 4, 1, 1), np.float32) for n in ("a_weight", "b_weight")}
    made = to_symbol(symbol, params, Plan("full", Scheme("mxnet"), decisions, ()), reach, list(reach))
    assert made.dynamic == ()
    found = {n.name: n for n in made.symbol.nodes}
    assert found["p_output_quantize"].attrs["max_calib_range"] == "1.000000"
