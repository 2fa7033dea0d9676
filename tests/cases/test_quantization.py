"""Reported cases of calibration and quantization, on small ONNX networks with random weights.

Where a case is tested that is not here:

=========================================================  ==========================================================
case                                                       test
=========================================================  ==========================================================
uneven last batch, any split                               pipeline/test_quantize.py, quant/test_calibrators_contract.py
counts beyond 2^24                                         quant/test_histogram.py
NaN and Inf are named, can be skipped                      pipeline/test_quantize.py, quant/test_table.py
first batch zero, constants, dead channel, tiny, outlier   quant/test_calibrators_contract.py, pipeline/test_quantize.py
``auto`` against entropy                                   quant/test_calibrators.py
data far from what was declared                            cli/test_quantize_command.py, quant/test_table.py
no data, one-shot generators, wrong names and types        pipeline/test_quantize.py, cli/test_quantize_command.py
excludes resolve, or name the nearest                      pipeline/test_quantize.py, cli/test_quantize_command.py
tables serve other choices, foreign ones are refused       pipeline/test_quantize.py, quant/test_table.py
a missed goal returns the best model, status 3             cli/test_quantize_command.py
figures are of the saved and reloaded file                 pipeline/test_quantize.py
=========================================================  ==========================================================
"""

import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import requant
from requant.errors import QuantizationError
from requant.formats.dataset import Batch, Dataset
from requant.passes import optimize
from requant.pipeline import verify
from requant.pipeline.calibrate import calibrate
from requant.quant.planner import plan
from requant.report import Speed
from requant.scheme import OPENVINO

F32 = np.float32
ENGINES = ("openvino", "onnxruntime")
node = helper.make_node


