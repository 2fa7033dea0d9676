"""What goldens cannot show: symbolic dimensions through reshaping, and what MXNet 1.9.1 itself cannot run."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from requant import eager, engines
from requant.engines.base import EngineOptions
from requant.errors import AttributeValueError, ShapeError
from requant.ops import registry
from requant.ops.emit import Emit, NeedsShape, Value
from requant.ops.sizes import Size

GOLDENS = Path(__file__).parent.parent / "goldens"
sys.path.insert(0, str(GOLDENS))

from case import Case, cases  # noqa: E402


def lowered(name: str, *dims: tuple[int | str, ...], **attrs: object) -> tuple[Emit, tuple[Value, ...]]:
    op = registry.get(name)
    parsed = op.parse({k: str(v) for k, v in attrs.items()})
    g = Emit("op")
    values = [g.input(f"in{i}", d, np.float32) for i, d in enumerate(dims)]
    if op.variadic:
        out = op.lower(g, parsed, *values)
    else:
        out = op.lower(g, parsed, **dict(zip(op.input_names(parsed), values)))
    return g, out if isinstance(out, tuple) else (out,)


def shape(name: str, *dims: tuple[int | str, ...], **attrs: object) -> tuple[int | str | None, ...]:
    _, outs = lowered(name, *dims, **attrs)
    assert outs[0].shape is not None
    return tuple(d if isinstance(d, int) else d.value for d in outs[0].shape)


def run(name: str, *arrays: np.ndarray, **attrs: object) -> list[np.ndarray]:
    return eager.invoke(registry.get(name), {k: str(v) for k, v in attrs.items()}, arrays)


@pytest.mark.parametrize(
    ("dims", "codes", "want"),
    [
        (("N", 8, 7, 7), (0, -1), ("N", 392)),
        (("N", 8, 7, 7), (-1, 392), ("N", 392)),
        (("N", 8, 7, 7), (0, 392), ("N", 392)),
        (("N", 8, "H", "W"), (0, 0, -1), ("N", 8, "H*W")),
        (("N", 8, "H", "W"), (0, -4, 2, 4, -2), ("N", 2, 4, "H", "W")),
        (("N", 2, 4, "H", "W"), (0, -3, -2), ("N", 8, "H", "W")),
        (("N", 8, 5), (-3, 0), ("8*N", 5)),
        (("8*N", 5), (-4, -1, 8, 0), ("N", 8, 5)),
        (("N", 6), (-4, -1, 2, 0), ("N/2", 2, 6)),
        (("N", "N", 4), (-1, 4), ("N*N", 4)),
        (("N", 4), (-1,), ("4*N",)),
    ],
)
def test_reshape_keeps_symbols(
    dims: tuple[int | str, ...], codes: tuple[int, ...], want: tuple[int | str, ...]
) -> None:
    assert shape("Reshape", dims, shape=codes) == want


def test_reshape_of_an_open_batch_is_one_node() -> None:
    g, _ = lowered("Reshape", ("N", 8, 7, 7), shape=(0, -1))
    assert [n.op_type for n in g.nodes] == ["Reshape"]


def test_reshape_to_the_same_shape_is_nothing() -> None:
    g, _ = lowered("Reshape", ("N", 3, 4), shape=(0, 0, -1))
    assert g.nodes == []


def test_reshape_computes_what_stays_unknown() -> None:
    """Two open products: one is inferred, the other comes from the data's shape."""
    x = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    g, _ = lowered("Reshape", ("A", "B", "C", "D"), shape=(-3, -3))
    assert "Mul" in [n.op_type for n in g.nodes]
    assert run("Reshape", x, shape=(-3, -3))[0].shape == (6, 20)


@pytest.mark.parametrize(
    ("dims", "codes"),
    [
        ((2, 3), (4, 2)),
        ((2, 3), (0, 0, 0)),
        ((2, 3), (-1, -1)),
        ((2, 3), (-4, 3, -1, 0)),
        ((2, 3), (-5, 3)),
        ((7,), (2, -1)),
    ],
)
def test_reshape_refuses(dims: tuple[int, ...], codes: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError):
        shape("Reshape", dims, shape=codes)


