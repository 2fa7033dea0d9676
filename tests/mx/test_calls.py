"""Every operator is called as in MXNet 1.9.1: same names, same inputs, same attributes in the same order."""

import inspect
import json
from pathlib import Path

import pytest

import requant.mx as mx
from requant.mx import generate, nd
from requant.mx import symbol as sym
from requant.ops import registry

WANTED: dict[str, list] = json.loads((Path(__file__).parent / "data" / "calls.json").read_text())
#: Registered names that MXNet 1.9.1 has too.
SHARED = [n for op in registry.all_ops() for n in (op.name, *op.aliases) if n in WANTED]
CANONICAL = sorted({WANTED[n][0] for n in SHARED})


@pytest.mark.parametrize("name", SHARED)
def test_attributes_stand_in_mxnets_order(name: str) -> None:
    _, inputs, _, attributes = WANTED[name]
    op = registry.get(name)
    spelling = generate.spell(op, name)
    mine = [a for a in spelling.attributes if a in attributes]
    theirs = [a for a in attributes if a in spelling.attributes]
    assert mine == theirs
    if name.startswith(
        "_sg_"
    ):  # fused nodes: MXNet lists the inputs of all their settings, or a single "data" for them
        return
    if not spelling.variadic:  # MXNet leaves the auxiliary states of some operators unlisted
        assert inputs in (list(spelling.inputs), [i for i in spelling.inputs if i not in op.aux])


@pytest.mark.parametrize("canonical", CANONICAL)
def test_aliases_lead_to_the_same_operator(canonical: str) -> None:
    names = [n for n in SHARED if WANTED[n][0] == canonical]
    assert len({registry.get(n).name for n in names}) == 1


def test_functions_show_their_arguments() -> None:
    for space in (nd, sym):
        shown = inspect.signature(space.Convolution)
        assert list(shown.parameters)[:5] == ["data", "weight", "bias", "kernel", "stride"]
        assert shown.parameters["num_group"].default == 1
        assert shown.parameters["kernel"].default is generate.REQUIRED
        assert "num_group: int, default 1" in space.Convolution.__doc__


@pytest.mark.parametrize("space", [nd, sym], ids=["nd", "sym"])
def test_every_operator_is_a_function_with_help(space: object) -> None:
    for namespace in ("", "contrib", "linalg", "_internal"):
        module = getattr(space, namespace) if namespace else space.op  # type: ignore[attr-defined]
        for name in generate.names(namespace):
            function = getattr(module, name)
            assert function.__name__ == name
            assert "MXNet operator: " in function.__doc__
            assert "out" in inspect.signature(function).parameters
            assert name in dir(module)


def test_all_submodules_import() -> None:
    for name in dir(mx):
        if not name.startswith("__"):
            assert getattr(mx, name) is not None
    with pytest.raises(AttributeError, match="nosuch"):
        mx.nosuch  # noqa: B018
    assert mx.nd is mx.ndarray
    assert mx.__version__ == "1.9.1"
