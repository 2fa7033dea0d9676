"""What a requant session costs over the engine's own interface, on nets built here with random weights.

Three questions, each answered by a ratio (1.00 = no cost):

* ``run``: one image through ``Session.run`` against the engine's fastest documented synchronous call;
* ``stream``: many images through ``Session.stream`` against ``openvino.AsyncInferQueue``, or a pool of threads for
  ONNX Runtime;
* ``load``: from an ``onnx_ir.Model`` in memory to the first result, against the engine reading the same file from disk.

The two sides take turns, and each ratio is the median over pairs, so that a noisy machine disturbs both alike.

    python benchmarks/engine_overhead.py [--engine openvino] [--net mobilenet] [--repeats 50] [--only run]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from requant import engines
from requant.engines import EngineOptions

Array = np.ndarray[Any, Any]
Call = Callable[[], object]


class Net:
    """Builds a convolutional network, node by node, with random weights of sensible size."""

    def __init__(self, name: str) -> None:
        self.name, self.nodes, self.weights = name, [], []  # type: ignore[var-annotated]
        self.rng = np.random.default_rng(0)
        self.data = ir.Value(name="data", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["N", 3, 224, 224]))

    def weight(self, *shape: int, scale: float) -> ir.Value:
        array = (self.rng.standard_normal(shape) * scale).astype(np.float32)
        name = f"weight{len(self.weights)}"
        tensor = ir.tensor(array, name=name)
        self.weights.append(
            ir.Value(name=name, const_value=tensor, type=ir.TensorType(tensor.dtype), shape=ir.Shape(shape))
        )
        return self.weights[-1]

    def op(self, kind: str, *inputs: ir.Value, **attributes: object) -> ir.Value:
        node = ir.node(kind, inputs, attributes=attributes or None, name=f"{kind.lower()}{len(self.nodes)}")
        node.outputs[0].name = f"{node.name}_out"
        self.nodes.append(node)
        return node.outputs[0]

    def conv(
        self, x: ir.Value, sizes: tuple[int, int, int], stride: int = 1, group: int = 1, relu: bool = True
    ) -> ir.Value:
        """A convolution of ``sizes`` (input channels, output channels, kernel), and Relu."""
        inputs, outputs, kernel = sizes
        weight = self.weight(outputs, inputs // group, kernel, kernel, scale=(2 * group / inputs) ** 0.5 / kernel)
        bias = self.weight(outputs, scale=0.1)
        window = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
        y = self.op("Conv", x, weight, bias, group=group, **window)
        return self.op("Relu", y) if relu else y

    def finish(self, x: ir.Value, channels: int) -> ir.Model:
        x = self.op("Flatten", self.op("GlobalAveragePool", x))
        y = self.op("Gemm", x, self.weight(channels, 1000, scale=0.01), self.weight(1000, scale=0.01))
        y.type, y.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape(["N", 1000])
        graph = ir.Graph(
            [self.data], [y], nodes=self.nodes, initializers=self.weights, opset_imports={"": 17}, name=self.name
        )
        return ir.Model(graph, ir_version=8)


def resnet50() -> ir.Model:
    """Of ResNet-50's shape (He et al. 2015): 16 bottlenecks, 25.5 M weights, 102 MB."""
    net, channels = Net("resnet50"), 64
    x = net.op("MaxPool", net.conv(net.data, (3, 64, 7), 2), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for stage, (blocks, width) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)]):
        for block in range(blocks):
            stride = 2 if block == 0 and stage else 1
            skip = x if block else net.conv(x, (channels, 4 * width, 1), stride, relu=False)
            y = net.conv(net.conv(x, (channels, width, 1)), (width, width, 3), stride)
            x = net.op("Relu", net.op("Add", net.conv(y, (width, 4 * width, 1), relu=False), skip))
            channels = 4 * width
    return net.finish(x, channels)


def mobilenet() -> ir.Model:
    """Of MobileNetV2's shape (Sandler et al. 2018): 17 inverted residuals, 3.5 M weights, 14 MB."""
    net, channels = Net("mobilenet"), 32
    x = net.conv(net.data, (3, 32, 3), 2)
    for expand, width, blocks, first in [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ]:
        for block in range(blocks):
            inner, stride = channels * expand, 1 if block else first
            y = x if expand == 1 else net.conv(x, (channels, inner, 1))
            y = net.conv(net.conv(y, (inner, inner, 3), stride, inner), (inner, width, 1), relu=False)
            x, channels = net.op("Add", x, y) if block else y, width
    return net.finish(net.conv(x, (channels, 1280, 1)), 1280)