@pytest.mark.parametrize(
    ("dims", "codes", "reverse", "want"),
    [
        # MXNet 1.9.1 forgets that -4 and -2 move the place of a -1 after them, and fails or computes nonsense.
        ((6, 4, 2), (-4, 2, 3, -1), False, (2, 3, 8)),
        ((2, 2, 4), (-2, -1), False, (2, 2, 4, 1)),
        ((1, 3, 6), (0, -1, 3, 2, -4), True, (1, 3, 3, 2)),
    ],
)
def test_reshape_where_mxnet_fails(
    dims: tuple[int, ...], codes: tuple[int, ...], reverse: bool, want: tuple[int, ...]
) -> None:
    assert shape("Reshape", dims, shape=codes, reverse=reverse) == want


@pytest.mark.parametrize("label", ["N", "8*N", "N/2", "3*H*W/4", "N*N", "1/N"])
def test_size_labels_read_back(label: str) -> None:
    assert Size.named(label).label == label


def test_size_arithmetic() -> None:
    n, eight = Size.named("N"), Size.number_of(8)
    assert n * eight / eight == n
    assert (n * eight / n).number == 8
    assert (n / eight).number is None
    assert Size.number_of(1) / eight != Size()


@pytest.mark.parametrize(
    ("name", "dims", "attrs", "want"),
    [
        ("transpose", [("N", 3, "H", 5)], {"axes": (0, 2, 3, 1)}, ("N", "H", 5, 3)),
        ("slice_axis", [("N", 3, 8)], {"axis": 2, "begin": 1, "end": -1}, ("N", 3, 6)),
        ("slice_like", [("N", 3, 8, 8), ("N", 2, 5, "W")], {"axes": (2, 3)}, ("N", 3, 5, "W")),
        ("slice_like", [("N", 3), ("N", 3)], {}, ("N", 3)),
        ("broadcast_like", [("N", 3, 1, 1), ("N", 3, "H", "W")], {}, ("N", 3, "H", "W")),
        ("broadcast_to", [("N", 1, 4)], {"shape": (0, 3, 0)}, ("N", 3, 4)),
        ("broadcast_axis", [("N", 1, 4)], {"axis": 1, "size": 3}, ("N", 3, 4)),
        ("Concat", [("N", 3, "H"), ("N", 2, "H")], {"num_args": 2}, ("N", 5, "H")),
        ("SliceChannel", [("N", 4, "H")], {"num_outputs": 2}, ("N", 2, "H")),
        ("repeat", [("N", 3)], {"repeats": 2, "axis": 0}, ("2*N", 3)),
        ("reshape_like", [("M", 4), ("N", 2, 4)], {"lhs_end": 1, "rhs_end": 2}, ("N", 2, 4)),
        ("expand_dims", [("N", 3)], {"axis": -1}, ("N", 3, 1)),
        ("squeeze", [("N", 3, 1, 1)], {"axis": (2, 3)}, ("N", 3)),
        ("diag", [("N", 3, 4)], {"axis1": 1, "axis2": 2}, ("N", 3)),
        ("Embedding", [("N", "T"), (5, 6)], {"input_dim": 5, "output_dim": 6}, ("N", "T", 6)),
        ("pick", [("N", 10), ("N",)], {}, ("N",)),
        ("one_hot", [("N", "T")], {"depth": 4}, ("N", "T", 4)),
        ("topk", [("N", 10)], {"k": 3}, ("N", 3)),
        ("SequenceMask", [("T", "N", 3), ("N",)], {"use_sequence_length": True}, ("T", "N", 3)),
        ("SequenceLast", [("T", "N", 3), ("N",)], {"use_sequence_length": True}, ("N", 3)),
        ("depth_to_space", [("N", 8, 3, 4)], {"block_size": 2}, ("N", 2, 6, 8)),
    ],
)
def test_open_dimensions_keep_their_names(
    name: str, dims: list[tuple[int | str, ...]], attrs: dict[str, object], want: tuple[int | str, ...]
) -> None:
    assert shape(name, *dims, **attrs) == want


def test_squeeze_of_all_ones_needs_numbers() -> None:
    with pytest.raises(NeedsShape):
        shape("squeeze", ("N", 1, 3))


def test_scatter_set_nd() -> None:
    """MXNet 1.9.1 runs it in place alone, so that there is no golden."""
    x, new = np.zeros((3, 4), np.float32), np.array([1, 2, 3], np.float32)
    places = np.array([[0, 1, 2], [1, 2, 0]], np.int32)
    want = x.copy()
    want[places[0], places[1]] = new
    np.testing.assert_array_equal(run("_scatter_set_nd", x, new, places, shape=(3, 4))[0], want)


