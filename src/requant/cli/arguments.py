"""Arguments and options that several commands share, each declared once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from requant.engines import names as engine_names
from requant.errors import EngineError, InputError, ShapeError, nearest
from requant.formats.images import METADATA_KEY, Preprocess
from requant.pipeline import Model, load
from requant.symbol.infer import infer

F = TypeVar("F", bound=Callable[..., Any])

if TYPE_CHECKING:
    _ShapeBase = click.ParamType[tuple[str, tuple[int | None, ...]]]
    _NumbersBase = click.ParamType[tuple[float, ...]]
    _SizeBase = click.ParamType[tuple[int, int]]
else:  # ParamType takes no parameter at run time in click 8.1 to 8.3
    _ShapeBase = _NumbersBase = _SizeBase = click.ParamType


#: Pixels along a side that images are resized to, at most.
MAX_SIDE = 16384


class ShapeType(_ShapeBase):
    """``data=1,3,224,224``; ``?`` or ``N`` leaves a dimension open. Without a name it means the only input."""

    name = "[NAME=]DIMS"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, tuple[int | None, ...]]:
        if isinstance(value, tuple):
            return value
        name, _, dims = str(value).rpartition("=")
        parts = [d.strip() for d in dims.strip("()[] ").split(",") if d.strip()]
        if not dims.strip() or not all(_is_size(p) or p in ("?", "N", "n") for p in parts):
            self.fail(f"{value!r} is not a shape: write data=1,3,224,224, with ? for an open dimension", param, ctx)
        return name, tuple(int(p) if p.isdigit() else None for p in parts)


def _is_size(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 12 and int(text) > 0


class NumbersType(_NumbersBase):
    """``0.485,0.456,0.406``, or one number for all channels."""

    name = "NUMBERS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return tuple(float(v) for v in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers: write 0.485,0.456,0.406", param, ctx)


class SizeType(_SizeBase):
    """``224`` or ``HEIGHTxWIDTH``."""

    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        parts = str(value).lower().replace(",", "x").split("x")
        if len(parts) > 2 or not all(_is_size(p) and int(p) <= MAX_SIDE for p in parts):
            self.fail(
                f"{value!r} is not a size: write 224, or 480x640 (height x width); {MAX_SIDE} at most", param, ctx
            )
        return int(parts[0]), int(parts[-1])


def _chain(options: Sequence[Callable[[F], F]]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


model_options: Callable[[F], F] = _chain(
    [
        click.argument("model", metavar="MODEL"),
        click.option("--params", metavar="FILE", help="The .params file, where it does not follow from the name."),
        click.option("--epoch", type=int, help="Which net-NNNN.params; the highest by default."),
        click.option(
            "--shape",
            "shapes",
            type=ShapeType(),
            multiple=True,
            help="Shape of an input, for files that do not say it: data=1,3,224,224 (? is open). Repeatable.",
        ),
    ]
)

json_option: Callable[[F], F] = click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")

engine_option: Callable[[F], F] = click.option(
    "--engine", type=click.Choice(engine_names()), default="openvino", show_default=True, help="What runs the model."
)

image_options: Callable[[F], F] = _chain(
    [
        click.option("--size", type=SizeType(), help="Resize images to this; the model's input size by default."),
        click.option(
            "--crop",
            type=click.Choice(["center", "stretch"]),
            default="center",
            show_default=True,
            help="Cut out the largest window of the shape, or stretch all of the image.",
        ),
        click.option("--ratio", type=float, default=1.0, show_default=True, help="Share that a centre crop keeps."),
        click.option("--divide", type=float, default=1.0, show_default=True, help="Divide pixels (0..255) by this."),
        click.option("--mean", type=NumbersType(), default="0", show_default=True, help="Then subtract this."),
        click.option("--std", type=NumbersType(), default="1", show_default=True, help="Then divide by this."),
        click.option(
            "--layout",
            type=click.Choice(["NCHW", "NHWC"]),
            default="NCHW",
            show_default=True,
            help="Order of the input's dimensions.",
        ),
        click.option("--rgb/--bgr", default=True, help="Order of colours.  [default: rgb]"),
    ]
)


def open_model(
    model: str, params: str | None, epoch: int | None, shapes: Sequence[tuple[str, tuple[int | None, ...]]]
) -> Model:
    """Load what the shared model options name. Dimension 0 of a shape is the batch, and is left open.

    Raises:
        InputError: a shape without a name for a model with several inputs. Others as ``requant.load``.
    """
    opened = [(n, (None, *s[1:])) for n, s in shapes if s]
    named = {n: s for n, s in opened if n}
    bare = [s for n, s in opened if not n]
    loaded = load(model, params, epoch=epoch, shapes=named or None)
    if bare:
        names = loaded.input_names
        if len(names) != 1:
            raise InputError(
                "which input has that shape?",
                where=model,
                got=bare[0],
                expected=f"one of {names} with a =",
                next=f"--shape {names[0]}={','.join('?' if d is None else str(d) for d in bare[0])}",
            )
        loaded = load(model, params, epoch=epoch, shapes={names[0]: bare[0]})
    return loaded


#: Image sizes to try where a network takes any, or only some, and no shape was given.
_USUAL_SIZES = (224, 32, 28, 299, 112, 300, 512, 48)


def any_shapes(model: Model, batch: int = 1) -> dict[str, tuple[int, ...]]:
    """Input shapes that the model takes: with numbers where they are known, else of a usual image size.

    For trying a network out, where any size will do. Raises InputError as ``concrete_shapes`` where none fits.
    """
    for size in _USUAL_SIZES:
        found: dict[str, tuple[int, ...]] = {}
        for spec in model.inputs:
            dims = enumerate(spec.shape or ())
            found[spec.name] = tuple(d if isinstance(d, int) else batch if i == 0 else size for i, d in dims)
        if model.symbol is None:
            is_open = any(not isinstance(d, int) for spec in model.inputs for d in (spec.shape or ())[1:])
            if not is_open or _fits(model, found):
                return found
            continue
        try:
            infer(model.symbol, {**found, **{n: p.shape for n, p in model.params.items()}}, partial=True)
        except ShapeError:
            continue
        return found
    return concrete_shapes(model, batch)


def _fits(model: Model, shapes: dict[str, tuple[int, ...]]) -> bool:
    """Whether an ONNX graph takes inputs of these shapes: the engine can be readied for them."""
    try:
        model.compile(shapes=shapes).close()
    except EngineError:
        return False
    return True


def concrete_shapes(model: Model, batch: int = 1) -> dict[str, tuple[int, ...]]:
    """The input shapes of a model with the open batch filled in, and the image size that its file remembers.

    Raises:
        InputError: another dimension is open; the message says which option gives it.
    """
    found: dict[str, tuple[int, ...]] = {}
    kept = remembered(model)
    for spec in model.inputs:
        dims = tuple(d if isinstance(d, int) else batch if i == 0 else 0 for i, d in enumerate(spec.shape or ()))
        if len(dims) == 4 and kept is not None and kept.size is not None:
            at = 2 if kept.layout == "NCHW" else 1
            dims = (*dims[:at], *(d or s for d, s in zip(dims[at : at + 2], kept.size)), *dims[at + 2 :])
        if not all(dims):
            shown = ",".join(str(d) if d else "?" for d in dims)
            raise InputError(
                "the input's size is not known",
                where=f"{model.source}: input {spec.name!r}",
                got=shown,
                expected="a number for each dimension",
                next=f"give --shape {spec.name}={shown} with numbers in place of ?",
            )
        found[spec.name] = dims
    return found


def preprocess_from(
    model: Model,
    size: tuple[int, int] | None,
    crop: str,
    ratio: float,
    divide: float,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    layout: str,
    rgb: bool,
    channels: int | None = None,
) -> Preprocess:
    """The preprocessing that the image options describe; size and channel count from the model where not given."""
    shape = model.inputs[0].shape or ()
    if len(shape) == 4:
        h, w, c = (shape[2], shape[3], shape[1]) if layout == "NCHW" else (shape[1], shape[2], shape[3])
        if size is None and isinstance(h, int) and isinstance(w, int):
            size = (h, w)
        channels = c if isinstance(c, int) else channels
    color = "gray" if channels == 1 else "rgb" if rgb else "bgr"
    return Preprocess(
        size=size,
        crop=crop,  # type: ignore[arg-type]
        ratio=ratio,
        divide=divide,
        mean=mean,
        std=std,
        layout=layout,  # type: ignore[arg-type]
        color=color,  # type: ignore[arg-type]
    )


def preprocessing(model: Model, image: Mapping[str, Any]) -> tuple[Preprocess, bool]:
    """What the image options say; what they do not say is as the model's file remembers it of its quantization.

    Args:
        image: the values of ``image_options``, by parameter name.
    Returns:
        The preprocessing, and whether some of it is remembered.
    Raises:
        FormatError: the file remembers something that cannot be read.
    """
    kept = remembered(model)
    if kept is not None:
        given = image_options_given(image)
        changed = {("color" if n == "rgb" else n): image[n] for n in given}
        if "color" in changed:
            changed["color"] = "rgb" if changed["color"] else "bgr"
        return dataclasses.replace(kept, **changed), True
    return preprocess_from(model, **image), False


def image_options_given(image: Mapping[str, Any]) -> list[str]:
    """Names of the image options that stand on the command line."""
    context = click.get_current_context()
    return [n for n in image if context.get_parameter_source(n) not in (None, ParameterSource.DEFAULT)]


def remembered(model: Model) -> Preprocess | None:
    """The preprocessing that an ONNX model was quantized with, if its file says so.

    Raises:
        FormatError: it cannot be read.
    """
    text = model.onnx.metadata_props.get(METADATA_KEY) if model.symbol is None else None
    return None if text is None else Preprocess.from_json(text)


def existing(path: str, expected: str = "a file") -> Path:
    """The path, if there is such a file.

    Raises:
        InputError: there is none, or it is a folder.
    """
    found = Path(path)
    if not found.exists():
        names = [p.name for p in found.parent.iterdir()] if found.parent.is_dir() else []
        advice = nearest(found.name, names) if names else f"there is no folder {found.parent}"
        raise InputError("no such file", where=path, expected=expected, next=advice)
    if found.is_dir():
        raise InputError("a folder, not a file", where=path, expected=expected, next="name a file in it")
    return found
