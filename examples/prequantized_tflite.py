"""Bring an int8 network of TensorFlow Lite over by hand: its weights, scales and zero points, in MXNet's operators.

    python examples/prequantized_tflite.py model.tflite images.npz [--count 1000]

`images.npz` holds ``x`` (N, height, width, 3), uint8 pixels, and ``y`` (N,), class numbers. (``requant.load`` runs such
a file in one line; this shows how to build it, or any other network whose integers come from elsewhere, yourself.)

TFLite's real numbers are ``scale × (q − zero point)``; MXNet's integers are symmetric around zero. So here:

- An int8 activation q is kept as uint8, ``u = q + 128``, with the zero point ``z``, its own + 128. The operators get it
  with the range 0..255: an integer stands for itself.
- ``quantized_conv`` then sums ``w × u`` exactly. What belongs to the zero point, ``z × Σ w``, is a constant of each
  output channel, as is the bias: both go into ``shift``. Where a window hangs over the edge, u is padded with z.
- Scales of all kinds, one for each channel too, end up in one factor ``scale_in × scale_w / scale_out``.

So every layer is: sum integers, times ``scale``, plus ``shift``, saturate to uint8.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np

import requant.mx as mx
from requant.errors import UnsupportedError
from requant.formats import tflite
from requant.mx import gluon

#: The largest integer, and what MXNet divides by where ranges of two tensors meet (quantized_elemwise_add, pooling).
BITS8, LEVELS = 255.0, 255.5


class PrequantizedNet(gluon.HybridBlock):
    """A TFLite int8 network as a block.

    It takes real numbers, (N, height, width, channels) as the file has them, and returns real numbers. It runs
    imperatively, composes symbols, and hybridizes.

    Raises:
        UnsupportedError: an operator, a data type or a form that these operators cannot express; it is named.
    """

    def __init__(self, model: tflite.TFLiteModel, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._model = model
        self._arrays: dict[str, np.ndarray] = {}
        self._plan: list[tuple[tflite.Operator, dict[str, Any]]] = []
        for i, number in enumerate((0.0, BITS8, -127.0, 127.0, LEVELS)):
            self._keep(("low", "high", "weight_low", "weight_high", "levels")[i], np.array([number], np.float32))
        for op in model.operators:
            prepare = getattr(self, f"_prepare_{op.kind.lower()}", None)
            if prepare is None:
                raise self._refuse(op, f"requant has no example of the TFLite operator {op.kind}")
            self._plan.append((op, prepare(op, f"{op.kind.lower()}{len(self._plan)}")))
        with self.name_scope():
            for name, array in self._arrays.items():
                setattr(self, name, self.params.get(name, shape=array.shape, dtype=array.dtype.name, init="zeros"))
        self.initialize()
        for name, array in self._arrays.items():
            getattr(self, name).set_data(mx.nd.array(array, dtype=array.dtype.name))

    # -- what the file says --------------------------------------------------------------------------------------------

    def _keep(self, name: str, array: np.ndarray) -> str:
        self._arrays[name] = array
        return name

    def _refuse(self, op: tflite.Operator, why: str) -> UnsupportedError:
        inputs = [self._model.tensors[i] for i in op.inputs if i >= 0]
        return UnsupportedError(
            why,
            where=f"{self._model.source}: {self._model.name(op)!r} ({op.kind})",
            got=", ".join(f"{t.dtype} {t.shape}" for t in inputs),
            next="requant.load reads more kinds of TFLite files",
        )

    def _tensor(self, op: tflite.Operator, index: int) -> tflite.Tensor:
        """The record of an activation, which must be 8 bits with one scale."""
        tensor = self._model.tensors[index]
        if tensor.dtype not in ("int8", "uint8") or tensor.scale.size != 1:
            raise self._refuse(op, f"{tensor.name!r} is {tensor.dtype}, not int8 or uint8 with one scale")
        return tensor

    def _zero(self, tensor: tflite.Tensor) -> float:
        """The zero point among 0..255."""
        return float(tensor.zero_point[0]) + (128 if tensor.dtype == "int8" else 0)

    def _ends(self, op: tflite.Operator, out: tflite.Tensor) -> tuple[float, float]:
        """Where the fused activation cuts, in integers."""
        zero, one = self._zero(out), float(out.scale[0])
        low = {"": 0.0, "RELU": zero, "RELU6": zero}.get(op.options.get("activation", ""))
        if low is None:
            raise self._refuse(op, f"the activation {op.options['activation']} is not relu or relu6")
        return low, min(BITS8, zero + round(6 / one)) if op.options.get("activation") == "RELU6" else BITS8

    def _linear(self, op: tflite.Operator, name: str, order: tuple[int, ...], channel: int) -> dict[str, Any]:
        """Weight, scale and shift of a layer that sums products."""
        data, out = self._tensor(op, op.inputs[0]), self._tensor(op, op.outputs[0])
        weight = self._model.tensors[op.inputs[1]]
        if weight.dtype != "int8" or weight.zero_point.any() or weight.data is None:
            raise self._refuse(op, f"the weight is {weight.dtype}, not a constant int8 one with zero point 0")
        if weight.scale.size > 1 and weight.axis != channel:
            raise self._refuse(op, f"the weight has scales along axis {weight.axis}")
        w = np.ascontiguousarray(weight.data.transpose(order))
        factor = data.scale.astype(np.float64) * weight.scale
        shift = -self._zero(data) * w.reshape(len(w), -1).astype(np.float64).sum(1) * factor
        if len(op.inputs) > 2 and op.inputs[2] >= 0:
            bias = self._model.tensors[op.inputs[2]]
            if bias.data is None or bias.dtype != "int32":
                raise self._refuse(op, f"the bias is {bias.dtype}, not a constant int32 one")
            shift = shift + bias.data * factor
        shape = (1, -1, *[1] * (w.ndim - 2))
        scale = np.broadcast_to(factor / out.scale, len(w))
        return {
            "weight": self._keep(f"{name}_weight", w),
            "scale": self._keep(f"{name}_scale", scale.reshape(shape).astype(np.float32)),
            "shift": self._keep(
                f"{name}_shift", (shift / out.scale + self._zero(out)).reshape(shape).astype(np.float32)
            ),
            "ends": self._ends(op, out),
        }

    def _window(self, op: tflite.Operator, kernel: tuple[int, ...]) -> dict[str, Any]:
        """Kernel, stride, dilation and pads (before and after, height and width) of a layer with windows."""
        o, size = op.options, self._model.tensors[op.inputs[0]].shape[1:3]
        stride, dilate = (o["stride_h"], o["stride_w"]), (o.get("dilation_h", 1), o.get("dilation_w", 1))
        pads = []
        for n, k, s, d in zip(size, kernel, stride, dilate):
            whole = max((math.ceil(n / s) - 1) * s + (k - 1) * d + 1 - n, 0) if o["padding"] == "SAME" else 0
            pads += [whole // 2, whole - whole // 2]
        return {"kernel": kernel, "stride": stride, "dilate": dilate, "pads": pads}

    def _prepare_conv_2d(self, op: tflite.Operator, name: str, depthwise: bool = False) -> dict[str, Any]:
        made = self._linear(op, name, (3, 0, 1, 2) if depthwise else (0, 3, 1, 2), 3 if depthwise else 0)
        filters, each, *kernel = self._arrays[made["weight"]].shape
        groups = self._model.tensors[op.inputs[0]].shape[3] // each
        zero = self._zero(self._tensor(op, op.inputs[0]))
        return {**made, **self._window(op, tuple(kernel)), "filters": filters, "groups": groups, "zero": zero}

    def _prepare_depthwise_conv_2d(self, op: tflite.Operator, name: str) -> dict[str, Any]:
        return self._prepare_conv_2d(op, name, depthwise=True)

    def _prepare_fully_connected(self, op: tflite.Operator, name: str) -> dict[str, Any]:
        return self._linear(op, name, (0, 1), 0)

    def _prepare_add(self, op: tflite.Operator, name: str) -> dict[str, Any]:
        sides, out = [self._tensor(op, i) for i in op.inputs], self._tensor(op, op.outputs[0])
        if any(t.data is not None or t.shape != out.shape for t in sides):
            raise self._refuse(op, "only two computed tensors of one shape are added here")
        parts = [float(t.scale[0]) / float(out.scale[0]) for t in sides]  # output integers for one of the input's
        shift = self._zero(out) - sum(p * self._zero(t) for p, t in zip(parts, sides))
        reach = [self._keep(f"{name}_high{i}", np.array([p * LEVELS], np.float32)) for i, p in enumerate(parts)]
        unit = sum(parts) * LEVELS / 2147483647
        image = len(out.shape) == 4
        return {"reach": reach, "unit": unit, "shift": shift, "ends": self._ends(op, out), "image": image}

    def _prepare_average_pool_2d(self, op: tflite.Operator, name: str) -> dict[str, Any]:
        self._alike(op)
        made = self._window(op, (op.options["filter_h"], op.options["filter_w"]))
        if made["pads"][0::2] != made["pads"][1::2]:
            raise self._refuse(op, f"pads differ before and after: {made['pads']}")
        return {**made, "type": "avg" if op.kind == "AVERAGE_POOL_2D" else "max"}

    _prepare_max_pool_2d = _prepare_average_pool_2d

    def _alike(self, op: tflite.Operator) -> None:
        """Refuse an operator whose input and output have other scales, where TFLite has none such."""
        tensors = [self._tensor(op, i) for i in (*op.inputs[:1], *op.outputs)]
        if len({(float(t.scale[0]), self._zero(t)) for t in tensors}) > 1 or op.options.get("activation"):
            raise self._refuse(op, "input and output have different scales")

    def _prepare_concatenation(self, op: tflite.Operator, name: str) -> dict[str, Any]:
        for i in op.inputs:
            self._alike(tflite.Operator(op.kind, (i,), op.outputs, op.options))
        rank = len(self._model.tensors[op.outputs[0]].shape)
        axis = op.options["axis"] % rank
        return {"axis": {1: 2, 2: 3, 3: 1}.get(axis, axis) if rank == 4 else axis}

    def _prepare_reshape(self, op: tflite.Operator, name: str) -> dict[str, Any]:
        self._alike(op)
        shape = self._model.tensors[op.outputs[0]].shape
        if len(shape) != 2:
            raise self._refuse(op, f"only flattening is built here, not to {shape}")
        return {"transposed": len(self._model.tensors[op.inputs[0]].shape) == 4}

    def _prepare_rescale(self, op: tflite.Operator, name: str) -> dict[str, Any]:
        data, out = self._tensor(op, op.inputs[0]), self._tensor(op, op.outputs[0])
        scale = float(data.scale[0]) / float(out.scale[0])
        return {"scale": scale, "shift": self._zero(out) - scale * self._zero(data), "ends": (0.0, BITS8)}

    _prepare_quantize = _prepare_rescale

    def _prepare_mean(self, op: tflite.Operator, name: str) -> dict[str, Any]:
        axes = self._model.tensors[op.inputs[1]].data
        if axes is None or sorted(int(a) % 4 for a in axes.reshape(-1)) != [1, 2]:
            raise self._refuse(op, "only the mean over height and width is built here")
        return {**self._prepare_rescale(op, name), "keep": op.options["keep_dims"]}

    def _prepare_softmax(self, op: tflite.Operator, name: str) -> dict[str, Any]:
        data, out = self._tensor(op, op.inputs[0]), self._tensor(op, op.outputs[0])
        return {"by": op.options["beta"] * float(data.scale[0]), "out": (float(out.scale[0]), self._zero(out))}

    # -- what is computed ----------------------------------------------------------------------------------------------

    def hybrid_forward(self, F: Any, x: Any, **p: Any) -> Any:
        first = self._model.tensors[self._model.inputs[0]]
        if len(first.shape) == 4:
            x = F.transpose(x, axes=(0, 3, 1, 2))
        values = {self._model.inputs[0]: self._integers(F, p, x * (1 / float(first.scale[0])) + self._zero(first))}
        for op, made in self._plan:
            run = getattr(self, f"_{op.kind.lower()}")
            values[op.outputs[0]] = run(F, p, made, *[values[i] for i in op.inputs if i in values])
        last = self._model.tensors[self._model.outputs[0]]
        out = F.contrib.dequantize(values[self._model.outputs[0]], p["low"], p["levels"])
        return (out - self._zero(last)) * float(last.scale[0])

    def _integers(self, F: Any, p: dict[str, Any], y: Any, ends: tuple[float, float] = (0.0, BITS8)) -> Any:
        """Numbers in units of integers, cut where an activation cuts, rounded and saturated."""
        if ends != (0.0, BITS8):
            y = F.clip(y, a_min=ends[0], a_max=ends[1])
        return F.contrib.quantize(y, p["low"], p["high"], out_type="uint8")[0]

    def _conv_2d(self, F: Any, p: dict[str, Any], made: dict[str, Any], u: Any) -> Any:
        top, bottom, left, right = made["pads"]
        pad = (top, left)
        if (made["zero"] and any(made["pads"])) or top != bottom or left != right:
            width = (0, 0, 0, 0, top, bottom, left, right)
            u = F.pad(u, mode="constant", pad_width=width, constant_value=made["zero"])
            pad = (0, 0)
        sums = F.contrib.quantized_conv(
            **self._operands(p, made, u),
            kernel=made["kernel"],
            stride=made["stride"],
            dilate=made["dilate"],
            pad=pad,
            num_filter=made["filters"],
            num_group=made["groups"],
            no_bias=True,
        )[0]
        return self._scaled(F, p, made, sums)

    _depthwise_conv_2d = _conv_2d

    def _fully_connected(self, F: Any, p: dict[str, Any], made: dict[str, Any], u: Any) -> Any:
        sums = F.contrib.quantized_fully_connected(
            **self._operands(p, made, u),
            num_hidden=len(self._arrays[made["weight"]]),
            no_bias=True,
        )[0]
        return self._scaled(F, p, made, sums)

    def _operands(self, p: dict[str, Any], made: dict[str, Any], u: Any) -> dict[str, Any]:
        """Data and weight of a product, with their ranges, as MXNet's int8 operators name them."""
        return {
            "data": u,
            "weight": p[made["weight"]],
            "min_data": p["low"],
            "max_data": p["high"],
            "min_weight": p["weight_low"],
            "max_weight": p["weight_high"],
        }

    def _scaled(self, F: Any, p: dict[str, Any], made: dict[str, Any], sums: Any) -> Any:
        y = F.broadcast_mul(F.cast(sums, dtype="float32"), p[made["scale"]])
        return self._integers(F, p, F.broadcast_add(y, p[made["shift"]]), made["ends"])

    def _add(self, F: Any, p: dict[str, Any], made: dict[str, Any], a: Any, b: Any) -> Any:
        first, second = (p[name] for name in made["reach"])
        if made["image"]:
            # OpenVINO merges a convolution with the sum behind it, and then leaves out the rounding in between; a
            # pooling of single positions keeps them apart.
            a, b = (
                F.contrib.quantized_pooling(u, p["low"], p["levels"], kernel=(1, 1), pool_type="max")[0] for u in (a, b)
            )
        sums = F.contrib.quantized_elemwise_add(a, b, p["low"], first, p["low"], second)[0]
        return self._integers(F, p, F.cast(sums, dtype="float32") * made["unit"] + made["shift"], made["ends"])

    def _average_pool_2d(self, F: Any, p: dict[str, Any], made: dict[str, Any], u: Any) -> Any:
        return F.contrib.quantized_pooling(
            u,
            p["low"],
            p["levels"],
            kernel=made["kernel"],
            stride=made["stride"],
            pad=tuple(made["pads"][0::2]),
            pool_type=made["type"],
            count_include_pad=False,
        )[0]

    _max_pool_2d = _average_pool_2d

    def _concatenation(self, F: Any, p: dict[str, Any], made: dict[str, Any], *parts: Any) -> Any:
        ends = [p["low"], p["levels"]] * len(parts)
        return F.contrib.quantized_concat(*parts, *ends, num_args=len(parts), dim=made["axis"])[0]

    def _reshape(self, F: Any, p: dict[str, Any], made: dict[str, Any], u: Any) -> Any:
        u = F.transpose(u, axes=(0, 2, 3, 1)) if made["transposed"] else u
        return F.contrib.quantized_flatten(u, p["low"], p["levels"])[0]

    def _quantize(self, F: Any, p: dict[str, Any], made: dict[str, Any], u: Any) -> Any:
        return self._integers(F, p, F.cast(u, dtype="float32") * made["scale"] + made["shift"])

    def _mean(self, F: Any, p: dict[str, Any], made: dict[str, Any], u: Any) -> Any:
        y = F.mean(F.cast(u, dtype="float32"), axis=(2, 3), keepdims=made["keep"])
        return self._integers(F, p, y * made["scale"] + made["shift"])

    def _softmax(self, F: Any, p: dict[str, Any], made: dict[str, Any], u: Any) -> Any:
        scale, zero = made["out"]
        return self._integers(F, p, F.softmax(F.cast(u, dtype="float32") * made["by"], axis=-1) * (1 / scale) + zero)


def accuracy(net: gluon.HybridBlock, images: np.ndarray, labels: np.ndarray, batch: int = 100) -> float:
    """The share of images whose largest score is that of their class."""
    found = [net(mx.nd.array(images[i : i + batch].astype(np.float32))).asnumpy() for i in range(0, len(images), batch)]
    return float((np.concatenate(found).argmax(1) == labels).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", help="a .tflite file with int8 weights")
    parser.add_argument("images", help=".npz with x (N, height, width, channels) and y (N,)")
    parser.add_argument("--count", type=int, default=1000, help="how many images")
    args = parser.parse_args()
    net = PrequantizedNet(tflite.read(args.model))
    with np.load(args.images) as file:
        images, labels = file["x"][: args.count], file["y"][: args.count]
    net.hybridize()
    print(f"{100 * accuracy(net, images, labels):.1f} % of {len(images)} images")


if __name__ == "__main__":
    main()
