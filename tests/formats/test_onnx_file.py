from __future__ import annotations

import os
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from damage import damaged, small_memory
from hypothesis import HealthCheck, given, settings
from onnx import TensorProto, helper, numpy_helper

from requant.errors import FormatError, GraphError
from requant.formats import onnx_file

WEIGHT = np.arange(12, dtype=np.float32).reshape(3, 4)


def value(name, *dims):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)


def model_of(nodes, initializers=(), outputs=("y",), functions=(), opsets=(("", 17), ("mine", 1))):
    graph = helper.make_graph(
        list(nodes), "g", [value("x", "N", 3)], [value(name, "N", 4) for name in outputs], list(initializers)
    )
    imports = [helper.make_opsetid(*opset) for opset in opsets]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions))


def example():
    """A model with tensors in every place: initializers, attributes, nested graphs, functions, typed fields."""
    branch = helper.make_graph(
        [helper.make_node("Add", ["b", "t"], ["z"])],
        "then",
        [],
        [value("z", "N", 4)],
        [numpy_helper.from_array(np.ones(4, np.float32), "t")],
    )
    other = helper.make_graph([helper.make_node("Identity", ["b"], ["w"])], "else", [], [value("w", "N", 4)])
    constant = helper.make_tensor("k", TensorProto.FLOAT, [4], [1.0, 2.0, 3.0, 4.0])
    function = helper.make_function(
        "mine",
        "Twice",
        ["a"],
        ["c"],
        [
            helper.make_node("Constant", [], ["two"], value=numpy_helper.from_array(np.float32(2), "two")),
            helper.make_node("Mul", ["a", "two"], ["c"]),
        ],
        [helper.make_opsetid("", 17)],
    )
    return model_of(
        [
            helper.make_node("MatMul", ["x", "weight"], ["m"], name="product"),
            helper.make_node("Constant", [], ["bias"], value=constant),
            helper.make_node("Add", ["m", "bias"], ["b"]),
            helper.make_node("If", ["yes"], ["i"], then_branch=branch, else_branch=other),
            helper.make_node("Twice", ["i"], ["y"], domain="mine"),
        ],
        [
            numpy_helper.from_array(WEIGHT, "weight"),
            helper.make_tensor("half", TensorProto.FLOAT16, [2], [1.0, -2.0]),
            helper.make_tensor("ints", TensorProto.INT64, [2], [1, -2]),
            helper.make_tensor("unsigned", TensorProto.UINT64, [1], [1 << 63]),
            helper.make_tensor("doubles", TensorProto.DOUBLE, [1], [0.5]),
            helper.make_tensor("complex", TensorProto.COMPLEX64, [1], [1 + 2j]),
            helper.make_tensor("words", TensorProto.STRING, [2], [b"a", b"b"]),
            helper.make_tensor("nibbles", TensorProto.INT4, [3], [1, -2, 3]),
            numpy_helper.from_array(np.array(True), "yes"),
            numpy_helper.from_array(np.zeros((0, 3), np.float32), "none"),
        ],
        functions=[function],
    )


def saved(folder: Path, proto, name="net.onnx") -> Path:
    path = folder / name
    path.write_bytes(proto.SerializeToString())
    return path


def tensors(model):
    """All tensors of a model as arrays."""
    return [np.asarray(tensor.numpy()) for tensor, _ in onnx_file._places(model)]


def weight_of(model):
    return model.graph.initializers["weight"].const_value


# -- round trips -----------------------------------------------------------------------------------------------------


def test_round_trip(tmp_path):
    model = onnx_file.read(saved(tmp_path, example()))
    assert np.array_equal(weight_of(model).numpy(), WEIGHT)
    assert onnx_file.write(model, tmp_path / "again.onnx") == [str(tmp_path / "again.onnx")]
    again = onnx_file.read(tmp_path / "again.onnx")
    assert [a.tolist() for a in tensors(again)] == [a.tolist() for a in tensors(model)]
    onnx.checker.check_model(onnx.load(tmp_path / "again.onnx"))
    assert sorted(os.listdir(tmp_path)) == ["again.onnx", "net.onnx"]


def test_large_models_go_to_two_files(tmp_path):
    model = onnx_file.read(saved(tmp_path, model_of([helper.make_node("MatMul", ["x", "weight"], ["y"])], [big()])))
    path = tmp_path / "big.onnx"
    assert onnx_file.write(model, path, external_above=1000) == [str(path), str(path) + ".data"]
    assert not isinstance(weight_of(model), ir.ExternalTensor)  # the model that was written is not changed
    assert path.stat().st_size < 1000 < (tmp_path / "big.onnx.data").stat().st_size
    assert sorted(os.listdir(tmp_path)) == ["big.onnx", "big.onnx.data", "net.onnx"]
    again = onnx_file.read(path)
    assert np.array_equal(weight_of(again).numpy(), numpy_helper.to_array(big()))
    # over its own files, and then with the files gone
    onnx_file.write(again, path, external_above=1000)
    once_more = onnx_file.read(path)
    if os.name == "posix":
        path.unlink()
        (tmp_path / "big.onnx.data").unlink()
    assert np.array_equal(weight_of(once_more).numpy(), weight_of(again).numpy())
    onnx_file.write(once_more, tmp_path / "one.onnx")
    assert sorted(os.listdir(tmp_path))[-1] == "one.onnx"
    assert np.array_equal(weight_of(onnx_file.read(tmp_path / "one.onnx")).numpy(), weight_of(again).numpy())


