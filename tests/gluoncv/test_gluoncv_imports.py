"""Every name of MXNet that GluonCV's package imports or reaches through a module is there. Skips without gluoncv."""

from __future__ import annotations

import ast
import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import requant.mx as mx

_SPEC = importlib.util.find_spec("gluoncv")
pytestmark = pytest.mark.skipif(_SPEC is None or _SPEC.origin is None, reason="gluoncv is not installed")

#: Names of MXNet 2.0 that GluonCV tries after those of 1.x.
OF_2_0 = {"mxnet.gluon.metric"}


def files() -> list[Path]:
    """Its modules, but those for PyTorch."""
    assert _SPEC is not None and _SPEC.origin is not None
    return [f for f in sorted(Path(_SPEC.origin).parent.rglob("*.py")) if "torch" not in f.parts]


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Name in the file, and what of MXNet it is."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for a in node.names:
                if a.name.split(".")[0] == "mxnet":
                    yield (a.asname, a.name) if a.asname else ("mxnet", a.name)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module not in OF_2_0:
            module = node.module or ""
            if module.split(".")[0] == "mxnet":
                yield from ((a.asname or a.name, f"{module}.{a.name}") for a in node.names)


def found(name: str) -> Any:
    """A module, or a name of one."""
    try:
        return importlib.import_module(name)
    except ImportError:
        module, _, last = name.rpartition(".")
        return getattr(importlib.import_module(module), last)


def chains(tree: ast.AST, known: dict[str, str]) -> Iterator[list[str]]:
    """``mx.nd.contrib.box_nms`` as a list, for names that stand for something of MXNet."""
    for node in ast.walk(tree):
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.insert(0, node.attr)
            node = node.value
        if parts and isinstance(node, ast.Name) and node.id in known:
            yield [known[node.id], *parts]


def test_every_name_is_there() -> None:
    mx.install()
    missing = set()
    count = 0
    for file in files():
        tree = ast.parse(file.read_text())
        names = dict(imported(tree))
        for name in names.values():
            try:
                found(name)
            except (ImportError, AttributeError):
                missing.add(f"{file.name}: {name}")
        modules = {n: "mxnet" if n == "mxnet" else full for n, full in names.items()}
        for first, *rest in chains(tree, modules):
            count += 1
            try:
                value = found(first)
                for part in rest:
                    value = getattr(value, part)
            except (ImportError, AttributeError):
                missing.add(f"{file.name}: {'.'.join([first, *rest])}")
    assert not missing, sorted(missing)
    assert count > 1000
