"""``requant.mx.install()``: from then on, ``import mxnet`` in this process means requant.

A finder in ``sys.meta_path`` answers for ``mxnet`` and everything below it. No file is written.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import sys
import types
from collections.abc import Sequence
from types import ModuleType

import numpy as np

from requant.errors import UnsupportedError
from requant.mx import SHORT

log = logging.getLogger(__name__)

_OURS = "requant.mx"
#: Names that numpy dropped in 1.24 and that packages of MXNet's time still use: GluonCV does in a few places.
_NUMPY_NAMES = {"float": float, "int": int, "object": object, "bool": bool, "complex": complex, "str": str}


def translated(name: str) -> str:
    """Our module's name for a module of MXNet: ``mxnet.nd.contrib`` is ``requant.mx.ndarray.contrib``."""
    parts = name.split(".")[1:]
    if parts:
        parts[0] = SHORT.get(parts[0], parts[0])
    return ".".join([_OURS, *parts])


class _Loader(importlib.abc.Loader):
    """Gives one of our modules under MXNet's name."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(translated(spec.name))
        self._own = module.__spec__, module.__loader__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has just written the alias's spec into it: it stays the module that it is.
        module.__spec__, module.__loader__ = self._own


class _Finder(importlib.abc.MetaPathFinder):
    """Answers for ``mxnet`` and what is below it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "mxnet" and not fullname.startswith("mxnet."):
            return None
        ours = translated(fullname)
        try:
            found = importlib.util.find_spec(ours)
        except ModuleNotFoundError:
            found = None
        if found is None:
            return None
        package = found.submodule_search_locations is not None
        return importlib.machinery.ModuleSpec(fullname, _Loader(), is_package=package)


_finder = _Finder()


def install(*, numpy_names: bool = True) -> None:
    """Make ``import mxnet`` mean this library, submodules included; it reports version 1.9.1.

    Call it before anything imports ``mxnet``. Calling it again does nothing.

    Args:
        numpy_names: also give numpy the names ``float``, ``int``, ``object`` and so on that it dropped in version
            1.24, and Python 3.12 and newer the module ``distutils.version``, because packages of MXNet's time
            (GluonCV among them) use them. They are set in this process alone, and a line in the log says so.
    Raises:
        UnsupportedError: a real mxnet is imported already.
    """
    known = sys.modules.get("mxnet")
    ours = importlib.import_module(_OURS)
    if known is not None and known is not ours:
        raise UnsupportedError(
            "the real mxnet is imported already",
            where=getattr(known, "__file__", "mxnet"),
            next="call requant.mx.install() before anything imports mxnet, or leave one of the two out",
        )
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    sys.modules["mxnet"] = ours
    if numpy_names:
        _provide_numpy_names()
        _provide_distutils()


def uninstall() -> None:
    """Undo ``install``: ``mxnet`` is not known any more. Modules that hold our names keep them."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    for name in [n for n in sys.modules if n == "mxnet" or n.startswith("mxnet.")]:
        if sys.modules[name].__name__.startswith(_OURS):
            del sys.modules[name]


def _provide_numpy_names() -> None:
    given = [n for n in _NUMPY_NAMES if n not in vars(np)]
    for name in given:
        setattr(np, name, _NUMPY_NAMES[name])
    if given:
        log.info("numpy gets back in this process: %s", ", ".join(f"numpy.{n}" for n in given))


class LooseVersion:
    """A version that compares number by number: what ``distutils.version`` had until Python 3.12."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.version = [int(p) if p.isdigit() else p for p in text.replace("-", ".").replace("+", ".").split(".")]

    def _key(self) -> list[tuple[int, int | str]]:
        return [(1, p) if isinstance(p, int) else (0, p) for p in self.version]

    def _other(self, other: object) -> list[tuple[int, int | str]]:
        return (other if isinstance(other, LooseVersion) else LooseVersion(str(other)))._key()

    def __lt__(self, other: object) -> bool:
        return self._key() < self._other(other)

    def __le__(self, other: object) -> bool:
        return self._key() <= self._other(other)

    def __gt__(self, other: object) -> bool:
        return self._key() > self._other(other)

    def __ge__(self, other: object) -> bool:
        return self._key() >= self._other(other)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (LooseVersion, str)) and self._key() == self._other(other)

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text


def _provide_distutils() -> None:
    if "distutils" in sys.modules or importlib.util.find_spec("distutils") is not None:
        return
    package, version = types.ModuleType("distutils"), types.ModuleType("distutils.version")
    package.__path__ = []
    version.LooseVersion = LooseVersion  # type: ignore[attr-defined]
    package.version = version  # type: ignore[attr-defined]
    sys.modules["distutils"], sys.modules["distutils.version"] = package, version
    log.info("distutils.version.LooseVersion is provided in this process")
