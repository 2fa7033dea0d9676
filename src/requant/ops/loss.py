"""Loss heads: what they give at inference. Their labels are needed in training alone and are cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from requant.attrs import Attrs
from requant.ops.emit import Emit, Value
from requant.ops.registry import Shape, op


@dataclass(frozen=True)
class SoftmaxOutputAttrs(Attrs):
    grad_scale: float = 1.0
    ignore_label: float = -1.0
    multi_output: bool = False
    use_ignore: bool = False
    preserve_shape: bool = False
    normalization: str = "null"
    out_grad: bool = False
    smooth_alpha: float = 0.0


def _label_shape(a: SoftmaxOutputAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    data = shapes["data"]
    if data is None:
        return {}
    if a.multi_output:
        return {"label": (data[0], *data[2:])}
    return {"label": data[:-1]}


@op("SoftmaxOutput", "Softmax", inputs=("data", "label"), labels=("label",), param_shapes=_label_shape)
def softmax_output(g: Emit, a: SoftmaxOutputAttrs, data: Value, label: Value | None = None) -> Value:
    """Softmax over axis 1 if ``multi_output``, over the last if ``preserve_shape``, else over all axes but 0."""
    rank = g.rank(data)
    if a.multi_output:
        return g("Softmax", data, axis=1)
    if a.preserve_shape or rank == 2:
        return g("Softmax", data, axis=-1)
    flat = g("Softmax", g("Flatten", data, axis=1), axis=-1)
    return g("Reshape", flat, g.size_of(data))
