"""Symbol JSON of every age, as users met it when they loaded models."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from files import (
    CONV_PARAMS,
    ENGINES,
    PLAIN,
    apply,
    conv_net,
    load,
    numbers,
    text,
    variable,
)

import requant
from requant.errors import RequantError


@pytest.mark.parametrize(
    ("version", "key", "arity"),
    [
        (None, "param", 2),  # 2015, 2016
        (800, "param", 2),
        (905, "attr", 2),
        (905, "attr", 3),
        (1100, "attrs", 3),
        (10000, "attr", 3),
        (10500, "attrs", 3),
        (10901, "attrs", 3),
        (20000, "attrs", 3),
        (99999, "attrs", 3),
    ],
)
def test_a_file_of_every_age_gives_the_same_numbers(tmp_path: Path, version: int | None, key: str, arity: int) -> None:
    x = numbers(2, 2, 6, 6, seed=1)
    wanted = load(tmp_path, text(conv_net(*PLAIN)), CONV_PARAMS).run(x)[0]
    assert wanted.shape == (2, 36)
    got = load(tmp_path, text(conv_net(*PLAIN), version=version, key=key, arity=arity), CONV_PARAMS).run(x)[0]
    assert np.array_equal(got, wanted)


@pytest.mark.parametrize(
    "attrs",
    [
        {"kernel": "[3,3]", "pad": "[1, 1]", "num_filter": "4", "no_bias": "False"},
        {"kernel": "(3L, 3L)", "pad": "(1L,1L)", "num_filter": "4L", "no_bias": "0"},
        {"kernel": "(3,3,)", "pad": "(1,1)", "num_filter": "4", "no_bias": "false", "workspace": "1024"},
        {"kernel": "( 3 , 3 )", "pad": "(1, 1)", "stride": "()", "dilate": "()", "num_filter": "4"},
        {"kernel": "(3, 3)", "pad": "(1, 1)", "stride": "None", "num_filter": "4", "layout": "None"},
        {"kernel": "(3, 3)", "pad": "(1, 1)", "num_filter": "4", "cudnn_tune": "None", "cudnn_off": "True"},
        {"kernel": "(3, 3)", "pad": "(1, 1)", "num_filter": "4", "__lr_mult__": "2.0", "__mine__": "{'a': 1}"},
    ],
)
def test_attribute_strings_of_every_age(tmp_path: Path, attrs: dict[str, str]) -> None:
    x = numbers(1, 2, 6, 6, seed=2)
    wanted = load(tmp_path, text(conv_net(*PLAIN)), CONV_PARAMS).run(x)[0]
    assert np.array_equal(load(tmp_path, text(conv_net(attrs, PLAIN[1])), CONV_PARAMS).run(x)[0], wanted)


def test_numbers_written_as_python_wrote_them(tmp_path: Path) -> None:
    nodes = [variable("data"), apply("L2Normalization", "n", [0], eps="1e-05", mode="instance")]
    x = numbers(3, 4)
    got = load(tmp_path, text(nodes)).run(x)[0]
    assert np.allclose(got, x / np.sqrt((x**2).sum(1, keepdims=True) + 1e-5), atol=1e-6)
    nodes = [variable("data"), apply("sum", "s", [0], axis="1", keepdims="1")]
    assert load(tmp_path, text(nodes)).run(x)[0].shape == (3, 1)
    nodes = [variable("data"), apply("sum", "s", [0], axis="(1,)", keepdims="True")]
    assert load(tmp_path, text(nodes)).run(x)[0].shape == (3, 1)
    nodes = [variable("data"), apply("sum", "s", [0], axis="()", exclude="0")]
    assert load(tmp_path, text(nodes)).run(x)[0].shape in ((), (1,))


def test_hidden_keys_of_old_files_are_no_attributes(tmp_path: Path) -> None:
    attrs = {**PLAIN[0], "lr_mult": "2.0", "ctx_group": "dev1", "weight_wd_mult": "0.0"}
    x = numbers(1, 2, 6, 6)
    got = load(tmp_path, text(conv_net(attrs, PLAIN[1]), version=None, key="param"), CONV_PARAMS)
    wanted = load(tmp_path, text(conv_net(*PLAIN)), CONV_PARAMS).run(x)[0]
    assert np.array_equal(got.run(x)[0], wanted)
    assert got.symbol is not None
    assert got.symbol.attr_dict()["c_weight"]["__wd_mult__"] == "0.0"


def test_an_unknown_attribute_names_node_and_closest(tmp_path: Path) -> None:
    nodes = conv_net({"kernal": "(3, 3)", "kernel": "(3, 3)", "num_filter": "4"}, PLAIN[1])
    with pytest.raises(RequantError, match=r"(?s)'c' \(Convolution\).*kernal.*'kernel'"):
        load(tmp_path, text(nodes), CONV_PARAMS).run(numbers(1, 2, 6, 6))


BN_PARAMS = {
    "arg:bn_gamma": np.array([2.0, 3.0], np.float32),
    "arg:bn_beta": np.array([0.5, -0.5], np.float32),
    "aux:bn_moving_mean": np.array([0.1, -0.1], np.float32),
    "aux:bn_moving_var": np.array([0.0, 4.0], np.float32),
}


def batch_norm(x: np.ndarray, eps: float, fix_gamma: bool, axis: int = 1) -> np.ndarray:
    shape = [1] * x.ndim
    shape[axis] = 2
    gamma, beta, mean, var = (p.reshape(shape) for p in BN_PARAMS.values())
    return (x - mean) / np.sqrt(var + eps) * (1 if fix_gamma else gamma) + beta


def test_missing_trailing_inputs_of_old_files_are_made(tmp_path: Path) -> None:
    """0.8 wrote a BatchNorm with three inputs; the moving statistics are in the parameters alone."""
    nodes = [variable("data"), variable("bn_gamma"), variable("bn_beta"), apply("BatchNorm", "bn", [0, 1, 2])]
    model = load(tmp_path, text(nodes, version=None, key="param", arity=2), BN_PARAMS)
    x = numbers(2, 2, 3, 3)
    assert np.allclose(model.run(x)[0], batch_norm(x, 1e-3, True), rtol=1e-4, atol=1e-4)
    assert model.symbol is not None
    assert model.symbol.list_auxiliary_states() == ["bn_moving_mean", "bn_moving_var"]


BN_NODES = [variable("data"), *(variable(n.split(":")[1]) for n in BN_PARAMS)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("attrs", "eps", "fix_gamma"),
    [
        ({}, 1e-3, True),  # the defaults that surprise
        ({"fix_gamma": "True", "eps": "1e-05"}, 1e-5, True),
        ({"fix_gamma": "False"}, 1e-3, False),
        ({"fix_gamma": "0", "use_global_stats": "True", "eps": "2e-05"}, 2e-5, False),
        ({"fix_gamma": "False", "momentum": "0.9", "cudnn_off": "True", "output_mean_var": "False"}, 1e-3, False),
    ],
)
def test_batch_norm(tmp_path: Path, engine: str, attrs: dict[str, str], eps: float, fix_gamma: bool) -> None:
    model = load(tmp_path, text([*BN_NODES, apply("BatchNorm", "bn", [0, 1, 2, 3, 4], **attrs)]), BN_PARAMS)
    x = numbers(2, 2, 3, 3)
    got = model.run(x, engine=engine)[0]
    wanted = batch_norm(x, eps, fix_gamma)
    assert np.abs(got - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("axis", [-1, 3, 0])
def test_batch_norm_along_another_axis(tmp_path: Path, axis: int) -> None:
    node = apply("BatchNorm", "bn", [0, 1, 2, 3, 4], axis=str(axis), fix_gamma="False")
    model = load(tmp_path, text([*BN_NODES, node]), BN_PARAMS, shapes={"data": (2, 3, 4, 2)})
    x = numbers(2, 3, 4, 2)
    wanted = batch_norm(x, 1e-3, False, axis)
    assert np.abs(model.run(x)[0] - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_the_order_of_arg_nodes_does_not_matter(tmp_path: Path) -> None:
    graph = json.loads(text(conv_net(*PLAIN)))
    x = numbers(1, 2, 6, 6)
    wanted = load(tmp_path, json.dumps(graph), CONV_PARAMS).run(x)[0]
    graph["arg_nodes"] = graph["arg_nodes"][::-1]
    assert np.array_equal(load(tmp_path, json.dumps(graph), CONV_PARAMS).run(x)[0], wanted)


@pytest.mark.parametrize("engine", ENGINES)
def test_duplicate_node_names(tmp_path: Path, engine: str) -> None:
    """MXNet never asked for unique names. Two operators of one name, and two variables that are one parameter."""
    nodes = [
        variable("data"),
        variable("w"),
        apply("FullyConnected", "fc", [0, 1], num_hidden="4", no_bias="True"),
        apply("Activation", "fc", [2], act_type="relu"),
        variable("w"),
        apply("FullyConnected", "fc", [3, 4], num_hidden="4", no_bias="True"),
        apply("Activation", "fc", [5], act_type="tanh"),
    ]
    w, x = numbers(4, 4), numbers(2, 4, seed=3)
    model = load(tmp_path, text(nodes, heads=[6, 3]), {"arg:w": w}, shapes={"data": (None, 4)})
    first = np.maximum(x @ w.T, 0)
    outs = model.run(x, engine=engine)
    assert np.allclose(outs[0], np.tanh(first @ w.T), atol=1e-5)
    assert np.allclose(outs[1], first, atol=1e-5)
    model.save(tmp_path / "x.onnx")
    again = requant.load(tmp_path / "x.onnx").run(x, engine=engine)
    assert all(np.allclose(a, b, atol=1e-5) for a, b in zip(again, outs))
