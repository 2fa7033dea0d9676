"""Blocks: names, parameters, files, hooks, compiled and eager calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import requant
import requant.mx as mx
from requant.errors import DTypeError, InputError, ParameterError, ShapeError, UnsupportedError
from requant.mx import nd
from requant.mx.gluon import Block, Constant, HybridBlock, Parameter, nn


def net(classes: int = 3) -> Any:
    made = nn.HybridSequential()
    with made.name_scope():
        made.add(nn.Conv2D(4, 3, activation="relu"), nn.BatchNorm(), nn.GlobalAvgPool2D(), nn.Dense(classes))
    return made


@pytest.fixture
def x() -> nd.NDArray:
    return nd.array(np.random.default_rng(0).normal(size=(2, 3, 8, 8)))


def same(a: nd.NDArray, b: nd.NDArray) -> None:
    np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-5, atol=1e-6)


def test_counters_start_anew_in_each_scope() -> None:
    with mx.name.NameManager():
        one, two = net(), net()
    assert (one.prefix, two.prefix) == ("hybridsequential0_", "hybridsequential1_")
    assert [b.prefix for b in one] == [
        "hybridsequential0_conv0_",
        "hybridsequential0_batchnorm0_",
        "hybridsequential0_pool0_",
        "hybridsequential0_dense0_",
    ]
    assert list(two.collect_params(".*dense.*").keys()) == [
        "hybridsequential1_dense0_weight",
        "hybridsequential1_dense0_bias",
    ]


def test_shapes_are_found_at_the_first_call(x: nd.NDArray) -> None:
    block = net()
    block.initialize()
    weight = block[0].weight
    assert weight.shape == (4, 0, 3, 3)
    with pytest.raises(mx.gluon.DeferredInitializationError, match="run the network once"):
        weight.data()
    eager = block(x)
    assert weight.shape == (4, 3, 3, 3)
    block.hybridize()
    same(block(x), eager)
    other = net()
    other.initialize()
    other.hybridize()
    other(x)  # compiled at once, shapes found on the way
    assert other[3].weight.shape == (3, 4)


def test_a_compiled_block_sees_new_values(x: nd.NDArray) -> None:
    block = net()
    block.initialize()
    block.hybridize()
    before = block(x).asnumpy()
    block[3].bias.set_data(nd.array([1, 2, 3]))
    np.testing.assert_allclose(block(x).asnumpy(), before + [1, 2, 3], rtol=1e-5, atol=1e-6)
    block[3].bias.data()[:] = 0
    np.testing.assert_allclose(block(x).asnumpy(), before, rtol=1e-5, atol=1e-6)


def test_shared_parameters() -> None:
    one = nn.Dense(4, in_units=4, prefix="shared_")
    two = nn.Dense(4, in_units=4, prefix="shared_", params=one.params)
    one.initialize()
    assert two.weight is one.weight
    same(two(nd.ones((1, 4))), one(nd.ones((1, 4))))
    with pytest.raises(ShapeError, match="shared"):
        nn.Dense(5, in_units=4, prefix="shared_", params=one.params)


def test_files_by_place_by_name_and_as_exported(x: nd.NDArray, tmp_path: Path) -> None:
    block = net()
    block.initialize()
    block.hybridize()
    wanted = block(x)
    by_place, by_name = str(tmp_path / "a.params"), str(tmp_path / "b.params")
    block.save_parameters(by_place)
    block.save_params(by_name)
    symbol, exported = block.export(str(tmp_path / "net"), 7)
    assert exported.endswith("net-0007.params")
    assert set(nd.load(by_place)) >= {"0.weight", "1.running_var", "3.bias"}
    for path in (by_place, by_name):
        again = net()
        again.load_parameters(path)
        same(again(x), wanted)
    same(mx.gluon.SymbolBlock.imports(symbol, ["data"], exported)(x), wanted)
    same(nd.array(requant.load(symbol).run(x.asnumpy())[0]), wanted)


def test_exported_files_load_into_a_block_of_the_same_prefix(x: nd.NDArray, tmp_path: Path) -> None:
    with mx.name.NameManager():
        block = net()
    block.initialize()
    block.hybridize()
    wanted = block(x)
    _, exported = block.export(str(tmp_path / "net"))
    with mx.name.NameManager():
        again = net()
    again.load_parameters(exported)
    same(again(x), wanted)


def test_missing_extra_and_other_types(x: nd.NDArray, tmp_path: Path) -> None:
    block = net()
    block.initialize()
    block(x)
    path = str(tmp_path / "a.params")
    block.save_parameters(path)
    values = nd.load(path)
    assert isinstance(values, dict)
    nd.save(path, {n: v for n, v in values.items() if n != "3.bias"})
    with pytest.raises(ParameterError, match=r"'3.bias' is missing"):
        net().load_parameters(path)
    net().load_parameters(path, allow_missing=True)
    nd.save(path, {**values, "4.bias": values["3.bias"]})
    with pytest.raises(ParameterError, match=r"4\.bias"):
        net().load_parameters(path)
    net().load_parameters(path, ignore_extra=True)
    nd.save(path, {n: v.astype("float16") for n, v in values.items()})
    with pytest.raises(DTypeError, match="cast_dtype"):
        net().load_parameters(path)
    again = net()
    again.load_parameters(path, cast_dtype=True, dtype_source="saved")
    assert again[0].weight.dtype is np.float16


class Branchy(HybridBlock):
    """Nested inputs and outputs, a constant, and a choice by input."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.scale = self.params.get_constant("scale", [[1.0, 10.0]])

    def hybrid_forward(self, F: Any, pair: Any, extra: Any = None, scale: Any = None) -> Any:
        a, b = pair
        total = F.broadcast_mul(a + b, scale)
        if extra is not None:
            total = total + extra
        return total, [a, b - 1]


