"""What users ran into when they loaded MXNet models, told as the behaviour that is right: from files to answers."""

from __future__ import annotations

import json
import logging
import shutil
import tarfile
from pathlib import Path
from typing import Any

import files
import numpy as np
import pytest
from files import apply, load, numbers, save, text, variable

import requant
from requant.errors import FormatError, GraphError, InputError, ParameterError, RequantError
from requant.formats.params import params_bytes, read_params, write_params
from requant.formats.sparse import RowSparse

DIGITS = Path(__file__).resolve().parents[1] / "digits"
ENGINES = ("openvino", "onnxruntime")


def digit_images(count: int) -> np.ndarray:
    return np.load(DIGITS / "digits.npz")["x"][:count].astype(np.float32) / 16


def digit_scores(count: int) -> np.ndarray:
    return requant.load(DIGITS / "digits").run(digit_images(count))[0]


# -- symbol JSON of every age --------------------------------------------------------------------------------------


def conv_net(conv: dict[str, str], pool: dict[str, str]) -> list[files.Node]:
    return [
        variable("data"),
        variable("c_weight"),
        variable("c_bias"),
        apply("Convolution", "c", [0, 1, 2], **conv),
        apply("Pooling", "p", [3], **pool),
        apply("Flatten", "f", [4]),
    ]


CONV_PARAMS = {"arg:c_weight": numbers(4, 2, 3, 3), "arg:c_bias": numbers(4)}
PLAIN = ({"kernel": "(3, 3)", "pad": "(1, 1)", "num_filter": "4"}, {"kernel": "(2, 2)", "stride": "(2, 2)"})


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


# -- parameters of every age ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_params_of_every_version(tmp_path: Path, version: int) -> None:
    shutil.copy(DIGITS / "digits-symbol.json", tmp_path)
    found = read_params(DIGITS / "digits-0000.params", copy=True)
    write_params(tmp_path / "digits-0000.params", found, version=version)
    assert np.array_equal(requant.load(tmp_path / "digits").run(digit_images(3))[0], digit_scores(3))


def test_sparse_parameters(tmp_path: Path) -> None:
    nodes = [variable("data"), variable("e_weight"), apply("Embedding", "e", [0, 1], input_dim="9", output_dim="3")]
    rows = numbers(2, 3)
    sparse = RowSparse(rows, np.array([1, 7], np.int64), (9, 3))
    got = load(tmp_path, text(nodes), {"arg:e_weight": sparse}).run(np.array([[1, 7, 0]], np.float32))[0]  # type: ignore[dict-item]
    assert np.array_equal(got, np.concatenate([rows, np.zeros((1, 3), np.float32)])[None])


