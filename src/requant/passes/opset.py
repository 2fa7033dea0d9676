"""Bring a model to an operator set in which it can be quantized per channel."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from requant.errors import UnsupportedError

#: DequantizeLinear has a channel axis since 13; Squeeze and the Reduce operators have their axes as inputs by then.
OLDEST = 13
_LARGE = 1024


class UpgradeOpset(ir.passes.InPlacePass):
    """Convert a model of an operator set older than 13, by ONNX's own converter. Large weights stay outside of it."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Convert if need be.

        Raises:
            UnsupportedError: ONNX's converter does not know an operator of that age.
        """
        version = model.graph.opset_imports.get("")
        if version is None or version >= OLDEST:
            return ir.passes.PassResult(model, False)
        graph = model.graph
        inputs = list(graph.inputs)
        held = {
            n: v for n, v in graph.initializers.items() if v.const_value is not None and v.const_value.nbytes > _LARGE
        }
        notes = {out.name: dict(node.metadata_props) for node in graph for out in node.outputs}
        try:
            for name, value in held.items():  # seen by the converter as inputs
                tensor = value.const_value
                assert tensor is not None
                value.shape, value.dtype = ir.Shape(list(tensor.shape.numpy())), tensor.dtype
                del graph.initializers[name]
                if value not in inputs:
                    graph.inputs.append(value)
            proto = onnx.version_converter.convert_version(ir.to_proto(model), OLDEST)
        except Exception as fault:
            raise UnsupportedError(
                f"this model of operator set {version} cannot be brought to {OLDEST}",
                where=graph.name,
                got=str(fault).strip().splitlines()[-1][:300] if str(fault).strip() else type(fault).__name__,
                next=f"export it again with opset {OLDEST} or later",
            ) from fault
        converted = ir.from_proto(proto)
        fresh = converted.graph
        weights = [v for v in fresh.inputs if v.name in held]
        for value in weights:
            value.const_value = held[str(value.name)].const_value
            fresh.register_initializer(value)
        kept = [v for v in fresh.inputs if v.name not in held]
        fresh.inputs.clear()
        fresh.inputs.extend(kept)
        for node in fresh:
            for key, text in notes.get(node.outputs[0].name if node.outputs else None, {}).items():
                node.metadata_props[key] = text
        model.graph = fresh
        return ir.passes.PassResult(model, True)
