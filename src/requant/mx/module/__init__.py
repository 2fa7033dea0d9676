"""``mx.mod``: modules, which run a symbol with its parameters over batches."""

from __future__ import annotations

from requant.mx.module.bucketing import BucketingModule
from requant.mx.module.module import Module, ModuleError

__all__ = ["BucketingModule", "Module", "ModuleError"]
