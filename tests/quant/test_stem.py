"""The convolution that reads an image stays float where it is a small part of the work."""

import dataclasses

import onnx_ir as ir
import pytest
from small_graphs import Build

from requant.quant.planner import plan
from requant.scheme import OPENVINO


def network(channels: int = 3, wide: int = 64, depth: int = 3, prepared: str = "") -> ir.Model:
    b = Build()
    source = "x"
    if prepared == "normalized":
        names = [b.weight(n, channels) for n in ("g", "b", "m", "v")]
        b.weights["v"] = b.weights["v"] ** 2 + 0.5
        source = b.op("BatchNormalization", "norm", "x", *names)
    elif prepared:
        source = b.op("Mul", "scaled", "x", b.weight("m", channels, 1, 1))
        source = b.op("Add", "shifted", source, b.weight("a", channels, 1, 1))
    b.conv("stem", source, channels, 8)
    b.conv("widen", "stem", 8, wide)
    last = "widen"
    for i in range(depth):
        last = b.conv(f"c{i}", last, wide, wide)
    return b.model({"x": ("N", channels, 8, 8)}, {last: ("N", wide, 8, 8)})


@pytest.mark.parametrize("prepared", ["", "scaled", "normalized"])
def test_a_small_stem_stays_float_and_says_why(prepared: str) -> None:
    made = plan(network(prepared=prepared), "best", OPENVINO)
    assert made.decision("stem").chosen == "float"
    assert "image" in made.decision("stem").why
    assert {made.decision(n).chosen for n in ("widen", "c0", "c1")} == {"int8"}
    assert "x" not in made.observed
    assert "stem" in made.observed, "its output is quantized as it would have been"


@pytest.mark.parametrize(
    "model",
    [network(depth=0, wide=16), network(channels=5), network(channels=8)],
    ids=["a large part of the work", "five channels", "no image"],
)
def test_other_stems_become_int8(model: ir.Model) -> None:
    assert plan(model, "best", OPENVINO).decision("stem").chosen == "int8"


def test_modes_full_and_smart_follow_their_own_rules() -> None:
    for mode in ("full", "smart"):
        assert plan(network(), mode, OPENVINO).decision("stem").chosen == "int8"  # type: ignore[arg-type]


def test_a_scheme_that_does_not_ask_for_it() -> None:
    scheme = dataclasses.replace(OPENVINO, float_stem=0.0)
    assert plan(network(), "best", scheme).decision("stem").chosen == "int8"


def test_a_network_that_is_one_convolution_is_still_quantized() -> None:
    b = Build()
    b.conv("only", "x", 3, 8)
    scheme = dataclasses.replace(OPENVINO, float_stem=1.0)
    assert plan(b.model({"x": ("N", 3, 8, 8)}, {"only": ("N", 8, 8, 8)}), "best", scheme).count("int8") == 1


@pytest.mark.parametrize("activation", ["", "Relu"])
def test_an_addition_reads_the_output_of_a_float_stem_as_it_is(activation: str) -> None:
    b = Build()
    stream = b.conv("stem", "x", 3, 64)
    if activation:
        stream = b.op(activation, "activation", stream)
    b.conv("c0", stream, 64, 64)
    b.conv("c1", "c0", 64, 64)
    b.op("Add", "sum", stream, "c1")
    b.conv("c3", b.conv("c2", "sum", 64, 64), 64, 64)
    model = b.model({"x": ("N", 3, 8, 8)}, {"c3": ("N", 64, 8, 8)})
    made = plan(model, "best", OPENVINO)
    assert made.decision("sum").chosen == "int8"
    assert made.decision("sum").inputs == (1,)
    (tensor,) = [t for t in made.tensors if t.name == stream]
    assert tensor.readers == ("c0",)
    whole = plan(model, "best", dataclasses.replace(OPENVINO, float_stem=0.0))
    assert whole.decision("sum").inputs == (0, 1), "an int8 stem costs nothing to read"
