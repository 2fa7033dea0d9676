"""``requant run``: run a model on images or arrays."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from requant.cli import show
from requant.cli.arguments import (
    engine_option,
    existing,
    image_options,
    image_options_given,
    json_option,
    model_options,
    open_model,
    preprocessing,
)
from requant.errors import FormatError, InputError, counted
from requant.formats.arrays import for_inputs, read_npy, read_npz
from requant.formats.images import Preprocess, is_image, read_image
from requant.formats.samples import joined
from requant.formats.target import check_file
from requant.pipeline import Model
from requant.pipeline.verify import is_classes


@click.command(name="run")
@model_options
@click.option(
    "--input",
    "inputs",
    multiple=True,
    required=True,
    metavar="[NAME=]FILE",
    help="An image, a .npy or an .npz file; NAME= where the model has several inputs. Several images make one batch.",
)
@image_options
@engine_option
@click.option(
    "--top", type=click.IntRange(1), default=5, show_default=True, help="Show this many best classes of each row."
)
@click.option("--labels", metavar="FILE", help="Class names, one a line.")
@click.option("-o", "--output", metavar="FILE.npz", help="Save all outputs.")
@json_option
def command(
    model: str,
    params: str | None,
    epoch: int | None,
    shapes: Any,
    inputs: tuple[str, ...],
    engine: str,
    top: int,
    labels: str | None,
    output: str | None,
    as_json: bool,
    **image: Any,
) -> None:
    """Run MODEL on images or arrays, and show its outputs.

    Images are decoded, resized to the model's input and normalized as the options say; nothing is guessed, and what
    was done is printed. Where the file remembers the preprocessing that it was quantized with,
    that is used; options given here replace parts of it. Arrays go in as they are.

    \b
    Examples:
      requant run net --input cat.jpg --mean 127 --std 128 --size 224 --labels classes.txt
      requant run net --input cat.jpg --divide 255 --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225
      requant run bert.onnx --input input_ids=ids.npy --input attention_mask=mask.npy -o out.npz
    """
    if output is not None:
        check_file(output, "a name such as outputs.npz")
    names = _lines(labels) if labels is not None else None
    loaded = open_model(model, params, epoch, shapes)
    feeds, note = gather(loaded, inputs, image)
    start = time.perf_counter()
    compiled = loaded.compile(engine)
    outs = compiled.run(feeds)
    first = time.perf_counter() - start
    start = time.perf_counter()
    compiled.run(feeds)
    again = time.perf_counter() - start
    named = dict(zip(loaded.output_names, outs))
    if names is not None:
        _check_labels(names, named, str(labels))
    if output:
        arrays: dict[str, Any] = dict(named)
        with open(output, "wb") as file:  # given a name, numpy would add .npz to it
            np.savez(file, **arrays)
    if as_json:
        show.as_json(
            {
                "model": model,
                "engine": engine,
                "preprocess": note,
                "milliseconds": 1e3 * again,
                "outputs": {
                    n: {"shape": a.shape, "dtype": a.dtype.name, "top": best(a, top, names)} for n, a in named.items()
                },
            }
        )
        return
    out = show.console()
    if note:
        out.print(f"Images: {note}")
    out.print(f"{engine}: first run with compilation {1e3 * first:.1f} ms, second run {1e3 * again:.2f} ms")
    for name, array in feeds.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            out.print(f"[bold]Beware:[/] input {name} holds NaN or infinity")
    for name, array in named.items():
        _show(name, array, top, names)
    if output:
        out.print(f"Saved {', '.join(named)} to {output}")


def _remembered(image: Mapping[str, Any]) -> str:
    given = image_options_given(image)
    return ", as remembered in the file" + (f", but for --{', --'.join(given)}" if given else "")


def _lines(path: str) -> list[str]:
    """Names, one a line; empty lines at the end are none."""
    try:
        return existing(path, _NAMES).read_text(encoding="utf-8").rstrip().splitlines()
    except UnicodeDecodeError as fault:
        raise FormatError(
            "not a list of names", where=path, got=str(fault), expected=_NAMES, next="save it as text in UTF-8"
        ) from None


_NAMES = "text, one name a line"


def _check_labels(names: list[str], outputs: Mapping[str, np.ndarray], path: str) -> None:
    """Refuse class names of which no output has so many classes: shown all the same, they would be wrong.

    Raises:
        InputError: there is no such output; the message has both counts.
    """
    classes = {n: a.shape[1] for n, a in outputs.items() if is_classes(a)}
    if len(names) in classes.values():
        return
    shapes = ", ".join(f"{n} {show.dims(a.shape)}" for n, a in outputs.items())
    found = ", ".join(f"{count} in {n}" for n, count in classes.items())
    raise InputError(
        "the labels do not fit the classes",
        where=path,
        got=counted(len(names), "name"),
        expected=f"as many as classes: {found}" if classes else f"an output (N, classes), which {shapes} is not",
        next="give the list that the network was trained with; some begin with a background class, which is a line too"
        if classes
        else "leave out --labels",
    )


def gather(model: Model, inputs: tuple[str, ...], image: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], str]:
    """The arrays that the ``--input`` options name, and the preprocessing of images in words.

    Raises:
        InputError, FormatError: a file is missing, unreadable, or goes to no input.
    """
    names = model.input_names
    found: dict[str, list[np.ndarray]] = {}
    note = ""
    prepare: Preprocess | None = None
    for text in inputs:
        name, path = _named(text, names)
        file = existing(path, "an image, .npy or .npz")
        if file.suffix == ".npz":
            arrays = read_npz(file)
            taken = {n: a for n, a in arrays.items() if n in names} or for_inputs(arrays, names, file)
            found.update({n: [a] for n, a in taken.items()})
            continue
        if not name:
            if len(names) != 1:
                raise InputError("which input is it for?", where=text, expected=f"one of {names}, as {names[0]}={text}")
            name = names[0]
        if is_image(file):
            if prepare is None:
                prepare, kept = preprocessing(model, image)
                note = prepare.describe() + (_remembered(image) if kept else "")
            found.setdefault(name, []).append(prepare.array(read_image(file, prepare.color)))
        else:
            found.setdefault(name, []).append(read_npy(file))
    whole = {name: joined(given, f"input {name!r}") for name, given in found.items()}
    for name, given in found.items():
        if any(a.size == 0 for a in given):
            raise InputError(
                "the array is empty",
                where=f"input {name!r}",
                got=f"shape {next(a.shape for a in given if a.size == 0)}",
                expected="at least one sample in the first dimension",
                next="look at how the file was written",
            )
    return whole, note


def _named(text: str, names: Sequence[str]) -> tuple[str, str]:
    """``NAME=FILE`` as (name, file); a file name may have a = in it."""
    for name in names:
        rest = text.removeprefix(f"{name}=")
        if rest != text and (Path(rest).exists() or not Path(text).exists()):
            return name, rest
    if Path(text).exists() or "=" not in text:
        return "", text
    name, _, path = text.partition("=")
    return name, path


def best(array: np.ndarray, top: int, names: list[str] | None) -> list[list[tuple[Any, float]]] | None:
    """The highest scores of each row of a (N, classes) output, with class names; None for other shapes."""
    if not is_classes(array):
        return None
    names = names if names and len(names) == array.shape[1] else None
    rows = []
    for row in array:
        order = np.argsort(-row, kind="stable")[:top]
        rows.append([(names[i] if names else int(i), float(row[i])) for i in order])
    return rows


def _show(name: str, array: np.ndarray, top: int, names: list[str] | None) -> None:
    rows = best(array, top, names)
    title = f"{name} {array.dtype.name} {show.dims(array.shape)}"
    if rows is None:
        flat = array.reshape(-1)[:8]
        numbers = ", ".join(f"{v:.6g}" for v in flat) + (" ..." if array.size > 8 else "")
        show.console().print(f"[bold]{title}[/]: {numbers}", soft_wrap=True)
        return
    shown = [(i, ", ".join(f"{label} {score:.4g}" for label, score in row)) for i, row in enumerate(rows[:32])]
    show.table(title, ["row", f"top {top}"], shown)
