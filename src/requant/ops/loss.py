"""Loss heads: what they give at inference. Their labels are needed in training alone and are cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from requant.attrs import Attrs
from requant.ops.elementwise import NoAttrs
from requant.ops.emit import Emit, Value
from requant.ops.registry import Shape, known, op, product, same_shape

Normalization = Literal["null", "batch", "valid"]


@dataclass(frozen=True)
class SoftmaxOutputAttrs(Attrs):
    grad_scale: float = 1.0
    ignore_label: float = -1.0
    multi_output: bool = False
    use_ignore: bool = False
    preserve_shape: bool = False
    normalization: Normalization = "null"
    out_grad: bool = False
    smooth_alpha: float = 0.0


def _label_shape(a: SoftmaxOutputAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    data = known(shapes, "data") or shapes["output"]
    if data is None:
        return {}
    if shapes["label"] is not None:  # several shapes fit: (N, H, W) and (N, H · W), for instance
        return {"data": data}
    return {"data": data, "label": (data[0], product(data[2:])) if a.multi_output and len(data) > 2 else data[:-1]}


@op("SoftmaxOutput", "Softmax", inputs=("data", "label"), labels=("label",), param_shapes=_label_shape)
def softmax_output(g: Emit, a: SoftmaxOutputAttrs, data: Value, label: Value | None = None) -> Value:
    """Softmax over axis 1 if ``multi_output``, over the last if ``preserve_shape``, else over all axes but 0."""
    rank = g.rank(data)
    if a.multi_output:
        return g("Softmax", data, axis=1)
    if a.preserve_shape or rank <= 2:
        return g("Softmax", data, axis=-1)
    flat = g("Softmax", g("Flatten", data, axis=1), axis=-1)
    inner = g.dims(data)[1:]
    out = g.reshape(flat, [0, *(d for d in inner if d is not None)] if None not in inner else [g.size_of(data)])
    return g.set_shape(out, data.shape or ())


@dataclass(frozen=True)
class RegressionAttrs(Attrs):
    grad_scale: float = 1.0


def _target_shape(a: RegressionAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    data = shapes["data"] or shapes["output"]
    if data is None:
        return {}
    if shapes["label"] is not None:
        return {"data": data}
    return {"data": data, "label": data[:1] if len(data) == 2 and data[1] == 1 else data}


@op("MAERegressionOutput", inputs=("data", "label"), labels=("label",), param_shapes=_target_shape)
@op("LinearRegressionOutput", inputs=("data", "label"), labels=("label",), param_shapes=_target_shape)
def regression_output(g: Emit, a: RegressionAttrs, data: Value, label: Value | None = None) -> Value:
    """The prediction itself."""
    return data


@op("LogisticRegressionOutput", inputs=("data", "label"), labels=("label",), param_shapes=_target_shape)
def logistic_regression_output(g: Emit, a: RegressionAttrs, data: Value, label: Value | None = None) -> Value:
    """The sigmoid of the prediction."""
    return g("Sigmoid", data)


@dataclass(frozen=True)
class SVMOutputAttrs(Attrs):
    margin: float = 1.0
    regularization_coefficient: float = 1.0
    use_linear: bool = False


def _class_shape(a: SVMOutputAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    data = shapes["data"] or shapes["output"]
    return {} if data is None else {"data": data, "label": data[:1]}


@op("SVMOutput", inputs=("data", "label"), labels=("label",), param_shapes=_class_shape)
def svm_output(g: Emit, a: SVMOutputAttrs, data: Value, label: Value | None = None) -> Value:
    """The scores themselves."""
    return data


@dataclass(frozen=True)
class MakeLossAttrs(Attrs):
    grad_scale: float = 1.0
    valid_thresh: float = 0.0
    normalization: Normalization = "null"


@op("MakeLoss", training=True, param_shapes=same_shape)
def make_loss_v1(g: Emit, a: MakeLossAttrs, data: Value) -> Value:
    """The loss itself."""
    return data


@op("make_loss", "_npx_make_loss", outputs=("loss",), named_outputs=True, training=True, param_shapes=same_shape)
def make_loss(g: Emit, a: NoAttrs, data: Value) -> Value:
    """The loss itself."""
    return data


@dataclass(frozen=True)
class KLSparseAttrs(Attrs):
    sparseness_target: float = 0.1
    penalty: float = 0.001
    momentum: float = 0.9


def _average_shape(a: KLSparseAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    data = shapes["data"] or shapes["output"]
    if data is None:
        return {}
    return {"data": data, **({"moving_avg": (data[1],)} if len(data) > 1 and data[1] else {})}


@op(
    "IdentityAttachKLSparseReg",
    inputs=("data", "moving_avg"),
    aux=("moving_avg",),
    param_shapes=_average_shape,
    default_init={"moving_avg": '["zero", {}]'},
)
def identity_attach_kl_sparse_reg(g: Emit, a: KLSparseAttrs, data: Value, moving_avg: Value) -> Value:
    """The data itself; the penalty on the activations' mean acts on gradients alone."""
    return data
