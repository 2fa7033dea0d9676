"""examples/prequantized_tflite.py: int8 weights, scales and zero points of another framework in MXNet's operators."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import requant
import requant.mx as mx
from requant.errors import UnsupportedError
from requant.formats import tflite

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
sys.path.insert(0, str(Path(__file__).parents[1] / "formats"))

import prequantized_tflite as example
from tflite_writer import File, small


def block(f: File) -> example.PrequantizedNet:
    return example.PrequantizedNet(tflite.read_bytes(f.bytes(), "small.tflite"))


def data(f: File, batch: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Real numbers that are integers of the input, and what the network makes of them, in integers of the output."""
    first, last = f.tensors[f.inputs[0]], f.tensors[f.outputs[0]]
    q = np.random.RandomState(8).randint(-128, 128, (batch, *first.shape[1:])).astype(np.int8)
    [wanted] = f.run(q)
    return first.real(q).astype(np.float32), last.real(wanted) / float(last.scale[0])


def test_imperative_symbolic_and_hybridized_compute_what_the_file_means() -> None:
    f = small()
    net, (x, wanted) = block(f), data(f)
    step = float(f.tensors[f.outputs[0]].scale[0])
    imperative = net(mx.nd.array(x)).asnumpy()
    assert np.abs(imperative / step - wanted).max() < 1.01
    assert (np.abs(imperative / step - wanted) < 0.01).mean() > 0.9
    symbol = net(mx.sym.var("data"))
    arguments = {n: p.data() for n, p in net.collect_params().items() if n in symbol.list_arguments()}
    bound = symbol.bind(mx.cpu(), {**arguments, "data": mx.nd.array(x)}).forward()[0].asnumpy()
    net.hybridize()
    hybridized = net(mx.nd.array(x)).asnumpy()
    for other in (bound, hybridized):
        assert np.abs(other / step - wanted).max() < 1.01
    kinds = {n.op.name for n in symbol.nodes if n.op is not None}
    assert {"_contrib_quantize", "_contrib_quantized_conv", "_contrib_quantized_elemwise_add"} <= kinds
    assert {"_contrib_quantized_pooling", "_contrib_quantized_fully_connected", "_contrib_dequantize"} <= kinds


def test_the_parameters_are_the_files() -> None:
    f = small()
    made = {n: p.data().asnumpy() for n, p in block(f).collect_params().items()}
    weight = next(a for n, a in made.items() if n.endswith("conv_2d0_weight"))
    right = next(t.data for t in f.tensors if t.name == "conv0_w")
    assert right is not None and weight.dtype == np.int8
    np.testing.assert_array_equal(weight, right.transpose(0, 3, 1, 2))


def test_it_is_exported_and_runs_as_integers(tmp_path: Path) -> None:
    f = small()
    net, (x, _) = block(f), data(f)
    net.hybridize()
    before = net(mx.nd.array(x)).asnumpy()
    net.export(str(tmp_path / "net"))
    compiled = requant.load(tmp_path / "net").compile("openvino", profile=True)
    np.testing.assert_allclose(compiled.run(x)[0], before, atol=1.01 / 256)
    heavy = [p for p in compiled.profile() if p.op in ("Convolution", "GroupConvolution")]
    assert len(heavy) == 3 and all(p.kernel.lower().endswith("_i8") for p in heavy), heavy


def test_what_it_cannot_build_is_said() -> None:
    f = File()
    f.inputs = [f.tensor("x", [1, 4, 4, 2], scale=[0.1], zero=[0])]
    f.outputs = [f.op("TANH", f.inputs, f.tensor("y", [1, 4, 4, 2], scale=[1 / 128], zero=[0]))]
    with pytest.raises(UnsupportedError, match=r"'y' \(TANH\)[\s\S]*int8 \(1, 4, 4, 2\)"):
        block(f)
    f = small("float32")
    with pytest.raises(UnsupportedError, match="float32, not int8 or uint8"):
        block(f)


@pytest.mark.shared
@pytest.mark.parametrize("hybridized", [False, True])
def test_a_trained_network_reaches_its_accuracy(hybridized: bool, shared: Path) -> None:
    """ResNet8 on the first 1,000 CIFAR-10 test images; its own runtime reaches 87.8 %."""
    net = example.PrequantizedNet(tflite.read(shared / "data" / "tflite" / "pretrainedResnet_quant.tflite"))
    if hybridized:
        net.hybridize()
    with np.load(shared / "data" / "images" / "cifar10_test.npz") as file:
        assert example.accuracy(net, file["x"][:1000], file["y"][:1000]) >= 0.875


@pytest.mark.shared
def test_a_larger_network_of_linear_bottlenecks(shared: Path) -> None:
    """MobileNetV2: the same classes as requant.load makes of the file."""
    path = shared / "data" / "tflite" / "tf2_mobilenet_v2_1.0_224_ptq.tflite"
    net = example.PrequantizedNet(tflite.read(path))
    net.hybridize()
    with np.load(shared / "data" / "images" / "cifar10_test.npz") as file:
        x = file["x"][:8].repeat(7, 1).repeat(7, 2)
    [wanted] = requant.load(path).run(x)
    mine = net(mx.nd.array((x.astype(np.float32) - 127) * np.float32(0.0078431377))).asnumpy()
    assert 20 * np.log10(np.linalg.norm(wanted / 256) / np.linalg.norm(wanted / 256 - mine)) > 15