class Net:
    """A network under construction: nodes in order, weights that keep the variance."""

    def __init__(self, *shape: int | str, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", *shape])]
        self.channels = {"x": shape[0] if shape and isinstance(shape[0], int) else 0}

    def add(self, op: str, inputs: Sequence[str], name: str, **attributes: object) -> str:
        self.nodes.append(node(op, list(inputs), [name], name=name, **attributes))
        self.channels[name] = self.channels.get(inputs[0], 0)
        return name

    def weight(self, name: str, value: object) -> str:
        self.weights[name] = np.asarray(value, F32)
        return name

    def conv(
        self, x: str, name: str, out: int, kernel: int = 3, group: int = 1, bias: bool = True, weight: str = ""
    ) -> str:
        channels = self.channels[x]
        if not weight:
            fan = channels // group * kernel * kernel
            shape = (out, channels // group, kernel, kernel)
            weight = self.weight(f"{name}.w", self.rng.standard_normal(shape) * np.sqrt(2 / fan))
        inputs = [x, weight, *([self.weight(f"{name}.b", self.rng.standard_normal(out) * 0.1)] if bias else [])]
        self.add("Conv", inputs, name, pads=[kernel // 2] * 4, group=group)
        self.channels[name] = out
        return name

    def norm(self, x: str, name: str) -> str:
        c = self.channels[x]
        parts = {"scale": self.rng.uniform(0.5, 2, c), "shift": self.rng.standard_normal(c) * 0.3}
        parts |= {"mean": self.rng.standard_normal(c) * 0.2, "var": self.rng.uniform(0.5, 2, c)}
        names = [self.weight(f"{name}.{n}", v) for n, v in parts.items()]
        return self.add("BatchNormalization", [x, *names], name)

    def head(self, x: str, classes: int = 10) -> str:
        c = self.channels[x]
        self.add("GlobalAveragePool", [x], "pool")
        self.add("Flatten", ["pool"], "flat")
        self.weight("fc.w", self.rng.standard_normal((c, classes)) * np.sqrt(2 / c))
        return self.add("Gemm", ["flat", "fc.w", self.weight("fc.b", self.rng.standard_normal(classes))], "fc")

    def model(self, *outputs: str, opset: int = 17) -> requant.Model:
        infos = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
        weights = [numpy_helper.from_array(v, n) for n, v in self.weights.items()]
        graph = helper.make_graph(self.nodes, "net", self.inputs, infos, weights)
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        proto = onnx.shape_inference.infer_shapes(proto)
        onnx.checker.check_model(proto)
        return requant.Model.from_onnx(ir.from_proto(proto))


def samples(*shape: int, count: int = 24, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, *shape)).astype(F32)


def decibel(wanted: np.ndarray, got: np.ndarray) -> float:
    noise = float(np.square(wanted.astype(np.float64) - got).sum())
    return 10 * np.log10(float(np.square(wanted.astype(np.float64)).sum()) / max(noise, 1e-300))


def judge(
    model: requant.Model, data: np.ndarray, least: float, tmp_path: Path, calibrator: str = "auto"
) -> requant.QuantizedModel:
    """Quantize, save, reload; the file must be near the float model on both engines, on data not seen."""
    made = requant.quantize(model, data, calibrator=calibrator, check=False)
    made.save(tmp_path / "int8.onnx")
    onnx.checker.check_model(str(tmp_path / "int8.onnx"), full_check=True)
    again = requant.load(tmp_path / "int8.onnx")
    fresh = samples(*data.shape[1:], count=6, seed=11)
    for engine in ENGINES:
        wanted, got = model.run(fresh, engine=engine), again.run(fresh, engine=engine)
        for name, a, b in zip(model.output_names, wanted, got):
            assert a.shape == b.shape
            assert decibel(a, b) > least, f"{name} on {engine}: {decibel(a, b):.1f} dB"
    return made


def chosen(made: requant.QuantizedModel, *names: str) -> list[str]:
    return [made.plan.decision(n).chosen for n in names]


# --- structures ------------------------------------------------------------------------------------------------------


def test_pre_activation_networks(tmp_path: Path) -> None:
    """ResNet v2: batch norm and relu stand before the convolutions, sums are not activated."""
    net = Net(3, 12, 12)
    x = net.conv("x", "stem", 16)
    for i in range(2):
        y = net.add("Relu", [net.norm(x, f"bn{i}a")], f"relu{i}a")
        y = net.conv(y, f"conv{i}a", 16)
        y = net.add("Relu", [net.norm(y, f"bn{i}b")], f"relu{i}b")
        x = net.add("Add", [net.conv(y, f"conv{i}b", 16), x], f"sum{i}")
    made = judge(net.model(net.head(net.add("Relu", [net.norm(x, "bn")], "relu"))), samples(3, 12, 12), 22, tmp_path)
    assert set(chosen(made, "stem", "conv0a", "conv0b", "conv1a", "conv1b", "fc")) == {"int8"}


def test_depthwise_networks(tmp_path: Path) -> None:
    net = Net(3, 12, 12)
    x = net.add("Relu", [net.conv("x", "stem", 16)], "relu")
    for i in range(3):
        x = net.conv(x, f"depth{i}", 16, group=16)
        # Channels of very different size, as training leaves them in depthwise layers.
        net.weights[f"depth{i}.w"] *= np.logspace(-2, 1, 16, dtype=F32)[:, None, None, None]
        x = net.add("Clip", [x, net.weight("low", 0.0), net.weight("high", 6.0)], f"six{i}")
        x = net.conv(x, f"point{i}", 16, kernel=1)
    made = judge(net.model(net.head(x)), samples(3, 12, 12), 15, tmp_path)
    assert set(chosen(made, "depth0", "point0", "depth1", "point1", "depth2", "point2")) == {"int8"}


def test_squeeze_and_excitation_with_hard_swish(tmp_path: Path) -> None:
    net = Net(3, 12, 12)
    x = net.add("HardSwish", [net.conv("x", "stem", 16)], "swish")
    s = net.add("GlobalAveragePool", [x], "squeeze")
    s = net.add("Relu", [net.conv(s, "reduce", 4, kernel=1)], "reduced")
    s = net.add("HardSigmoid", [net.conv(s, "expand", 16, kernel=1)], "gate", alpha=1 / 6, beta=0.5)
    x = net.add("Mul", [x, s], "scaled")
    made = judge(net.model(net.head(net.conv(x, "after", 16))), samples(3, 12, 12), 20, tmp_path)
    assert set(chosen(made, "stem", "after")) == {"int8"}


def test_shared_weights_and_shared_biases(tmp_path: Path) -> None:
    net = Net(8, 10, 10)
    a = net.add("Relu", [net.conv("x", "first", 8)], "relu1")
    net.add("Conv", [a, "first.w", "first.b"], "second", pads=[1] * 4)
    # The same bias at another input scale must not be rounded to the first one's scale.
    net.add("Mul", ["x", net.weight("hundred", 100.0)], "loud")
    net.add("Conv", ["loud", "first.w", "first.b"], "third", pads=[1] * 4)
    net.channels |= {"second": 8, "third": 8}
    made = judge(net.model("second", "third"), samples(8, 10, 10), 20, tmp_path)
    assert set(chosen(made, "first", "second", "third")) == {"int8"}


@pytest.mark.parametrize("shape", [(6,), (1, 6)], ids=["1-D", "2-D"])
def test_biases_of_one_and_two_dimensions(tmp_path: Path, shape: tuple[int, ...]) -> None:
    net = Net(16)
    net.weight("b", net.rng.standard_normal(shape))
    net.weight("w", net.rng.standard_normal((16, 6)) / 4)
    net.add("Gemm", ["x", "w", "b"], "gemm")
    net.add("MatMul", ["x", "w"], "product")
    net.add("Add", ["product", "b"], "biased")
    made = judge(net.model("gemm", "biased"), samples(16, count=64), 25, tmp_path)
    assert chosen(made, "gemm")[0] == "int8"


def test_a_bias_for_each_row_stays_right(tmp_path: Path) -> None:
    """Gemm's C may have the shape of the whole product: no bias of output channels."""
    net = Net(16)
    net.inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 16])]
    net.weight("b", net.rng.standard_normal((4, 6)))
    net.add("Gemm", ["x", net.weight("w", net.rng.standard_normal((16, 6)) / 4), "b"], "gemm")
    model = net.model("gemm")
    made = requant.quantize(model, [samples(16, count=4, seed=s) for s in range(6)], check=False)
    x = samples(16, count=4, seed=11)
    for engine in ENGINES:
        assert decibel(model.run(x, engine=engine)[0], made.run(x, engine=engine)[0]) > 25


