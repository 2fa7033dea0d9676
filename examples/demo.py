"""The demo: an MXNet model file, real photos, top-5 labels with times. ``make demo`` runs it.

It writes EfficientNet-Lite0 as MXNet files (``-symbol.json`` and ``.params``) through requant's own API, forgets how it
made them, loads the files back as any user would, and runs the photos of scikit-image.
"""

from __future__ import annotations

import time
from pathlib import Path

import efficientnet_lite0 as lite0
import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table

import requant

PHOTOS = ["chelsea.png", "coffee.png", "rocket.jpg", "horse.png", "motorcycle_left.png", "astronaut.png", "camera.png"]


def photos() -> dict[str, np.ndarray]:
    """The photos that the package scikit-image carries, by file name."""
    import skimage

    folder = Path(skimage.__file__).parent / "data"
    found = [folder / n for n in PHOTOS if (folder / n).exists()]
    return {p.name: np.asarray(Image.open(p).convert("RGB")) for p in found}


def main() -> None:
    console = Console()
    out = Path("demo-output")
    out.mkdir(exist_ok=True)
    start = time.perf_counter()
    symbol, args, aux = lite0.build(lite0.read_checkpoint(lite0.checkpoint()))
    files = requant.Model.from_symbol(symbol, {**args, **aux}, source="efficientnet_lite0").save(
        out / "efficientnet_lite0"
    )
    console.print(f"[bold]1.[/] wrote {' and '.join(files)} in {time.perf_counter() - start:.2f} s")

    start = time.perf_counter()
    model = requant.load(out / "efficientnet_lite0")
    compiled = model.compile("openvino", shapes={"data": (1, 3, 224, 224)})
    console.print(
        f"[bold]2.[/] loaded and compiled them for {compiled.engine} in {time.perf_counter() - start:.2f} s: {model}"
    )

    names = lite0.labels()
    table = Table(title="EfficientNet-Lite0, float32, batch 1")
    for column in ("photo", "milliseconds", "top 5"):
        table.add_column(column, justify="right" if column == "milliseconds" else "left")
    for photo, pixels in photos().items():
        x = lite0.preprocess(pixels)
        compiled.run(x)
        times = []
        for _ in range(20):
            start = time.perf_counter()
            [logits] = compiled.run(x)
            times.append(time.perf_counter() - start)
        p = np.exp(logits[0] - logits[0].max())
        p /= p.sum()
        top = np.argsort(-p)[:5]
        table.add_row(photo, f"{1e3 * np.median(times):.2f}", ", ".join(f"{names[i]} {p[i]:.0%}" for i in top))
    console.print("[bold]3.[/] ran the photos:")
    console.print(table)
    [onnx] = model.save(out / "efficientnet_lite0.onnx")
    console.print(f"[bold]4.[/] wrote {onnx}, which any ONNX runtime takes")


if __name__ == "__main__":
    main()
