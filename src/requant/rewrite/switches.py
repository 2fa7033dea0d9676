"""MXNet's environment switches for fusing."""

from __future__ import annotations

import os


def switched_off(what: str) -> bool:
    """MXNet's environment switches: ``MXNET_DISABLE_MKLDNN_<what>`` set to something else than 0."""
    return os.environ.get(f"MXNET_DISABLE_MKLDNN_{what}", "0") not in ("", "0")