def test_nested_arguments_and_constants() -> None:
    block = Branchy()
    block.initialize()
    assert isinstance(block.scale, Constant)
    assert block.scale.grad_req == "null"
    a, b = nd.array([[1, 2]]), nd.array([[3, 4]])
    for hybrid in (False, True):
        block.hybridize(hybrid)
        total, (first, second) = block([a, b])
        np.testing.assert_array_equal(total.asnumpy(), [[4, 60]])
        np.testing.assert_array_equal(first.asnumpy(), [[1, 2]])
        np.testing.assert_array_equal(second.asnumpy(), [[2, 3]])
        np.testing.assert_array_equal(block([a, b], a)[0].asnumpy(), [[5, 62]])


def test_hooks_apply_and_children(x: nd.NDArray, capsys: pytest.CaptureFixture[str]) -> None:
    block = net()
    block.initialize()
    seen: list[str] = []
    handle = block.register_forward_hook(lambda b, i, o: seen.append("after"))
    block.register_forward_pre_hook(lambda b, i: seen.append("before"))
    block(x)
    handle.detach()
    block(x)
    assert seen == ["before", "after", "before"]
    kinds: list[str] = []
    block.apply(lambda b: kinds.append(type(b).__name__))
    assert kinds == ["Activation", "Conv2D", "BatchNorm", "GlobalAvgPool2D", "Dense", "HybridSequential"]
    block.summary(x)
    assert "Total params: 143" in capsys.readouterr().out
    assert "Conv2D(3 -> 4, kernel_size=(3, 3)" in repr(block)


def test_a_plain_block_runs_hybrid_children(x: nd.NDArray) -> None:
    class Outer(Block):
        def __init__(self) -> None:
            super().__init__()
            with self.name_scope():
                self.inner = net()

        def forward(self, data: Any) -> Any:
            out = self.inner(data)
            return out if float(out.sum().asscalar()) > 1e9 else out * 2

    block = Outer()
    block.initialize()
    block.hybridize()
    same(block(x), block.inner(x) * 2)
    with pytest.raises(ValueError, match="must be HybridBlocks"):
        nn.HybridSequential().add(block)


def test_refusals(x: nd.NDArray) -> None:
    block = net()
    with pytest.raises(ParameterError, match="initialize"):
        block(x)
    block.initialize()
    with pytest.raises(InputError, match="NDArray"):
        block(x.asnumpy())
    with pytest.raises(InputError, match="hybridize"):
        block.export("nowhere")
    with pytest.raises(UnsupportedError, match="does not train"):
        mx.gluon.Trainer(block.collect_params(), "sgd")
    with pytest.raises(UnsupportedError, match="gradients"):
        block[1].gamma.grad()
    with pytest.raises(InputError, match="MKLDNN"):
        block.hybridize(backend="MKLDN")
    with pytest.raises(ParameterError, match="in_units"):
        Parameter("w", shape=(0, 3)).initialize()
    with pytest.raises(UnsupportedError, match=r"resnet18_v1.*params"):
        mx.gluon.model_zoo.vision.get_model("resnet18_v1", pretrained=True, root="nowhere")


def test_initializers_of_users() -> None:
    class Half(mx.init.Initializer):
        def _init_weight(self, name: str, arr: nd.NDArray) -> None:
            arr[:] = 0.5

    block = nn.Dense(2, in_units=2)
    block.initialize(Half())
    np.testing.assert_array_equal(block.weight.data().asnumpy(), np.full((2, 2), 0.5))
    np.testing.assert_array_equal(block.bias.data().asnumpy(), np.zeros(2))
    custom = nn.Dense(2, in_units=2, weight_initializer="ones")
    custom.initialize(Half())
    np.testing.assert_array_equal(custom.weight.data().asnumpy(), np.ones((2, 2)))
