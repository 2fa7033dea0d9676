"""Every fact about an operator: attributes, defaults, names, lowering. One file per family.

Importing this package registers all operators: the families are found by listing the folder.
"""

from __future__ import annotations

import importlib
import pkgutil

_NOT_FAMILIES = {"registry", "emit"}

for _module in pkgutil.iter_modules(__path__):
    if _module.name not in _NOT_FAMILIES:
        importlib.import_module(f"{__name__}.{_module.name}")
