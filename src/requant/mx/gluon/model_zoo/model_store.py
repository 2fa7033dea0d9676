"""Trained parameters in local files; nothing is downloaded."""

from __future__ import annotations

import os
from pathlib import Path

from requant.errors import UnsupportedError


def default_root() -> str:
    """Where MXNet keeps parameter files: ``$MXNET_HOME/models``, or ``~/.mxnet/models``."""
    return os.path.join(os.environ.get("MXNET_HOME", os.path.join("~", ".mxnet")), "models")


def get_model_file(name: str, root: str | None = None) -> str:
    """The parameter file of a network: ``<name>.params`` or ``<name>-<hash>.params`` in ``root``.

    Raises:
        UnsupportedError: it is not there; the message says where to put it.
    """
    folder = Path(os.path.expanduser(root or default_root()))
    found = [folder / f"{name}.params", *sorted(folder.glob(f"{name}-????????.params"))]
    for path in found:
        if path.is_file():
            return str(path)
    raise UnsupportedError(
        "trained parameters are not here, and requant fetches nothing from the network",
        where=f"{name}(pretrained=True)",
        expected=f"{folder / (name + '.params')}, or {name}-<hash>.params as MXNet names it",
        next="copy the file from a machine that has it, or use pretrained=False",
    )
