"""What programs pass to the calls of this package by mistake, refused before any work is done for it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from pathlib import Path

from requant import engines
from requant.errors import InputError, shown
from requant.formats.target import check_file, check_name


def check_engine(engine: object, where: str) -> None:
    """Refuse a second array in the place of an engine's name.

    Raises:
        InputError: it is no name.
    """
    if not isinstance(engine, str):
        raise InputError(
            "not the name of an engine",
            where=where,
            got=shown(engine),
            expected=" or ".join(repr(n) for n in engines.names()),
            next="several inputs go in one list or dict: run([a, b]) or run({'data': a, 'mask': b})",
        )


def check_kind(value: object, kind: type, where: str, todo: str) -> None:
    """Refuse an argument of another kind.

    Args:
        todo: what to pass.
    Raises:
        InputError: it is of another kind.
    """
    if not isinstance(value, kind):
        what = "an argument of the wrong kind"
        raise InputError(what, where=where, got=shown(value), expected=kind.__name__, next=todo)


def check_sizes(shapes: object, where: str, named: bool = True) -> None:
    """Refuse shapes that are not sizes by input name.

    Args:
        shapes: what a program passed; None and a name are sizes that stay open, as are 0 and -1 in MXNet's words.
        named: those may be there; else None alone.
        where: the call and its argument.
    Raises:
        InputError: they are something else.
    """
    if shapes is None or (isinstance(shapes, Mapping) and all(_is_shape(s, named) for s in shapes.values())):
        return
    raise InputError(
        "not shapes of inputs",
        where=where,
        got=shown(shapes),
        expected="sizes by input name",
        next="shapes={'data': (1, 3, 224, 224)}",
    )


def _is_shape(shape: object, named: bool) -> bool:
    if not isinstance(shape, Sequence) or isinstance(shape, (str, bytes)):
        return False
    sizes = [d for d in shape if d is not None and not (named and isinstance(d, str))]
    return all(isinstance(d, Integral) and int(d) >= (-1 if named else 0) for d in sizes)


def check_types(dtypes: object, where: str) -> None:
    """Refuse dtypes that are not given by input name.

    Raises:
        InputError: they are something else.
    """
    if dtypes is not None and not isinstance(dtypes, Mapping):
        raise InputError(
            "not dtypes of inputs",
            where=where,
            got=shown(dtypes),
            expected="a dtype by input name",
            next="dtypes={'data': 'float16'}",
        )


def check_batches(batches: object, where: str) -> None:
    """Refuse what cannot be gone through batch by batch.

    Raises:
        InputError: it is no iterable, or a text.
    """
    if isinstance(batches, (str, bytes)) or not isinstance(batches, Iterable):
        raise InputError(
            "not batches",
            where=where,
            got=shown(batches),
            expected="an iterable of what run() takes",
            next="for one batch call run(x); for many pass a list or generator of arrays",
        )


def check_count(value: object, where: str) -> None:
    """Refuse what counts nothing.

    Raises:
        InputError: it is no whole number, or below 1.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
        raise InputError("not a count", where=where, got=shown(value), expected="a whole number, 1 or more")


def names_of(given: object, where: str) -> tuple[str, ...]:
    """Names that a program passed, alone or many.

    Raises:
        InputError: they are no names.
    """
    found = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else (given,)
    names = tuple(n for n in found if isinstance(n, str))
    if len(names) != len(found):
        raise InputError(
            "not names", where=where, got=shown(given), expected="a str, or several", next="print(plan) shows all names"
        )
    return names


def check_functions(metric: object, progress: object) -> None:
    """Refuse what cannot be called.

    Raises:
        InputError: it cannot.
    """
    kinds = {
        "metric": (metric, "a function of an iterator over (inputs, outputs) that returns a number"),
        "progress": (progress, "a function of (samples done, samples in all)"),
    }
    for name, (given, expected) in kinds.items():
        if given is not None and not callable(given):
            next_ = "pass the function itself, or leave it out"
            raise InputError(
                f"not a {name}", where=f"quantize: {name}", got=shown(given), expected=expected, next=next_
            )


def check_notes(metadata: object) -> None:
    """Refuse metadata that a file cannot hold.

    Raises:
        InputError: they are no texts by name.
    """
    pairs = metadata.items() if isinstance(metadata, Mapping) else ()
    fits = isinstance(metadata, Mapping) and all(isinstance(k, str) and isinstance(v, str) for k, v in pairs)
    if metadata is not None and not fits:
        raise InputError(
            "not notes for a file",
            where="quantize: metadata",
            got=shown(metadata),
            expected="texts by name",
            next="turn values into text: json.dumps(value)",
        )


def check_table(table: str | os.PathLike[str]) -> None:
    """Refuse a name under which there is no table and none can be written.

    Raises:
        InputError: it is no name, or a folder, or in none.
    """
    expected = "a table, or a name to write one under, such as net.calib.json"
    check_name(table, "quantize: table", expected)
    if not Path(table).is_file():
        check_file(table, expected)
