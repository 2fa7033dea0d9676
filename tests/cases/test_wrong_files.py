"""Wrong names, missing parameters and damaged files: errors that say what is right."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from files import (
    CONV_PARAMS,
    DIGITS,
    PLAIN,
    apply,
    conv_net,
    load,
    numbers,
    text,
    variable,
)

import requant
from requant.errors import FormatError, GraphError, InputError, ParameterError, RequantError

# -- wrong names, missing parameters -------------------------------------------------------------------------------


def test_wrong_input_names_list_the_true_ones(tmp_path: Path) -> None:
    model = load(tmp_path, text(conv_net(*PLAIN)), CONV_PARAMS)
    for feeds in ({"dta": numbers(1, 2, 6, 6)}, {"data": numbers(1, 2, 6, 6), "softmax_label": numbers(1)}):
        with pytest.raises(InputError, match=r"(?s)no input of that name.*\['data'\]"):
            model.run(feeds)
    with pytest.raises(InputError, match=r"(?s)missing.*\['data'\]"):
        model.run({})
    with pytest.raises(InputError, match=r"(?s)no free input.*data"):
        load(tmp_path, text(conv_net(*PLAIN)), CONV_PARAMS, shapes={"dta": (1, 2, 6, 6)}).inputs  # noqa: B018


def test_a_missing_parameter_names_itself_and_the_closest(tmp_path: Path) -> None:
    params = {"arg:c_wieght": CONV_PARAMS["arg:c_weight"], "arg:c_bias": CONV_PARAMS["arg:c_bias"]}
    with pytest.raises(ParameterError, match=r"(?s)'c_weight' is missing.*c_wieght"):
        load(tmp_path, text(conv_net(*PLAIN)), params)


def test_a_parameter_of_the_wrong_shape_names_the_node(tmp_path: Path) -> None:
    params = {**CONV_PARAMS, "arg:c_weight": numbers(4, 5, 3, 3)}
    with pytest.raises(RequantError, match=r"\bc\b|c_weight"):
        load(tmp_path, text(conv_net(*PLAIN)), params).run(numbers(1, 2, 6, 6))


# -- damage --------------------------------------------------------------------------------------------------------


def test_a_cycle_is_shown(tmp_path: Path) -> None:
    nodes = [variable("data"), apply("elemwise_add", "a", [0, 2]), apply("relu", "b", [1])]
    with pytest.raises(GraphError, match=r"(?s)cycle.*('a' <- 'b'|'b' <- 'a')"):
        load(tmp_path, text(nodes))


def test_a_node_that_points_forward(tmp_path: Path) -> None:
    nodes = [variable("data"), apply("relu", "a", [2]), apply("relu", "b", [0])]
    with pytest.raises(GraphError, match=r"(?s)'a'.*points forward.*'b'"):
        load(tmp_path, text(nodes))


@pytest.mark.parametrize(
    "shape",
    [
        "(99999999999, 99999999999, 99999999999, 99999999999)",
        "(1, 3, 4000000000, 4000000000)",
        "(9223372036854775808,)",
        "(" + "9" * 300 + ",)",
        "(-5, 3)",
        "(1e30, 2)",
        "(nan, inf)",
        "x" * 50,
        "(1.5, 2)",
        "(" + "1, " * 5000 + ")",
    ],
)
def test_an_absurd_declared_shape(tmp_path: Path, shape: str) -> None:
    """It says so or runs by the shape that is fed; it never allocates."""
    nodes = [variable("data", __shape__=shape), apply("relu", "a", [0]), apply("zeros_like", "z", [1])]
    try:
        model = load(tmp_path, text(nodes, heads=[1, 2]))
        model.inputs  # noqa: B018
        out = model.run(numbers(2, 3))
    except RequantError as fault:
        assert "data" in str(fault)
    else:
        assert out[0].shape == (2, 3)


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("_zeros", {"shape": "(100000, 100000, 100000)"}),
        ("_ones", {"shape": "(4294967296, 2)"}),
        ("_full", {"shape": "(1000000000,)", "value": "1"}),
        ("_arange", {"start": "0", "stop": "1e18"}),
        ("_eye", {"N": "1000000"}),
        ("_linspace", {"start": "0", "stop": "1", "num": "1000000000000"}),
    ],
)
def test_an_absurd_constant_is_refused(tmp_path: Path, op: str, attrs: dict[str, str]) -> None:
    with pytest.raises(RequantError):
        load(tmp_path, text([apply(op, "big", [], **attrs)])).run({})


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("tile", {"reps": "(100000, 100000)"}),
        ("repeat", {"repeats": "100000000000"}),
        ("broadcast_to", {"shape": "(100000, 100000, 100000)"}),
        ("UpSampling", {"scale": "100000", "sample_type": "nearest", "num_args": "1"}),
        ("one_hot", {"depth": "1000000000000"}),
        ("Pad", {"mode": "constant", "pad_width": "(0, 0, 0, 0, 0, 1000000, 0, 1000000)"}),
        ("_contrib_BilinearResize2D", {"height": "1000000", "width": "1000000"}),
        ("Convolution", {"kernel": "(100000, 100000)", "num_filter": "100000"}),
    ],
)
def test_an_absurd_result_is_refused(tmp_path: Path, op: str, attrs: dict[str, str]) -> None:
    """Attributes in a file are not to be trusted with the machine's memory."""
    inputs: list[Any] = [0]
    nodes = [variable("data"), apply(op, "big", inputs, **attrs)]
    if op == "Convolution":
        nodes = [variable("data"), variable("w"), apply(op, "big", [0, 1], no_bias="True", **attrs)]
    x = np.ones((1, 1, 1, 1), np.float32) if op not in ("one_hot",) else np.zeros((2,), np.float32)
    with pytest.raises(RequantError):
        load(tmp_path, text(nodes), {"arg:w": numbers(1, 1, 1, 1)} if op == "Convolution" else None).run(x)


@pytest.mark.parametrize("cut", [0, 1, 7, 8, 24, 100, 500, -1])
def test_a_truncated_params_file(tmp_path: Path, cut: int) -> None:
    shutil.copy(DIGITS / "digits-symbol.json", tmp_path / "net-symbol.json")
    whole = (DIGITS / "digits-0000.params").read_bytes()
    (tmp_path / "net-0000.params").write_bytes(whole[:cut])
    with pytest.raises(FormatError, match=r"net-0000\.params"):
        requant.load(tmp_path / "net")


@pytest.mark.parametrize("cut", [0, 1, 100, 1000, -2])
def test_a_truncated_symbol_file(tmp_path: Path, cut: int) -> None:
    whole = (DIGITS / "digits-symbol.json").read_bytes()
    (tmp_path / "net-symbol.json").write_bytes(whole[:cut])
    shutil.copy(DIGITS / "digits-0000.params", tmp_path / "net-0000.params")
    with pytest.raises(FormatError, match=r"net-symbol\.json"):
        requant.load(tmp_path / "net")
