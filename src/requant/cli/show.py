"""How results are shown: tables for people, JSON for machines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table


def console(stderr: bool = False) -> Console:
    """A console that wraps at the terminal's width, and at 120 where there is none."""
    found = Console(stderr=stderr, highlight=False, soft_wrap=False)
    return found if found.is_terminal else Console(stderr=stderr, highlight=False, width=120)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; numbers stand right."""
    rows = [list(r) for r in rows]
    made = Table(title=title, title_justify="left", title_style="bold")
    for i, name in enumerate(columns):
        numeric = bool(rows) and all(isinstance(r[i], (int, float)) or str(r[i])[:1].isdigit() for r in rows)
        made.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        made.add_row(*[f"{v:,}" if isinstance(v, int) else str(v) for v in row])
    console().print(made)


def progress() -> Progress:
    """A progress bar with the time that is left, on stderr; hidden where stderr is no terminal."""
    out = console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=out,
        transient=True,
        disable=not out.is_terminal,
    )


def as_json(value: Any) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(value, indent=2, default=_plain))


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return str(value)


def mebibytes(count: int) -> str:
    """Bytes in words."""
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"


def dims(shape: Sequence[object] | None) -> str:
    """A shape in words; ? is a dimension that is open."""
    return "?" if shape is None else "(" + ", ".join("?" if d is None else str(d) for d in shape) + ")"
