"""The table that ``Block.summary`` prints."""

from __future__ import annotations

from typing import Any

import numpy as np

from requant.mx.gluon.block_base import Block, HookHandle
from requant.mx.gluon.parameter import Parameter
from requant.mx.ndarray.ndarray import NDArray


def _shapes(value: Any) -> Any:
    if isinstance(value, NDArray):
        return value.shape
    if isinstance(value, (list, tuple)):
        return [_shapes(v) for v in value]
    return None


def _count(parameters: list[Parameter]) -> int:
    return sum(int(np.prod(p.shape)) for p in parameters if p.shape is not None)


def print_summary(block: Block, inputs: tuple[Any, ...]) -> None:
    """Run the block once and print output shape and number of parameters of every layer."""
    rows: list[tuple[str, str, int]] = [("Input", str(_shapes(inputs[0] if len(inputs) == 1 else inputs)), 0)]
    hooks: list[HookHandle] = []
    seen: set[int] = set()
    active: list[tuple[Any, bool]] = []

    def attach(layer: Block) -> None:
        if hasattr(layer, "_active"):
            active.append((layer, layer._active))
            if not hasattr(layer, "_symbol"):
                layer._active = False

        def show(done: Block, _: Any, out: Any) -> None:
            own = [p for p in done._reg_params.values() if id(p) not in seen]
            seen.update(id(p) for p in own)
            rows.append((f"{type(done).__name__}-{len(rows)}", str(_shapes(out)), _count(own)))

        hooks.append(layer.register_forward_hook(show))

    block.apply(attach)
    try:
        block(*inputs)
    finally:
        for hook in hooks:
            hook.detach()
        for layer, was in active:
            layer._active = was
    print("-" * 80)
    print(f"{'Layer (type)':>20}  {'Output Shape':>42} {'Param #':>15}")
    print("=" * 80)
    for name, shape, count in rows:
        print(f"{name:>20}  {shape:>42} {count:>15}")
    print("=" * 80)
    whole = list({id(p): p for p in block.collect_params().values()}.values())
    learned = [p for p in whole if p.grad_req != "null"]
    print("Parameters in forward computation graph, duplicate included")
    print(f"   Total params: {_count(whole)}")
    print(f"   Trainable params: {_count(learned)}")
    print(f"   Non-trainable params: {_count(whole) - _count(learned)}")
    print("-" * 80)