def test_concat_of_signed_and_unsigned_branches(tmp_path: Path) -> None:
    net = Net(4, 10, 10)
    a = net.add("Relu", [net.conv("x", "unsigned", 8)], "relu")
    b = net.conv("x", "signed", 8)
    c = net.add("Sigmoid", [net.conv("x", "small", 8)], "sigmoid")
    net.add("Concat", [a, b, c], "joined", axis=1)
    net.channels["joined"] = 24
    made = judge(net.model(net.head(net.conv("joined", "after", 8))), samples(4, 10, 10), 20, tmp_path)
    assert set(chosen(made, "unsigned", "signed", "after")) == {"int8"}


def test_one_tensor_read_by_int8_and_float_nodes(tmp_path: Path) -> None:
    net = Net(4, 10, 10)
    x = net.add("Relu", [net.conv("x", "first", 8)], "relu")
    net.add("Exp", [net.add("Neg", [x], "minus")], "float")
    net.conv(x, "second", 8)
    made = judge(net.model("second", "float", "relu"), samples(4, 10, 10), 20, tmp_path)
    assert chosen(made, "first", "second", "float") == ["int8", "int8", "float"]


def test_an_input_straight_into_quantized_nodes_and_out_again(tmp_path: Path) -> None:
    net = Net(4, 10, 10)
    net.conv("x", "conv", 4)
    net.add("Add", ["conv", "x"], "sum")
    made = judge(net.model("sum"), samples(4, 10, 10), 20, tmp_path)
    assert "x" in made.plan.observed


def test_convolutions_and_products_of_one_width_all_run_as_integers() -> None:
    """OpenVINO computes a convolution in float where its weight shares a zero point with that of a product."""
    net = Net(24, 10, 10)
    net.conv(net.conv("x", "one", 24), "two", 24)
    net.add("GlobalAveragePool", ["two"], "pool")
    net.add("Flatten", ["pool"], "flat")
    net.add("MatMul", ["flat", net.weight("first", net.rng.standard_normal((24, 24)) / 5)], "hidden")
    net.add("Relu", ["hidden"], "relu")
    net.add("MatMul", ["relu", net.weight("second", net.rng.standard_normal((24, 24)) / 5)], "y")
    data = samples(24, 10, 10)
    made = requant.quantize(net.model("y"), data, check=False)
    assert made.plan.count("int8") >= 4
    ran = verify.executed(made.onnx, "openvino", {"x": data[:1]})
    assert set(ran) == {"int8"}, ran


@pytest.mark.parametrize("group", [2, 4])
def test_grouped_convolutions(tmp_path: Path, group: int) -> None:
    net = Net(8, 10, 10)
    x = net.conv("x", "grouped", 16, group=group)
    # Scales that differ between the channels of a group show a wrong axis.
    net.weights["grouped.w"] *= np.logspace(-2, 1, 16, dtype=F32)[:, None, None, None]
    made = judge(net.model(net.conv(x, "after", 8, kernel=1)), samples(8, 10, 10), 22, tmp_path)
    assert chosen(made, "grouped", "after") == ["int8", "int8"]


