"""What the Gluon way costs over the native one, for the same files.

* ``first``: from files to the first result. Gluon: build the block, ``load_parameters``, ``hybridize``, call; or
  ``SymbolBlock.imports`` and call. Native: ``requant.load`` and ``run``.
* ``call``: one hybridized call, ``net(x)``, against ``Session.run`` of the same graph on the same engine. Both keep
  their result as it comes; the NDArray is made before.

The sides take turns. Told are the least of each side, the ratio of these (1.00 = no cost), which neighbours on the
machine disturb least, and the median of the ratios of pairs. On a busy machine, ``--clock cpu`` takes the processor
time of all threads instead.

    python benchmarks/gluon_overhead.py [--net resnet50_v1] [--repeats 30] [--clock cpu]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from engine_overhead import Call, turns

import requant
import requant.mx as mx

NETS = ("resnet50_v1", "mobilenetv2_1.0", "squeezenet1.1")
SIZES = {"resnet50_v1": 224, "mobilenetv2_1.0": 224, "squeezenet1.1": 224}
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def files(name: str, folder: Path, image: mx.nd.NDArray) -> tuple[str, str, str]:
    """A network of the model zoo with random weights, in files: structural parameters, symbol, its parameters."""
    net = mx.gluon.model_zoo.vision.get_model(name)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    net(image)
    net.save_parameters(str(folder / "net.params"))
    return str(folder / "net.params"), *net.export(str(folder / "net"))


def gluon(name: str, params: str) -> mx.gluon.HybridBlock:
    net = mx.gluon.model_zoo.vision.get_model(name)
    net.load_parameters(params)
    net.hybridize()
    return net


def show(what: str, ours: Call, theirs: Call, repeats: int, clock: str) -> None:
    """Measure, and print a line."""
    mine, native = turns(ours, theirs, repeats, CLOCKS[clock])
    pairs = statistics.median(a / b for a, b in zip(mine, native))
    least, lowest = 1e3 * min(mine), 1e3 * min(native)
    ratios = f"ratio {least / lowest:.3f}   of pairs {pairs:.3f}"
    print(f"{what:44} Gluon {least:9.3f} ms   native {lowest:9.3f} ms   {ratios}", flush=True)


def measure(name: str, repeats: int, clock: str) -> None:
    size = SIZES[name]
    array = np.random.default_rng(1).standard_normal((1, 3, size, size)).astype(np.float32)
    image = mx.nd.array(array)
    with tempfile.TemporaryDirectory() as folder:
        params, symbol, exported = files(name, Path(folder), image)
        native: Call = lambda: requant.load(symbol, exported).run(array)  # noqa: E731
        built: Call = lambda: gluon(name, params)(image).asnumpy()  # noqa: E731
        imported: Call = lambda: mx.gluon.SymbolBlock.imports(symbol, ["data"], exported)(image).asnumpy()  # noqa: E731
        show(f"{name} first call of the block", built, native, max(5, repeats // 5), clock)
        show(f"{name} first call of SymbolBlock", imported, native, max(5, repeats // 5), clock)
        net = gluon(name, params)
        net(image)
        session = requant.load(symbol, exported).compile().prepare({"data": array.shape})
        call, run = lambda: net(image), lambda: session.run({"data": array})
        show(f"{name} {size} px hybridized call", call, run, repeats, clock)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", choices=NETS, action="append")
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    asked = parser.parse_args()
    for name in asked.net or NETS:
        measure(name, asked.repeats, asked.clock)


if __name__ == "__main__":
    main()