@pytest.mark.parametrize("engine", ENGINES)
def test_half_precision_parameters(tmp_path: Path, engine: str) -> None:
    """A network cast to float16: its input follows the parameters."""
    params = {n: p.astype(np.float16) for n, p in CONV_PARAMS.items()}
    model = load(tmp_path, text(conv_net(*PLAIN)), params)
    x = numbers(2, 2, 6, 6)
    wanted = load(tmp_path, text(conv_net(*PLAIN)), CONV_PARAMS).run(x)[0]
    half = load(tmp_path, text(conv_net(*PLAIN)), params)
    out = half.run(x.astype(np.float16), engine=engine)[0]
    assert out.dtype == np.float16
    assert np.abs(out.astype(np.float32) - wanted).max() < 0.02 * np.abs(wanted).max()
    assert [s.dtype for s in model.inputs] == [np.float16]
    with pytest.raises(InputError, match="float16"):
        half.run(x, engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_int8_parameters_behind_a_cast(tmp_path: Path, engine: str) -> None:
    nodes = [
        variable("data"),
        variable("w", __dtype__="5"),
        apply("Cast", "cast", [1], dtype="float32"),
        apply("FullyConnected", "fc", [0, 2], num_hidden="3", no_bias="True"),
    ]
    w = np.arange(-6, 6, dtype=np.int8).reshape(3, 4)
    x = numbers(2, 4)
    model = load(tmp_path, text(nodes), {"arg:w": w}, shapes={"data": (None, 4)})
    assert np.allclose(model.run(x, engine=engine)[0], x @ w.astype(np.float32).T, atol=1e-5)


def test_params_without_names_are_refused_with_advice(tmp_path: Path) -> None:
    prefix = save(tmp_path, text(conv_net(*PLAIN)))
    (tmp_path / "net-0000.params").write_bytes(params_bytes([numbers(4, 2, 3, 3), numbers(4)]))
    with pytest.raises(FormatError, match=r"(?s)without names.*nd\.load"):
        requant.load(prefix)


def test_key_styles_in_every_loader(tmp_path: Path) -> None:
    """``arg:x``, bare and structural names go into load, load_checkpoint, SymbolBlock and nd.load."""
    import requant.mx as mx

    shutil.copy(DIGITS / "digits-symbol.json", tmp_path / "net-symbol.json")
    found = read_params(DIGITS / "digits-0000.params", copy=True)
    assert isinstance(found, dict)
    x, wanted = digit_images(2), digit_scores(2)
    for epoch, keys in enumerate([found, {n.split(":")[1]: p for n, p in found.items()}]):
        write_params(tmp_path / f"net-{epoch:04d}.params", keys)
        assert np.array_equal(requant.load(tmp_path / "net", epoch=epoch).run(x)[0], wanted)
        path = str(tmp_path / f"net-{epoch:04d}.params")
        block = mx.gluon.SymbolBlock.imports(str(tmp_path / "net-symbol.json"), ["data"], path)
        assert np.allclose(block(mx.nd.array(x)).asnumpy(), wanted, atol=1e-6)
        assert set(mx.nd.load(path)) == set(keys)
    _, args, aux = mx.model.load_checkpoint(str(tmp_path / "net"), 0)
    assert set(args) | set(aux) == {n.split(":")[1] for n in found}
    write_params(tmp_path / "net-0002.params", {"features.0.weight": numbers(1)})
    assert list(mx.nd.load(str(tmp_path / "net-0002.params"))) == ["features.0.weight"]
    with pytest.raises(ParameterError, match=r"(?s)features\.0\.weight.*save_parameters"):
        requant.load(tmp_path / "net", epoch=2)


# -- names of files ------------------------------------------------------------------------------------------------


def test_epoch_minus_one(tmp_path: Path) -> None:
    shutil.copy(DIGITS / "digits-symbol.json", tmp_path / "net-symbol.json")
    shutil.copy(DIGITS / "digits-0000.params", tmp_path / "net--001.params")  # "%04d" % -1
    assert np.array_equal(requant.load(tmp_path / "net").run(digit_images(1))[0], digit_scores(1))
    assert np.array_equal(requant.load(tmp_path / "net", epoch=-1).run(digit_images(1))[0], digit_scores(1))
    shutil.move(tmp_path / "net--001.params", tmp_path / "net--0001.params")
    assert np.array_equal(requant.load(tmp_path / "net", epoch=-1).run(digit_images(1))[0], digit_scores(1))
    shutil.copy(tmp_path / "net--0001.params", tmp_path / "net-0003.params")
    with pytest.raises(FormatError, match="epochs -1, 3"):
        requant.load(tmp_path / "net", epoch=7)


def test_symbol_and_params_of_different_names(tmp_path: Path) -> None:
    shutil.copy(DIGITS / "digits-symbol.json", tmp_path / "net_deploy.json")
    shutil.copy(DIGITS / "digits-0000.params", tmp_path / "iter_5000.params")
    model = requant.load(tmp_path / "net_deploy.json", tmp_path / "iter_5000.params")
    assert np.array_equal(model.run(digit_images(1))[0], digit_scores(1))
    with pytest.raises(FormatError, match=r"iter_5000\.params"):
        requant.load(tmp_path / "net_deploy.json")  # a symbol that lost its parameters is not run with others


def test_sagemaker_archive(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as archive:
        archive.add(DIGITS / "digits-symbol.json", "model_algo_1-symbol.json")
        archive.add(DIGITS / "digits-0000.params", "model_algo_1-0000.params")
        (tmp_path / "model-shapes.json").write_text('[{"shape": [1, 1, 8, 8], "name": "data"}]')
        archive.add(tmp_path / "model-shapes.json", "model_algo_1-shapes.json")
    model = requant.load(tmp_path / "model.tar.gz")
    assert np.array_equal(model.run(digit_images(2))[0], digit_scores(2))


def test_names_with_spaces_and_signs(tmp_path: Path) -> None:
    folder = tmp_path / "größe = 1 (neu)"
    folder.mkdir()
    shutil.copy(DIGITS / "digits-symbol.json", folder / "net [a]=b-symbol.json")
    shutil.copy(DIGITS / "digits-0000.params", folder / "net [a]=b-0000.params")
    model = requant.load(folder / "net [a]=b")
    assert np.array_equal(model.run(digit_images(1))[0], digit_scores(1))
    model.save(folder / "模型.onnx")
    assert np.allclose(requant.load(folder / "模型.onnx").run(digit_images(1))[0], digit_scores(1), atol=1e-6)


# -- training graphs -----------------------------------------------------------------------------------------------


FC = [variable("data"), variable("w"), apply("FullyConnected", "fc", [0, 1], num_hidden="4", no_bias="True")]
FC_PARAMS = {"arg:w": numbers(4, 3)}


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


def lstm_with_free_states(state: str) -> list[files.Node]:
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


def unrolled_cell(first: files.Node) -> list[files.Node]:
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
def test_begin_states_of_unrolled_cells(tmp_path: Path, engine: str, first: files.Node) -> None:
    params = {"arg:i2h_weight": numbers(6, 5), "arg:h2h_weight": numbers(6, 6)}
    if first["op"] == "zeros":
        first = {**first, "op": "_zeros"}
    model = load(tmp_path, text(unrolled_cell(first)), params)
    i2h, h2h = params.values()
    for batch in (1, 3):
        x = numbers(batch, 2, 5)
        wanted = np.tanh(x[:, 1] @ i2h.T + np.tanh(x[:, 0] @ i2h.T) @ h2h.T)
        assert np.allclose(model.run(x, engine=engine)[0], wanted, atol=1e-5)


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