@pytest.mark.parametrize("group", [1, 2])
def test_transposed_convolutions_scale_their_output_channels(tmp_path: Path, group: int) -> None:
    """Their weight is (in, out / groups, ...): with scales along axis 0, the small channels would drown."""
    net = Net(8, 6, 6)
    spread = np.logspace(-2, 1, 6 // group, dtype=F32)[None, :, None, None]
    net.weight("w", net.rng.standard_normal((8, 6 // group, 2, 2)) / 4 * spread)
    net.add("ConvTranspose", ["x", "w"], "up", strides=[2, 2], group=group)
    model = net.model("up")
    made = judge(model, samples(8, 6, 6), 25, tmp_path)
    assert chosen(made, "up") == ["int8"]
    x = samples(8, 6, 6, seed=11)
    wanted, got = model.run(x)[0], requant.load(tmp_path / "int8.onnx").run(x)[0]
    per_channel = [decibel(wanted[:, c], got[:, c]) for c in range(6)]
    assert min(per_channel) > 22, "the smallest channel is as good as the largest"


def test_a_dense_layer_behind_an_embedding_with_open_batch(tmp_path: Path) -> None:
    net = Net(5)
    net.inputs = [helper.make_tensor_value_info("ids", TensorProto.INT64, ["N", 5])]
    net.add("Gather", [net.weight("table", net.rng.standard_normal((30, 8))), "ids"], "embedded")
    net.add("Flatten", ["embedded"], "flat")
    net.add("Gemm", ["flat", net.weight("w", net.rng.standard_normal((40, 7)) / 6)], "fc")
    model = net.model("fc")
    ids = np.random.default_rng(0).integers(0, 30, (32, 5))
    made = requant.quantize(model, {"ids": ids}, check=False)
    assert chosen(made, "fc") == ["int8"]
    for count in (1, 3, 32):
        for engine in ENGINES:
            got = made.run({"ids": ids[:count]}, engine=engine)[0]
            assert decibel(model.run({"ids": ids[:count]})[0], got) > 22


@pytest.mark.parametrize("calibrator", ["naive", "auto"])
def test_sizes_of_zero(tmp_path: Path, calibrator: str) -> None:
    """A branch that is empty adds nothing to a concatenation, and nothing to its range."""
    net = Net(4, 8, 8)
    x = net.conv("x", "conv", 4)
    for name, value in (("from", [0]), ("to", [0]), ("axes", [1])):
        net.nodes.append(node("Constant", [], [name], value=numpy_helper.from_array(np.array(value, np.int64))))
    net.add("Slice", [x, "from", "to", "axes"], "empty")
    net.add("Concat", [x, "empty"], "joined", axis=1)
    net.channels["joined"] = 4
    model = net.model(net.conv("joined", "after", 4))
    judge(model, samples(4, 8, 8), 20, tmp_path, calibrator=calibrator)


# --- numbers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1e3, 1e6, 1e9])
def test_a_bias_far_beyond_the_product_of_its_scales(tmp_path: Path, size: float) -> None:
    """As int32 at the scale of accumulator steps it would overflow, and come back with the other sign."""
    net = Net(4, 6, 6)
    net.conv("x", "conv", 6)
    net.weights["conv.w"] *= F32(1e-4)
    net.weights["conv.b"] = np.array([size, -size, 0, 1e-3, 1, -1], F32)
    model = net.model("conv")
    made = judge(model, samples(4, 6, 6), 60, tmp_path)
    x = samples(4, 6, 6, seed=11)
    for engine in ENGINES:
        wanted, got = model.run(x, engine=engine)[0], made.run(x, engine=engine)[0]
        assert np.all(np.sign(got[:, :2]) == np.sign(wanted[:, :2]))


@pytest.mark.parametrize("size", [1e-30, 1e-12, 0.0], ids=["1e-30", "1e-12", "zero"])
def test_weights_tiny_or_all_zero(tmp_path: Path, size: float) -> None:
    net = Net(4, 6, 6)
    x = net.conv("x", "conv", 6)
    net.weights["conv.w"] *= F32(size)
    model = net.model(net.conv(x, "after", 4))
    made = judge(model, samples(4, 6, 6), 20, tmp_path)
    for engine in ENGINES:
        assert np.isfinite(made.run(samples(4, 6, 6, count=2), engine=engine)[0]).all()


def test_one_channel_of_zeros(tmp_path: Path) -> None:
    net = Net(4, 6, 6)
    net.conv("x", "conv", 6)
    net.weights["conv.w"][2] = 0
    net.weights["conv.b"][2] = 0
    model = net.model("conv")
    made = judge(model, samples(4, 6, 6), 25, tmp_path)
    assert not made.run(samples(4, 6, 6, count=2))[0][:, 2].any()


# --- files and figures -----------------------------------------------------------------------------------------------


def test_the_int8_file_of_a_convolutional_network_is_small(tmp_path: Path) -> None:
    """At most 0.30 of the float file, for a network of real size; and it reloads exactly."""
    net = Net(3, 8, 8)
    x = net.add("Relu", [net.norm(net.conv("x", "stem", 128, bias=False), "bn0")], "relu0")
    for i in range(6):
        y = net.add("Relu", [net.norm(net.conv(x, f"a{i}", 128, bias=False), f"bn{i}a")], f"relu{i}a")
        y = net.norm(net.conv(y, f"b{i}", 128, bias=False), f"bn{i}b")
        x = net.add("Relu", [net.add("Add", [x, y], f"sum{i}")], f"relu{i}b")
    model = net.model(net.head(x, 100))
    model.save(tmp_path / "float.onnx")
    made = requant.quantize(model, samples(3, 8, 8), calibrator="naive", check=False)
    made.save(tmp_path / "int8.onnx")
    before, after = ((tmp_path / f).stat().st_size for f in ("float.onnx", "int8.onnx"))
    assert before > 5e6
    assert after <= 0.30 * before, f"{after / before:.3f}"
    again = requant.load(tmp_path / "int8.onnx")
    assert np.array_equal(again.run(samples(3, 8, 8))[0], made.run(samples(3, 8, 8))[0])


def test_nothing_to_quantize_is_an_error() -> None:
    net = Net(4, 6, 6)
    net.add("Exp", ["x"], "y")
    with pytest.raises(QuantizationError, match="no"):
        requant.quantize(net.model("y"), samples(4, 6, 6), check=False)


def test_a_slower_int8_model_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "speed", lambda pair, sample, batch: Speed(batch, 1.0, 2.0, 0.5))
    net = Net(4, 6, 6)
    made = requant.quantize(net.model(net.conv("x", "conv", 4)), samples(4, 6, 6), min_speedup=1.0)
    assert made.report is not None
    assert any("slower than float" in n for n in made.report.notes)
    assert not made.report.met
    assert "MISSED" in made.report.goals["min_speedup"]


def test_every_node_left_in_float_has_a_reason_in_the_report() -> None:
    net = Net(4, 6, 6)
    x = net.conv("x", "conv", 4)
    made = requant.quantize(
        net.model(net.add("Exp", [net.conv(x, "kept", 4)], "exp")), samples(4, 6, 6), exclude=["kept"]
    )
    assert made.report is not None
    assert sum(made.report.reasons.values()) == made.report.decisions["float"] == 2
    assert any("kept" in why or "exclude" in why for why in made.report.reasons)


# --- memory --------------------------------------------------------------------------------------------------------


class Endless(Dataset):
    """Samples made when they are asked for: the data themselves take no memory."""

    names, what = ("x",), "noise"

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def samples(self, start: int, stop: int) -> Batch:
        return {"x": samples(4, 32, 32, count=stop - start, seed=start)}


@pytest.mark.parametrize("calibrator", ["naive", "entropy", "auto"])
def test_memory_does_not_depend_on_the_number_of_batches(calibrator: str) -> None:
    net = Net(4, 32, 32)
    x = net.add("Relu", [net.conv("x", "a", 16)], "relu")
    net.conv(x, "b", 16)
    floating = optimize(net.model("b").onnx)
    made = plan(floating, "best", OPENVINO)

    def peak(count: int) -> tuple[int, int]:
        tracemalloc.start()
        table = calibrate(floating, made, Endless(count), calibrator=calibrator, batch=2, threads=1)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found, table.samples + table.held_out_samples

    peak(4)  # what is imported and built once
    few, _ = peak(8)
    many, seen = peak(160)
    assert seen == 160
    assert many < 1.5 * few + 2**20, f"{few / 2**20:.1f} MiB for 4 batches, {many / 2**20:.1f} for 80"
