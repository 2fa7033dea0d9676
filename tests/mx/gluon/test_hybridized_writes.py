"""A hybridized network computes with its parameters as they are now, however they were changed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import requant.mx as mx

ONES = np.ones((1, 2), np.float32)


def network() -> mx.gluon.nn.Dense:
    net = mx.gluon.nn.Dense(1, use_bias=False, in_units=2)
    net.initialize(mx.init.One())
    net.hybridize()
    for _ in range(2):
        assert net(mx.nd.array(ONES)).asnumpy().tolist() == [[2]]
    return net


def shared(net: mx.gluon.nn.Dense) -> None:
    """Memory that numpy writes to: every call must look again."""
    memory = np.full((1, 2), 2.5, np.float32)
    net.weight._hold(mx.nd.from_numpy(memory, zero_copy=True))
    for _ in range(4):
        memory[:] += 0.125
        assert net(mx.nd.array(ONES)).asnumpy().tolist() == [[memory.sum()]]


CHANGES: dict[str, tuple[Callable[[mx.gluon.nn.Dense], object], float]] = {
    "set_data": (lambda net: net.weight.set_data(mx.nd.array([[3, 3]])), 6),
    "written in place": (lambda net: net.weight.data().__setitem__((0, 0), 5), 6),
    "written through a view": (lambda net: net.weight.data()[0].__setitem__(slice(None), 3), 6),
    "other operands": (lambda net: net.weight.data().__imul__(3), 6),
    "initialized again": (lambda net: net.initialize(mx.init.Constant(3), force_reinit=True), 6),
    "another device": (lambda net: net.collect_params().reset_ctx(mx.cpu(1)), 2),
    "memory of numpy": (shared, 6),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_take_effect_at_the_next_call(change: str) -> None:
    net = network()
    made, wanted = CHANGES[change]
    made(net)
    assert net(mx.nd.array(ONES)).asnumpy().tolist() == [[wanted]]


def test_writes_to_other_arrays_do_not_compile_again() -> None:
    net = network()
    (graph,) = net._graphs.values()
    assert graph.runner is not None
    before = graph.runner._state
    data = mx.nd.array(ONES)
    for i in range(3):
        data[:] = i
        assert net(data).asnumpy().tolist() == [[2 * i]]
    assert graph.runner._state is before


def test_the_dtype_of_an_input_may_change() -> None:
    class Twice(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x):  # type: ignore[no-untyped-def]
            return x * 2

    net = Twice()
    net.hybridize()
    for dtype in ("float32", "int32", "float32", "float32"):
        found = net(mx.nd.array([[1, 2]], dtype=dtype))
        assert found.dtype == np.dtype(dtype)
        assert found.asnumpy().tolist() == [[2, 4]]