NETS = {"mobilenet": mobilenet, "resnet50": resnet50}


def raw(name: str, path: str, threads: int | None, hint: str) -> tuple[Call, Callable[[int], object], Array]:
    """The engine's own calls on the file, at batch 1: one synchronous run, n runs in flight, and the image."""
    image = np.random.default_rng(1).standard_normal((1, 3, 224, 224)).astype(np.float32)
    if name == "openvino":
        import openvino

        config = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": hint.upper()}
        if threads:
            config["INFERENCE_NUM_THREADS"] = str(threads)
        core = openvino.Core()
        graph = core.read_model(path)
        graph.reshape({"data": [1, 3, 224, 224]})
        compiled = core.compile_model(graph, "CPU", config)
        request = compiled.create_infer_request()
        queue = openvino.AsyncInferQueue(compiled)
        kept: list[Array] = []
        queue.set_callback(lambda done, _: kept.append(done.get_output_tensor(0).data.copy()))

        def many(count: int) -> None:
            kept.clear()
            for _ in range(count):
                queue.start_async({"data": image})
            queue.wait_all()

        return (lambda: request.infer({"data": image}, share_inputs=True)), many, image
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    workers = (threads or engines.machine.usable_physical_cores()) if hint == "throughput" else 1
    settings.intra_op_num_threads = max(1, (threads or engines.machine.usable_physical_cores()) // workers)
    session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    pool = ThreadPoolExecutor(workers)
    run = lambda _=None: session.run(None, {"data": image})  # noqa: E731
    return run, (lambda count: list(pool.map(run, range(count)))), image


def turns(
    ours: Call, theirs: Call, repeats: int, clock: Callable[[], float] = time.perf_counter
) -> tuple[list[float], list[float]]:
    """Seconds of both, who take turns, by this clock."""
    mine: list[float] = []
    raws: list[float] = []
    for i in range(repeats + 3):
        pair = [(ours, mine), (theirs, raws)]
        for call, times in pair if i % 2 else reversed(pair):
            start = clock()
            call()
            times.append(clock() - start)
    return mine[3:], raws[3:]  # what comes first warms up


def compare(ours: Call, theirs: Call, repeats: int) -> tuple[float, float, float]:
    """Median seconds of both, and the median of the ratios of neighbours in time."""
    mine, raws = turns(ours, theirs, repeats)
    ratio = statistics.median(a / b for a, b in zip(mine, raws))
    return statistics.median(mine), statistics.median(raws), ratio


def show(what: str, figures: tuple[float, float, float], per: int = 1) -> None:
    mine, theirs, ratio = figures
    print(f"{what:44} requant {1e3 * mine / per:9.3f} ms   raw {1e3 * theirs / per:9.3f} ms   ratio {ratio:.3f}")


def measure(name: str, net: str, repeats: int, threads: int | None, questions: Iterable[str]) -> None:
    model, engine = NETS[net](), engines.get(name)
    fixed = {"data": (1, 3, 224, 224)}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "net.onnx")
        ir.save(model, path)
        if "run" in questions:
            one, _, image = raw(name, path, threads, "latency")
            with engine.load(model, EngineOptions(threads=threads), fixed) as session:
                show(f"{name} {net} run", compare(lambda: session.run({"data": image}), one, repeats))
        if "stream" in questions:
            _, many, image = raw(name, path, threads, "throughput")
            with engine.load(model, EngineOptions(threads=threads, hint="throughput"), fixed) as session:
                feeds = [{"data": image}] * 40
                figures = compare(lambda: list(session.stream(feeds)), lambda: many(40), max(5, repeats // 10))
                show(f"{name} {net} stream, per image", figures, 40)
        if "load" in questions:

            def ours() -> None:
                with engine.load(model, EngineOptions(threads=threads), fixed) as session:
                    session.run({"data": image})

            image = np.zeros((1, 3, 224, 224), np.float32)
            theirs = lambda: raw(name, path, threads, "latency")[0]()  # noqa: E731
            show(f"{name} {net} load and first run", compare(ours, theirs, max(5, repeats // 10)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=engines.names(), action="append")
    parser.add_argument("--net", choices=NETS, action="append")
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--only", choices=["run", "stream", "load"], action="append")
    asked = parser.parse_args()
    for name in asked.engine or engines.names():
        for net in asked.net or NETS:
            measure(name, net, asked.repeats, asked.threads, asked.only or ["run", "stream", "load"])


if __name__ == "__main__":
    main()