def big():
    return numpy_helper.from_array(np.arange(3 * 400, dtype=np.float32).reshape(3, 400), "weight")


def test_a_model_that_another_reader_left_external_is_written_whole(tmp_path):
    model = onnx_file.read(saved(tmp_path, model_of([helper.make_node("MatMul", ["x", "weight"], ["y"])], [big()])))
    onnx_file.write(model, tmp_path / "a.onnx", external_above=0)
    lazy = ir.load(tmp_path / "a.onnx")
    assert isinstance(weight_of(lazy), ir.ExternalTensor)
    (tmp_path / "other").mkdir()
    onnx_file.write(lazy, tmp_path / "other" / "b.onnx")
    assert isinstance(weight_of(lazy), ir.ExternalTensor)
    whole = onnx_file.read(tmp_path / "other" / "b.onnx")
    assert np.array_equal(weight_of(whole).numpy(), numpy_helper.to_array(big()))


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = saved(tmp_path, example())
    model, before = onnx_file.read(path), path.read_bytes()
    monkeypatch.setattr(os, "replace", lambda *names: (_ for _ in ()).throw(OSError("disk")))
    for limit in (0, 1 << 30):
        with pytest.raises(OSError, match="disk"):
            onnx_file.write(model, path, external_above=limit)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["net.onnx"]


# -- external data ---------------------------------------------------------------------------------------------------


