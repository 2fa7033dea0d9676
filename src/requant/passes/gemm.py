"""Bring matrix products with constant weights to one form: Gemm with alpha = beta = 1 and its bias inside."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from requant.passes.rewrite import (
    NodePass,
    absorb,
    attribute,
    constant,
    is_float,
    maker,
    rank,
    replace_constant,
    replace_node,
)


class MatMulToGemm(NodePass):
    """``MatMul(x, W) + b`` with x of rank 2 becomes ``Gemm(x, W, b)``: engines fuse the bias and quantize it as one."""

    op_types = frozenset({"Add"})

    def node(self, graph: ir.Graph, node: ir.Node) -> bool:
        """Rewrite one addition of a bias."""
        for at in (0, 1):
            product, bias = maker(node.inputs[1 - at], "MatMul"), constant(node.inputs[at])
            if product is None or bias is None or product.graph is not graph or not is_float(bias):
                continue
            weight = constant(product.inputs[1])
            if weight is None or weight.ndim != 2 or rank(product.inputs[0]) != 2 or weight.dtype != bias.dtype:
                continue
            if bias.ndim > 2 or bias.size not in (1, weight.shape[1]) or any(d != 1 for d in bias.shape[:-1]):
                continue
            made = replace_node(graph, node, "Gemm", [*product.inputs, node.inputs[at]])
            absorb(made, product)
            graph.remove(product, safe=True)
            if bias.shape != (weight.shape[1],):
                replace_constant(graph, made, 2, np.broadcast_to(bias.reshape(-1), (weight.shape[1],)))
            return True
        return False


class PlainGemm(NodePass):
    """alpha and beta go into the constants of a Gemm, where they are constants."""

    op_types = frozenset({"Gemm"})

    def node(self, graph: ir.Graph, node: ir.Node) -> bool:
        """Rewrite one Gemm."""
        alpha, beta = float(attribute(node, "alpha", 1.0)), float(attribute(node, "beta", 1.0))
        has_bias = len(node.inputs) > 2 and node.inputs[2] is not None
        weight, bias = constant(node.inputs[1]), constant(node.inputs[2]) if has_bias else None
        changed = False
        if alpha != 1.0 and weight is not None and is_float(weight):
            replace_constant(graph, node, 1, (weight.astype(np.float64) * alpha).astype(weight.dtype))
            node.attributes["alpha"] = ir.AttrFloat32("alpha", 1.0)
            changed = True
        if beta != 1.0 and (bias is not None and is_float(bias)):
            replace_constant(graph, node, 2, (bias.astype(np.float64) * beta).astype(bias.dtype))
            node.attributes["beta"] = ir.AttrFloat32("beta", 1.0)
            changed = True
        return changed
