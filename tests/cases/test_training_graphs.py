"""Training graphs loaded for inference: labels, losses, and states at the begin of a sequence."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from files import (
    ENGINES,
    FC,
    FC_PARAMS,
    Node,
    apply,
    load,
    numbers,
    text,
    variable,
)

from requant.errors import InputError


@pytest.mark.parametrize("label", ["softmax_label", "prob1_label", "label"])
@pytest.mark.parametrize("head", ["SoftmaxOutput", "Softmax", "LinearRegressionOutput", "SVMOutput"])
def test_a_free_label_is_cut(tmp_path: Path, caplog: pytest.LogCaptureFixture, label: str, head: str) -> None:
    nodes = [*FC, variable(label), apply(head, "head", [2, 3])]
    with caplog.at_level(logging.INFO, "requant"):
        model = load(tmp_path, text(nodes), FC_PARAMS)
    assert f"cut {label}: head" in caplog.text
    assert model.input_names == ["data"]
    assert [c.variable for c in model.cut] == [label]
    x = numbers(2, 3)
    scores = x @ FC_PARAMS["arg:w"].T
    if head.startswith("Softmax"):
        scores = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    assert np.allclose(model.run(x)[0], scores, atol=1e-5)


def test_a_label_computed_from_a_variable_is_cut(tmp_path: Path) -> None:
    nodes = [*FC, variable("label"), apply("Reshape", "flat", [3], shape="(-1,)"), apply("SoftmaxOutput", "s", [2, 4])]
    model = load(tmp_path, text(nodes), FC_PARAMS)
    assert model.input_names == ["data"]
    assert model.run(numbers(2, 3))[0].shape == (2, 4)


def test_outputs_of_losses_are_cut_beside_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes = [
        *FC,
        apply("softmax", "prob", [2]),
        apply("BlockGrad", "pred", [3]),
        variable("label"),
        apply("Reshape", "steps", [2], shape="(-1, 1, 4)"),
        apply("CTCLoss", "ctc", [6, 5]),
        apply("MakeLoss", "loss", [7]),
    ]
    with caplog.at_level(logging.INFO, "requant"):
        model = load(tmp_path, text(nodes, heads=[4, 8]), FC_PARAMS)
    assert model.input_names == ["data"]
    assert model.output_names == ["pred_output"]
    assert model.cut_outputs == ("loss_output",)
    assert "cut label: ctc (CTCLoss)" in caplog.text
    assert "cut output loss_output" in caplog.text
    assert model.run(numbers(2, 3))[0].shape == (2, 4)


def test_where_all_is_loss_what_it_reads_is_left(tmp_path: Path) -> None:
    """The symbol of a CTC training script ends in the loss; what the user wants is what went into it."""
    nodes = [
        *FC,
        apply("Reshape", "steps", [2], shape="(-1, 1, 4)"),
        variable("label"),
        apply("_contrib_CTCLoss", "ctc", [3, 4]),
        apply("MakeLoss", "loss", [5]),
    ]
    model = load(tmp_path, text(nodes), FC_PARAMS)
    assert (model.input_names, model.output_names) == (["data"], ["steps_output"])
    x = numbers(2, 3)
    assert np.allclose(model.run(x)[0][:, 0], x @ FC_PARAMS["arg:w"].T, atol=1e-5)
    # Whoever names the label wants the loss itself.
    whole = load(tmp_path, text(nodes), FC_PARAMS, shapes={"data": (2, 3), "label": (1, 2)})
    assert whole.output_names == ["loss_output"]
    assert whole.run({"data": x, "label": np.array([[1, 2]], np.float32)})[0].shape == (1,)


def test_a_loss_written_by_hand(tmp_path: Path) -> None:
    nodes = [
        *FC,
        variable("y_label"),
        apply("elemwise_sub", "diff", [2, 3]),
        apply("square", "square", [4]),
        apply("MakeLoss", "loss", [5]),
    ]
    model = load(tmp_path, text(nodes), FC_PARAMS)
    assert (model.input_names, model.output_names) == (["data"], ["fc_output"])


def test_a_loss_that_needs_no_label_stays(tmp_path: Path) -> None:
    """``MakeLoss`` also marks outputs: the detections of an SSD go through one."""
    model = load(tmp_path, text([*FC, apply("MakeLoss", "out", [2], grad_scale="0")]), FC_PARAMS)
    assert model.output_names == ["out_output"]
    assert model.cut == ()


def test_a_second_input_is_no_label(tmp_path: Path) -> None:
    nodes = [
        *FC,
        variable("mask"),
        apply("broadcast_mul", "masked", [2, 3]),
        apply("MakeLoss", "out", [4]),
    ]
    model = load(tmp_path, text(nodes, heads=[4, 5]), FC_PARAMS)
    assert model.input_names == ["data", "mask"]
    assert model.output_names == ["masked_output", "out_output"]


def ssd_training_graph() -> str:
    return text(
        [
            variable("data"),  # 0
            variable("c_weight"),
            apply("Convolution", "c", [0, 1], kernel="(3, 3)", pad="(1, 1)", num_filter="12", no_bias="True"),
            apply("slice_axis", "cls", [2], axis="1", begin="0", end="4"),  # two anchors, two classes
            apply("slice_axis", "loc", [2], axis="1", begin="4", end="12"),
            apply("transpose", "cls_t", [3], axes="(0, 2, 3, 1)"),
            apply("Reshape", "cls_r", [5], shape="(0, -1, 2)"),
            apply("transpose", "cls_preds", [6], axes="(0, 2, 1)"),  # 7
            apply("transpose", "loc_t", [4], axes="(0, 2, 3, 1)"),
            apply("Flatten", "loc_preds", [8]),  # 9
            apply("_contrib_MultiBoxPrior", "anchors", [2], sizes="(0.3, 0.5)", ratios="(1.0,)"),  # 10
            variable("label"),
            apply("_contrib_MultiBoxTarget", "target", [10, 11, 7], overlap_threshold="0.5"),  # 12
            apply(
                "SoftmaxOutput", "cls_prob", [7, (12, 2)], multi_output="True", use_ignore="True", ignore_label="-1"
            ),  # 13
            apply("elemwise_sub", "diff", [9, (12, 0)]),
            apply("elemwise_mul", "masked", [(12, 1), 14]),
            apply("smooth_l1", "smooth", [15], scalar="1.0"),
            apply("MakeLoss", "loc_loss", [16], normalization="valid"),  # 17
            apply("MakeLoss", "cls_label", [(12, 2)], grad_scale="0"),  # 18
            apply("_contrib_MultiBoxDetection", "detection", [13, 9, 10], nms_threshold="0.5"),
            apply("MakeLoss", "det_out", [19], grad_scale="0"),  # 20
        ],
        heads=[13, 17, 18, 20],
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_the_training_graph_of_an_ssd(tmp_path: Path, engine: str) -> None:
    model = load(tmp_path, ssd_training_graph(), {"arg:c_weight": numbers(12, 3, 3, 3)})
    assert model.input_names == ["data"]
    assert model.output_names == ["cls_prob_output", "det_out_output"]
    assert model.cut_outputs == ("loc_loss_output", "cls_label_output")
    assert [c.variable for c in model.cut] == ["label"]
    probabilities, detections = model.run(numbers(2, 3, 4, 4), engine=engine)
    assert probabilities.shape == (2, 2, 32)
    assert np.allclose(probabilities.sum(1), 1, atol=1e-5)
    assert detections.shape == (2, 32, 6)


def lstm_with_free_states(state: str) -> list[Node]:
    return [
        variable("data"),
        variable("embed_weight"),
        apply("Embedding", "embed", [0, 1], input_dim="20", output_dim="8"),
        apply("SwapAxis", "steps", [2], dim1="0", dim2="1"),
        variable("lstm_parameters"),
        variable(f"{state}h"),
        variable(f"{state}c"),
        apply("RNN", "lstm", [3, 4, 5, 6], state_size="6", num_layers="1", mode="lstm"),
        apply("Reshape", "rows", [7], shape="(-1, 6)"),
        variable("pred_weight"),
        apply("FullyConnected", "pred", [8, 9], num_hidden="5", no_bias="True"),
        variable("softmax_label"),
        apply("SoftmaxOutput", "softmax", [10, 11]),
    ]


LSTM_PARAMS = {
    "arg:embed_weight": numbers(20, 8),
    "arg:lstm_parameters": numbers(4 * 6 * (8 + 6) + 8 * 6),
    "arg:pred_weight": numbers(5, 6),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("state", ["l0_init_", "lstm_begin_state_", "any_name_"])
def test_begin_states_that_are_not_fed_are_zeros(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, engine: str, state: str
) -> None:
    model = load(tmp_path, text(lstm_with_free_states(state)), LSTM_PARAMS)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    zeros = {f"{state}h": np.zeros((1, 2, 6), np.float32), f"{state}c": np.zeros((1, 2, 6), np.float32)}
    wanted = model.run({"data": x, **zeros}, engine=engine)[0]
    with caplog.at_level(logging.INFO, "requant"):
        assert np.array_equal(model.run(x, engine=engine)[0], wanted)
    assert f"begin state {state}h is not given: zeros of shape (1, 2, 6)" in caplog.text
    ones = {n: z + 1 for n, z in zeros.items()}
    assert not np.allclose(model.run({"data": x, **ones}, engine=engine)[0], wanted)
    assert np.array_equal(model.run(np.repeat(x, 3, 0), engine=engine)[0].shape, (24, 5))
    with pytest.raises(InputError, match="missing"):
        model.run(zeros, engine=engine)


def unrolled_cell(first: Node) -> list[Node]:
    """Two steps of a vanilla recurrent cell, as unroll() writes them."""
    return [
        variable("data"),
        apply("SliceChannel", "x", [0], num_outputs="2", axis="1", squeeze_axis="True"),
        variable("i2h_weight"),
        variable("h2h_weight"),
        first,
        apply("FullyConnected", "t0_i2h", [(1, 0), 2], num_hidden="6", no_bias="True"),
        apply("FullyConnected", "t0_h2h", [4, 3], num_hidden="6", no_bias="True"),
        apply("elemwise_add", "t0_plus", [5, 6]),
        apply("Activation", "t0_out", [7], act_type="tanh"),
        apply("FullyConnected", "t1_i2h", [(1, 1), 2], num_hidden="6", no_bias="True"),
        apply("FullyConnected", "t1_h2h", [8, 3], num_hidden="6", no_bias="True"),
        apply("elemwise_add", "t1_plus", [9, 10]),
        apply("Activation", "t1_out", [11], act_type="tanh"),
    ]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "first",
    [
        variable("rnn_begin_state_0"),
        variable("rnn_begin_state_0", __shape__="(0, 6)"),
        apply("_zeros", "rnn_begin_state_0", [], shape="(0, 6)"),
        apply("zeros", "rnn_begin_state_0", [], shape="(0, 6)", dtype="float32", ctx="cpu(0)"),
    ],
    ids=["free", "declared", "_zeros", "zeros"],
)
def test_begin_states_of_unrolled_cells(tmp_path: Path, engine: str, first: Node) -> None:
    params = {"arg:i2h_weight": numbers(6, 5), "arg:h2h_weight": numbers(6, 6)}
    if first["op"] == "zeros":
        first = {**first, "op": "_zeros"}
    model = load(tmp_path, text(unrolled_cell(first)), params)
    i2h, h2h = params.values()
    for batch in (1, 3):
        x = numbers(batch, 2, 5)
        wanted = np.tanh(x[:, 1] @ i2h.T + np.tanh(x[:, 0] @ i2h.T) @ h2h.T)
        assert np.allclose(model.run(x, engine=engine)[0], wanted, atol=1e-5)
