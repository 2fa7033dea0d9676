"""The demo: an MXNet model, quantized on real photos; float and int8 side by side. ``make demo`` runs it.

It writes EfficientNet-Lite0 as MXNet files (``-symbol.json`` and ``.params``) through requant's own API, forgets how it
made them, loads the files back as any user would, quantizes them on some photos of scikit-image, and shows the others.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import efficientnet_lite0 as lite0
import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table

import requant
import requant.pipeline
from requant.pipeline.timing import by_turns
from requant.qmath import sqnr

PHOTOS = ["chelsea.png", "coffee.png", "rocket.jpg", "horse.png", "motorcycle_left.png", "astronaut.png", "camera.png"]


def all_photos() -> dict[str, np.ndarray]:
    """The photos that the package scikit-image carries, by file name."""
    import skimage

    folder = Path(skimage.__file__).parent / "data"
    files = sorted(p for p in folder.iterdir() if p.suffix in (".png", ".jpg"))
    return {p.name: np.asarray(Image.open(p).convert("RGB")) for p in files}


def photos() -> dict[str, np.ndarray]:
    """Those that are shown, and judge the result."""
    return {n: p for n, p in all_photos().items() if n in PHOTOS}


def crops(pixels: np.ndarray) -> list[np.ndarray]:
    """Squares of a photo: centre, corners and halves. A few photos become enough samples to calibrate on."""
    height, width = pixels.shape[:2]
    side = min(height, width)
    found = [pixels]
    for scale in (1.0, 0.75, 0.5):
        s = int(side * scale)
        for y, x in (
            (0, 0),
            (0, width - s),
            (height - s, 0),
            (height - s, width - s),
            ((height - s) // 2, (width - s) // 2),
        ):
            found.append(pixels[y : y + s, x : x + s])
    return found


def best(logits: np.ndarray, names: list[str], count: int = 2) -> str:
    """The best classes of one row of logits, with their probabilities."""
    p = np.exp(logits - logits.max())
    p /= p.sum()
    return ", ".join(f"{names[i]} {p[i]:.0%}" for i in np.argsort(-p)[:count])


def milliseconds(models: dict[str, requant.pipeline.Compiled], x: np.ndarray) -> dict[str, float]:
    """Median latency of each model, measured by turns."""
    times = by_turns({n: (lambda m=m: m.run(x)) for n, m in models.items()}, seconds=0.4, least=10)
    return {n: 1e3 * float(np.median(t)) for n, t in times.items()}


def main() -> None:
    console = Console(width=None if sys.stdout.isatty() else 150)
    out = Path("demo-output")
    out.mkdir(exist_ok=True)
    start = time.perf_counter()
    symbol, args, aux = lite0.build(lite0.read_checkpoint(lite0.checkpoint()))
    files = requant.Model.from_symbol(symbol, {**args, **aux}, source="lite0").save(out / "efficientnet_lite0")
    console.print(f"[bold]1.[/] wrote {' and '.join(files)} in {time.perf_counter() - start:.2f} s")

    start = time.perf_counter()
    model = requant.load(out / "efficientnet_lite0", shapes={"data": (None, 3, lite0.SIZE, lite0.SIZE)})
    floating = model.compile("openvino", shapes={"data": (1, 3, lite0.SIZE, lite0.SIZE)})
    console.print(f"[bold]2.[/] loaded and compiled them for {floating.engine} in {time.perf_counter() - start:.2f} s")

    shown = photos()
    calibrating = {n: p for n, p in all_photos().items() if n not in shown}
    samples = np.concatenate([lite0.preprocess(c) for p in calibrating.values() for c in crops(p)])
    judged = np.concatenate([lite0.preprocess(p) for p in shown.values()])
    start = time.perf_counter()
    int8 = requant.quantize(model, samples, held_out=judged)
    int8.save(out / "efficientnet_lite0-int8.onnx")
    assert int8.report is not None
    console.print(
        f"[bold]3.[/] quantized it on {len(samples)} crops of {len(calibrating)} other photos "
        f"in {time.perf_counter() - start:.1f} s"
    )

    integer = requant.load(out / "efficientnet_lite0-int8.onnx").compile("openvino")
    names = lite0.labels()
    table = Table(title="EfficientNet-Lite0, batch 1: float beside int8, photos that calibration did not see")
    for column in ("photo", "float ms", "int8 ms", "signal to noise", "float: best classes", "int8: best classes"):
        table.add_column(column, justify="right" if "ms" in column or "noise" in column else "left")
    for photo, pixels in shown.items():
        x = lite0.preprocess(pixels)
        wanted, got = floating.run(x)[0][0], integer.run(x)[0][0]
        times = milliseconds({"float": floating, "int8": integer}, x)
        table.add_row(
            photo,
            f"{times['float']:.2f}",
            f"{times['int8']:.2f}",
            f"{sqnr(wanted, got):.1f} dB",
            best(wanted, names),
            best(got, names),
        )
    console.print("[bold]4.[/] ran the photos:")
    console.print(table)
    console.print(str(int8.report), markup=False, highlight=False)
    [onnx] = model.save(out / "efficientnet_lite0.onnx")
    console.print(f"[bold]5.[/] wrote {onnx} and efficientnet_lite0-int8.onnx, which any ONNX runtime takes")


if __name__ == "__main__":
    main()
