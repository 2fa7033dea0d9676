"""What was measured on this machine, kept in a JSON file: a search that was interrupted goes on from there.

Figures are filed under the model's fingerprint, the machine, the engine's version and the shapes: those of another
model or machine stay in the file and are not looked at.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from requant.errors import FormatError
from requant.formats.atomic import atomic_write

FORMAT, VERSION = "requant measurements", 1


class Measurements:
    """The figures of one model on one machine: a dict of plain values that is written whenever it grows.

    Args:
        path: the file; None keeps the figures in memory alone.
        facts: what the figures depend on.

    Raises:
        FormatError: the file is there and holds something else.
    """

    def __init__(self, path: str | os.PathLike[str] | None, facts: Mapping[str, object]) -> None:
        self.path = None if path is None else os.fspath(path)
        self._all: dict[str, Any] = {} if self.path is None else _read(self.path)
        self._key = hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:32]
        entry = self._all.setdefault(self._key, {"facts": {k: str(v) for k, v in facts.items()}, "figures": {}})
        self._figures: dict[str, Any] = entry["figures"]

    def get(self, name: str) -> Any:
        """A figure, or None."""
        return self._figures.get(name)

    def put(self, name: str, value: Any) -> None:
        """Keep a figure, and write the file.

        Raises:
            OSError: the file cannot be written.
        """
        self._figures[name] = value
        if self.path is not None:
            with atomic_write(self.path) as file:
                body = {"format": FORMAT, "version": VERSION, "entries": self._all}
                file.write(json.dumps(body, indent=1).encode() + b"\n")

    def __len__(self) -> int:
        return len(self._figures)


def _read(path: str) -> dict[str, Any]:
    if not Path(path).exists():
        return {}
    try:
        body = json.loads(Path(path).read_text(encoding="utf-8"))
        if body["format"] != FORMAT or body["version"] != VERSION:
            raise FormatError(
                "not a file of measurements of this version",
                where=path,
                got=(body["format"], body["version"]),
                expected=(FORMAT, VERSION),
                next="remove it, or name another file",
            )
        entries: dict[str, Any] = body["entries"]
        for entry in entries.values():
            if not isinstance(entry["figures"], dict):
                raise TypeError("figures are no mapping")
        return entries
    except (KeyError, TypeError, AttributeError, ValueError) as fault:
        if isinstance(fault, FormatError):
            raise
        raise FormatError(
            "this is not a file of measurements",
            where=path,
            got=f"{type(fault).__name__}: {fault}"[:200],
            next="remove it, or name another file",
        ) from fault