def test_repeats_of_files_of_mxnet_2() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(run("_npi_repeats", x, repeats=(1, 0, 2), axis=1)[0], np.repeat(x, (1, 0, 2), axis=1))
    np.testing.assert_array_equal(run("_npi_repeats", x, repeats=(2,))[0], np.repeat(x, 2))


def _one_case_per_operator() -> list[tuple[str, Case]]:
    found: dict[str, tuple[str, Case]] = {}
    for family in ("reshape", "shape", "joining", "slicing", "broadcasting", "indexing", "sorting", "sequence"):
        for case in cases(family):
            if case.attrs or len(case.inputs) > 1:
                found.setdefault(case.op, (family, case))
    return list(found.values())


@pytest.mark.parametrize(("family", "case"), _one_case_per_operator(), ids=lambda x: getattr(x, "op", ""))
def test_open_dimensions_on_openvino(family: str, case: Case) -> None:
    """The same numbers where no dimension is known when the graph is compiled."""
    op, arrays = registry.get(case.op), case.arrays()
    attrs = op.parse({k: str(v) for k, v in case.attrs.items()})
    dims = [(a.dtype, [f"d{i}_{k}" for k in range(a.ndim)]) for i, a in enumerate(arrays)]
    try:
        model, used = eager.lower_one(op, attrs, dims)
    except NeedsShape:
        return  # it says that it cannot: whoever asked gives all sizes
    session = engines.get("openvino").load(model, EngineOptions(threads=1), None)
    with np.load(GOLDENS / "data" / f"{family}.npz") as recorded:
        for i, got in enumerate(session.run({f"in{i}": arrays[i] for i in used})):
            np.testing.assert_allclose(got, recorded[f"{case.id}|{i}"], rtol=1e-4, atol=1e-5)


def test_boolean_mask_and_reverse_from_the_end() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    got = run("_contrib_boolean_mask", x, np.array([1, 0, 2], np.float32))[0]
    np.testing.assert_array_equal(got, x[[0, 2]])
    np.testing.assert_array_equal(run("reverse", x, axis=-1)[0], x[:, ::-1])  # MXNet 1.9.1 fails on -1
    np.testing.assert_array_equal(run("slice", x, begin=(-10,), end=(2,))[0], x[:2])  # and on -10 here


@pytest.mark.parametrize(
    ("name", "dims", "attrs", "fault"),
    [
        ("slice_axis", [(4, 5)], {"axis": 0, "begin": 3, "end": 2}, ShapeError),
        ("slice_axis", [(4, 5)], {"axis": 2, "begin": 0, "end": 2}, ShapeError),
        ("slice", [(4, 5)], {"begin": (0, 1), "end": (1,)}, AttributeValueError),
        ("slice", [(4,)], {"begin": (0,), "end": (4,), "step": (0,)}, AttributeValueError),
        ("slice_like", [(4, 5), (4, 5, 6)], {}, ShapeError),
        ("slice_like", [(4, 5), (9, 5)], {}, ShapeError),
        ("broadcast_to", [(2, 3)], {"shape": (4, 3)}, ShapeError),
        ("broadcast_axis", [(2, 3)], {"axis": 0, "size": 4}, ShapeError),
        ("transpose", [(2, 3)], {"axes": (0, 0)}, AttributeValueError),
        ("squeeze", [(2, 3)], {"axis": 0}, ShapeError),
        ("SliceChannel", [(2, 3)], {"num_outputs": 2}, ShapeError),
        ("Concat", [(2, 3), (2, 3, 1)], {"num_args": 2}, ShapeError),
        ("Concat", [(2, 3), (3, 4)], {"num_args": 2}, ShapeError),
        ("topk", [(2, 3)], {"k": 4}, ShapeError),
        ("pick", [(2, 3), (2,)], {"axis": "None"}, AttributeValueError),
        ("pick", [(2, 3, 4), (2,)], {}, ShapeError),
        ("where", [(2, 3), (2, 3, 4), (2, 3, 4)], {}, ShapeError),
        ("gather_nd", [(2,), (3, 4)], {}, ShapeError),
        ("SequenceReverse", [(2, 3)], {"axis": 1}, AttributeValueError),
        ("depth_to_space", [(2, 3)], {"block_size": 2}, ShapeError),
        ("repeat", [(2, 3)], {"repeats": 0}, AttributeValueError),
    ],
)
def test_what_does_not_fit_is_refused(
    name: str, dims: list[tuple[int | str, ...]], attrs: dict[str, object], fault: type[Exception]
) -> None:
    with pytest.raises(fault):
        shape(name, *dims, **attrs)
