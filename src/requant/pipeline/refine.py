"""What a second look at some calibration samples tells, beyond the ranges that a table holds: the moments of what each
weight meets, by which it is rounded (`requant.quant.moments`)."""

from __future__ import annotations

import logging
import time

import numpy as np
import onnx_ir as ir

from requant import engines
from requant.engines.base import EngineOptions
from requant.engines.session import Session
from requant.errors import counted
from requant.formats.dataset import Dataset
from requant.passes.rewrite import Array, constant
from requant.pipeline.watch import watching
from requant.quant.channels import may_be_leveled
from requant.quant.moments import Layout, Moments, layout, patches
from requant.quant.plan import Plan

log = logging.getLogger(__name__)

#: Patches that a weight is judged by, at most.
ROWS = 4096
#: Bytes of watched tensors that are looked at in all: how many samples that is depends on the network.
BYTES = 2**30
#: But no fewer and no more samples than these.
FEWEST, MOST = 32, 256
#: Bytes of watched tensors that one batch may hold.
MEMORY = 192 * 2**20


def moments(model: ir.Model, plan: Plan, data: Dataset, *, engine: str = engines.DEFAULT) -> dict[str, Moments]:
    """Moments of the inputs of compute nodes with a constant weight, over samples spread evenly over the data.

    Args:
        model: the optimized float model that was planned.
        plan: its plan.
        data: calibration samples.
        engine: what runs the float model.

    Returns:
        By node name. Nodes whose patches cannot be told are left out, and samples that make NaN or Inf.
    """
    start = time.perf_counter()
    wanted = _wanted(model, plan)
    if not wanted or not len(data):
        return {}
    inputs = {str(v.name) for v in model.graph.inputs}
    read = list(dict.fromkeys(str(n.inputs[0].name) for n, _, _ in wanted if n.inputs[0] is not None))
    made = [t for t in read if t not in inputs]
    watched = watching(model, made) if made else None
    sample = data.samples(0, 1)
    probe = _look(watched, made, sample, engine) if watched is not None else {}
    each = max(1, sum(a.nbytes for a in probe.values()))
    count = min(len(data), max(FEWEST, min(MOST, BYTES // each)))
    batch = max(1, min(16, MEMORY // each, count))
    places = max(1, ROWS // count)
    rng = np.random.default_rng(0)
    found: dict[str, Moments] = {}
    shared: dict[tuple[int, Layout], Moments] = {}
    for node, _, how in wanted:  # a weight that two nodes share is rounded by what both of them meet
        found[str(node.name)] = shared.setdefault((id(node.inputs[1]), how), Moments())
    session: Session | None = None
    chosen = np.unique(np.linspace(0, len(data) - 1, count).astype(int))
    for first in range(0, len(chosen) // batch * batch, batch):
        parts = [data.samples(int(i), int(i) + 1) for i in chosen[first : first + batch]]
        feeds = {n: np.concatenate([p[n] for p in parts]) for n in sample}
        if watched is None:
            _gather(found, wanted, dict(feeds), places, rng)
            continue
        if session is None:
            shapes = {n: a.shape for n, a in feeds.items()}
            session = engines.get(engine).load(watched, EngineOptions(split=False), shapes)

        def look(outs: list[np.ndarray], feeds: dict[str, Array] = feeds) -> None:
            _gather(found, wanted, {**feeds, **dict(zip(made, outs))}, places, rng)

        session.look(feeds, look)
    log.info("looked at what meets %s in %.2f s", counted(len(shared), "weight"), time.perf_counter() - start)
    return {n: m for n, m in found.items() if m.count}


def _wanted(model: ir.Model, plan: Plan) -> list[tuple[ir.Node, Array, Layout]]:
    nodes = {str(n.name): n for n in model.graph}
    wanted = []
    for decision in plan.decisions:
        node = nodes.get(decision.node)
        if decision.chosen != "int8" or decision.weight != 1 or node is None:
            continue
        weight = constant(node.inputs[1])
        found = None if weight is None else layout(node, weight)
        if weight is not None and found is not None:
            wanted.append((node, weight, found))
    return wanted


def _look(watched: ir.Model, made: list[str], feeds: dict[str, Array], engine: str) -> dict[str, Array]:
    session = engines.get(engine).load(watched, EngineOptions(split=False), {n: a.shape for n, a in feeds.items()})
    return dict(zip(made, session.run(feeds)))


def _gather(
    found: dict[str, Moments],
    wanted: list[tuple[ir.Node, Array, Layout]],
    arrays: dict[str, Array],
    places: int,
    rng: np.random.Generator,
) -> None:
    for node, weight, how in wanted:
        assert node.inputs[0] is not None
        array = arrays[str(node.inputs[0].name)]
        rows = patches(node, weight, how, array, places, rng)
        if rows is not None and np.isfinite(rows).all():
            found[str(node.name)].observe(rows)
            if may_be_leveled(node):
                found[str(node.name)].reach(np.asarray(array, np.float32))