def external(location, offset=None, length=None, dims=(3, 4), dtype=TensorProto.FLOAT):
    tensor = TensorProto(name="weight", data_type=dtype, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, entry in (("location", location), ("offset", offset), ("length", length)):
        if entry is not None:
            tensor.external_data.add(key=key, value=str(entry))
    return model_of([helper.make_node("MatMul", ["x", "weight"], ["y"])], [tensor])


@pytest.mark.parametrize(("offset", "length"), [(None, None), (4, 48), (1, None)])
def test_external_data(tmp_path, offset, length):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.bin").write_bytes(bytes(offset or 0) + WEIGHT.tobytes() + b"more")
    model = onnx_file.read(saved(tmp_path, external("sub/w.bin", offset, length)))
    assert np.array_equal(weight_of(model).numpy(), WEIGHT)
    assert weight_of(model).numpy().flags.aligned


def test_external_data_of_other_types(tmp_path):
    half = np.array([1.5, -2], ml_dtypes.bfloat16)
    (tmp_path / "w").write_bytes(half.tobytes())
    model = onnx_file.read(saved(tmp_path, external("w", dims=(2,), dtype=TensorProto.BFLOAT16)))
    assert weight_of(model).numpy().tolist() == [1.5, -2]
    (tmp_path / "w").write_bytes(b"\x21\x03")
    model = onnx_file.read(saved(tmp_path, external("w", dims=(3,), dtype=TensorProto.UINT4)))
    assert weight_of(model).numpy().tolist() == [1, 2, 3]
    model = onnx_file.read(saved(tmp_path, external("w", dims=(0, 4))))
    assert weight_of(model).numpy().shape == (0, 4)


@pytest.mark.parametrize(
    "location",
    [
        "../secret",
        "a/../../secret",
        "/etc/hostname",
        "..\\secret",
        "C:\\secret",
        "\\\\host\\secret",
        "",
        "link",
        "a\0b",
    ],
)
def test_external_data_stays_in_the_folder(tmp_path, location):
    (tmp_path / "secret").write_bytes(bytes(48))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "a").mkdir()
    if hasattr(os, "symlink"):
        (folder / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(FormatError, match="outside of the model's folder"):
        onnx_file.read(saved(folder, external(location)))


@pytest.mark.parametrize(
    ("proto", "message"),
    [
        (external("none"), "is missing"),
        (external("."), "outside of the model's folder|is missing"),
        (external("n" * 5000), "outside of the model's folder|is missing"),
        (external("w", offset=1), "does not fit its tensor"),
        (external("w", length=47), "does not fit its tensor"),
        (external("w", offset=-4), "place cannot be read"),
        (external("w", length="x"), "place cannot be read"),
        (external(None), "place cannot be read"),
        (external("w", dims=(1 << 40, 4)), "does not fit its tensor"),
        (external("w", dtype=TensorProto.STRING), "cannot be external"),
    ],
)
def test_broken_external_data(tmp_path, proto, message):
    (tmp_path / "w").write_bytes(WEIGHT.tobytes())
    with pytest.raises(FormatError, match=message) as fault, small_memory():
        onnx_file.read(saved(tmp_path, proto))
    assert "tensor 'weight'" in str(fault.value)


# -- faults ----------------------------------------------------------------------------------------------------------


def relu(source, target, **keys):
    return helper.make_node("Relu", [source], [target], **keys)


def raw(name="w", dims=(2,), data=b"", dtype=TensorProto.FLOAT):
    return TensorProto(name=name, dims=dims, data_type=dtype, raw_data=data)


FAULTS = {
    "no data": (model_of([relu("x", "y")], [raw()]), FormatError, "tensor 'w': a tensor's data does not fit"),
    "short": (model_of([relu("x", "y")], [raw(data=b"\0" * 7)]), FormatError, "got:      7 bytes"),
    "huge": (model_of([relu("x", "y")], [raw(dims=(1 << 40,), data=b"\0" * 8)]), FormatError, "does not fit"),
    "absurd": (model_of([relu("x", "y")], [raw(dims=(1 << 62, 4, 0))]), FormatError, "shape is absurd"),
    "negative": (model_of([relu("x", "y")], [raw(dims=(-1,))]), FormatError, "shape is absurd"),
    "type": (model_of([relu("x", "y")], [raw(dtype=99, data=b"\0" * 8)]), FormatError, "unknown type of a tensor"),
    "typed": (
        model_of([relu("x", "y")], [TensorProto(name="w", dims=(2,), data_type=1, float_data=[1.0])]),
        FormatError,
        "expected: 2, shape [2] of FLOAT",
    ),
    "attribute": (
        model_of([helper.make_node("Constant", [], ["y"], name="k", value=raw(dims=(9,), data=b"\0" * 4))]),
        FormatError,
        "node 0 ('k'), tensor 'w'",
    ),
    "made later": (
        model_of([relu("m", "y"), relu("x", "m")]),
        GraphError,
        "node 0 ('Relu'): a node uses a value that is",
    ),
    "cycle": (model_of([relu("b", "a"), relu("a", "b"), relu("x", "y")]), GraphError, "made later"),
    "made by nothing": (
        model_of([relu("q", "y", name="r")]),
        GraphError,
        "node 0 ('r'): a node uses a value that nothing",
    ),
    "made twice": (model_of([relu("x", "y"), relu("x", "y")]), GraphError, "a value is made twice"),
    "output": (model_of([relu("x", "z")]), GraphError, "an output of the graph is made by nothing"),
    "nested": (
        model_of(
            [
                helper.make_node(
                    "If",
                    ["x"],
                    ["y"],
                    then_branch=helper.make_graph([relu("q", "z")], "t", [], [value("z")]),
                    else_branch=helper.make_graph([relu("x", "z")], "e", [], [value("z")]),
                )
            ]
        ),
        GraphError,
        "node 0 ('If'), node 0 ('Relu')",
    ),
    "attribute without value": (
        model_of([onnx.NodeProto(op_type="Constant", output=["y"], attribute=[onnx.AttributeProto(name="v", type=4)])]),
        FormatError,
        "attribute 'v' has no value of its type",
    ),
    "attribute without type": (
        model_of(
            [onnx.NodeProto(op_type="Relu", input=["x"], output=["y"], attribute=[onnx.AttributeProto(name="v")])]
        ),
        FormatError,
        "type 0 (UNDEFINED)",
    ),
    "function": (
        model_of(
            [relu("x", "y")],
            functions=[
                helper.make_function("mine", "F", ["a"], ["b"], [relu("q", "b")], [helper.make_opsetid("", 17)])
            ],
        ),
        GraphError,
        "function 'F', node 0 ('Relu')",
    ),
    "no outputs": (model_of([relu("x", "y")], outputs=()), FormatError, "not an ONNX model"),
    "no opset": (model_of([relu("x", "y")], opsets=()), FormatError, "not an ONNX model"),
}


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_faults_are_told(tmp_path, name):
    proto, kind, message = FAULTS[name]
    path = saved(tmp_path, proto)
    with pytest.raises(kind) as fault, small_memory():
        onnx_file.read(path)
    assert str(fault.value).startswith(str(path)) and message in str(fault.value)


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (b"", "not an ONNX model"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"\x12\x01" + b"\0" * 30, "an MXNet .params file"),
        (b"\x08\x07" + b"\xff" * 40, "not an ONNX model"),
    ],
)
def test_other_files(tmp_path, blob, message):
    (tmp_path / "net.onnx").write_bytes(blob)
    with pytest.raises(FormatError, match=message):
        onnx_file.read(tmp_path / "net.onnx")
    with pytest.raises(FileNotFoundError):
        onnx_file.read(tmp_path / "none.onnx")


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(blob=damaged([example().SerializeToString(), external("net.onnx", 0, 48).SerializeToString()]))
def test_damaged_files_are_refused_or_read(tmp_path, blob):
    (tmp_path / "net.onnx").write_bytes(blob)
    try:
        model = onnx_file.read(tmp_path / "net.onnx")
    except (FormatError, GraphError):
        return
    tensors(model)
    onnx_file.write(model, tmp_path / "again.onnx")
