"""Outputs of every kind, and one file for every batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from files import (
    CONV_PARAMS,
    DIGITS,
    ENGINES,
    FC,
    FC_PARAMS,
    PLAIN,
    apply,
    conv_net,
    digit_images,
    digit_scores,
    load,
    numbers,
    text,
    variable,
)

import requant

# -- outputs of every kind -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("identity", ["identity", "_copy", "BlockGrad", "Dropout", "Flatten", "Reshape"])
def test_identity_between_input_and_output(tmp_path: Path, engine: str, identity: str) -> None:
    attrs = {"Reshape": {"shape": "(0, 0)"}}.get(identity, {})
    model = load(tmp_path, text([variable("data"), apply(identity, "same", [0], **attrs)]))
    x = numbers(2, 3)
    out = model.run(x, engine=engine)[0]
    assert np.array_equal(out, x)
    out[:] = 0
    assert not np.array_equal(out, x)  # the caller's array is not the result's memory
    model2 = load(tmp_path, text([variable("data"), apply(identity, "same", [0], **attrs)]), shapes={"data": (None, 3)})
    model2.save(tmp_path / "x.onnx")
    assert np.array_equal(requant.load(tmp_path / "x.onnx").run(x, engine=engine)[0], x)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_graph_that_is_one_variable(tmp_path: Path, engine: str) -> None:
    model = load(tmp_path, text([variable("data")]))
    x = numbers(2, 3)
    assert model.output_names == ["data"]
    assert np.array_equal(model.run(x, engine=engine)[0], x)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_parameter_as_output(tmp_path: Path, engine: str) -> None:
    model = load(tmp_path, text(FC, heads=[2, 1, 0]), FC_PARAMS)
    x = numbers(2, 3)
    outs = model.run(x, engine=engine)
    assert np.array_equal(outs[1], FC_PARAMS["arg:w"])
    assert np.array_equal(outs[2], x)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_tensor_twice_among_the_outputs(tmp_path: Path, engine: str) -> None:
    nodes = [*FC, apply("BlockGrad", "stop", [2]), apply("relu", "r", [2])]
    heads = [2, 2, 3, 4]  # twice, under another name, and an inner tensor
    model = load(tmp_path, text(nodes, heads=heads), FC_PARAMS, shapes={"data": (None, 3)})
    x = numbers(2, 3)
    wanted = x @ FC_PARAMS["arg:w"].T
    outs = model.run(x, engine=engine)
    for out in outs[:3]:
        assert np.allclose(out, wanted, atol=1e-5)
    assert np.allclose(outs[3], np.maximum(wanted, 0), atol=1e-5)
    assert model.output_names == ["fc_output", "fc_output", "stop_output", "r_output"]
    model.save(tmp_path / "x.onnx")
    again = requant.load(tmp_path / "x.onnx")
    assert len(set(again.output_names)) == 4  # ONNX wants names that differ
    assert all(np.allclose(a, b, atol=1e-5) for a, b in zip(again.run(x, engine=engine), outs))


@pytest.mark.parametrize("engine", ENGINES)
def test_an_output_that_is_also_an_inner_tensor(tmp_path: Path, engine: str) -> None:
    nodes = [
        *conv_net(*PLAIN),
        apply("Activation", "r", [3], act_type="relu"),
        apply("Pooling", "q", [6], kernel="(2, 2)"),
    ]
    model = load(tmp_path, text(nodes, heads=[3, 6, 7]), CONV_PARAMS)
    conv, relu, _ = model.run(numbers(1, 2, 6, 6), engine=engine)
    assert np.array_equal(relu, np.maximum(conv, 0))
    assert (conv < 0).any()  # fusing the activation must not change the output before it


# -- one file for every batch --------------------------------------------------------------------------------------


def test_one_onnx_file_at_batch_1_3_and_16(tmp_path: Path) -> None:
    import onnx

    model = requant.load(DIGITS / "digits", shapes={"data": (None, 1, 8, 8)})
    model.save(tmp_path / "digits.onnx")
    onnx.checker.check_model(str(tmp_path / "digits.onnx"), full_check=True)
    x, wanted = digit_images(16), digit_scores(16)
    for engine in ENGINES:
        again = requant.load(tmp_path / "digits.onnx")
        for batch in (1, 3, 16):
            assert np.allclose(again.run(x[:batch], engine=engine)[0], wanted[:batch], atol=1e-5)
