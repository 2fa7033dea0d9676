"""Branches and their concatenation share a range: any of them may need one of its own when others return to float."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import requant
from requant import cli, engines
from requant.formats.dataset import Arrays
from requant.passes import optimize
from requant.pipeline.calibrate import calibrate
from requant.quant.derived import derived
from requant.quant.planner import plan

F32 = np.float32


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two branches, joined, read by a convolution and, flattened, by a product."""
    rng = np.random.default_rng(0)
    stored = {
        "w1": rng.standard_normal((6, 4, 3, 3)) / 6,
        "w2": rng.standard_normal((6, 4, 1, 1)) / 2,
        "w3": rng.standard_normal((8, 12, 3, 3)) / 10,
        "w4": rng.standard_normal((8 * 64, 5)) / 20,
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("Conv", ["x", "w2"], ["c"], name="second"),
        helper.make_node("Concat", ["b", "c"], ["d"], name="joined", axis=1),
        helper.make_node("Conv", ["d", "w3"], ["e"], name="third", pads=[1, 1, 1, 1]),
        helper.make_node("Flatten", ["e"], ["f"], name="flat"),
        helper.make_node("MatMul", ["f", "w4"], ["y"], name="last"),
    ]
    infos = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4, 8, 8]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 5]),
    ]
    weights = [numpy_helper.from_array(v.astype(F32), n) for n, v in stored.items()]
    graph = helper.make_graph(nodes, "joined", infos[:1], infos[1:], weights)
    path = tmp_path_factory.mktemp("joined") / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    np.savez(path.with_name("data.npz"), x=np.random.default_rng(1).standard_normal((40, 4, 8, 8)).astype(F32))
    return path


def data_of(model: Path) -> np.ndarray:
    return np.asarray(np.load(model.with_name("data.npz"))["x"])


@pytest.mark.parametrize("mode", ["best", "full"])
def test_a_missed_goal_ends_with_the_best_model(model: Path, mode: str) -> None:
    made = requant.quantize(requant.load(model), data_of(model), mode=mode, min_sqnr=300.0)
    assert not made.report.met
    assert made.report.sqnr > 20


@pytest.mark.parametrize("calibrator", ["naive", "entropy"])
def test_a_table_serves_every_exclude_list(model: Path, tmp_path: Path, calibrator: str) -> None:
    table = tmp_path / "full.json"
    loaded, x = requant.load(model), data_of(model)
    requant.quantize(loaded, x, mode="full", calibrator=calibrator, table=table, check=False)
    for exclude in (["joined"], ["first"], ["second"], ["third"], ["joined", "flat"], ["first", "third"]):
        made = requant.quantize(loaded, table=table, exclude=exclude, mode="full", calibrator=calibrator, check=False)
        noise = np.square(loaded.run(x)[0] - made.run(x)[0]).mean() / np.square(loaded.run(x)[0]).mean()
        assert noise < 0.01, exclude


def test_the_command_says_missed_and_writes_the_model(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "int8.onnx"
    words = ["quantize", str(model), "--data", str(model.with_name("data.npz")), "--min-sqnr", "300", "-o", str(out)]
    result = CliRunner().invoke(cli.group, words)
    assert result.exit_code == 3, result.output
    assert out.exists() and "MISSED" in result.output


@pytest.mark.parametrize("calibrator", ["naive", "entropy"])
def test_what_is_derived_is_what_would_have_been_observed(model: Path, calibrator: str) -> None:
    floating = optimize(requant.load(model).onnx)
    joined = next(n for n in floating.graph if n.op_type == "Concat")
    flat = next(n for n in floating.graph if n.op_type in ("Flatten", "Reshape"))
    names = [str(v.name) for v in (*joined.inputs, joined.outputs[0], flat.inputs[0], flat.outputs[0]) if v is not None]
    made = plan(floating, "full", engines.get("openvino").scheme)
    data = Arrays({"x": data_of(model)})
    whole = calibrate(floating, made, data, calibrator=calibrator, also=names)
    some = calibrate(floating, made, data, calibrator=calibrator, also=[*names[:2], names[3]])
    missing = [n for n in (names[2], names[4]) if n not in some]
    assert missing
    full = derived(some, floating.graph, missing)
    for name in missing:
        one, other = full.entry(name).statistic.state(), whole.entry(name).statistic.state()
        for key in other:
            np.testing.assert_array_equal(one[key], other[key])
    assert not any(n in some for n in missing), "the table is left as it is"


def test_what_follows_from_nothing_stays_missing(model: Path) -> None:
    floating = optimize(requant.load(model).onnx)
    made = plan(floating, "full", engines.get("openvino").scheme)
    table = calibrate(floating, made, Arrays({"x": data_of(model)}), calibrator="naive")
    conv = next(n for n in floating.graph if n.op_type == "Relu" or n.op_type == "MatMul" or n.op_type == "Gemm")
    name = str(conv.outputs[0].name)
    if name not in table:
        assert derived(table, floating.graph, [name]) is table
    assert derived(table, floating.graph, ["no such tensor"]) is table
