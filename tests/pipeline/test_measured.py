"""Mode measured: how it chooses, by a clock that reads a price list, and the road through it, by the real one."""

import json
import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import requant
from requant import engines
from requant.engines.session import LayerProfile, Session
from requant.errors import CalibrationError, EngineError, FormatError, QuantizationError
from requant.pipeline import measured, verify
from requant.pipeline.layer_times import node_times
from requant.pipeline.measured import Search, ratio_of
from requant.pipeline.measurements import Measurements
from requant.quant.apply import apply
from requant.quant.plan import Plan, from_json
from requant.quant.planner import plan
from requant.scheme import OPENVINO

DIGITS = Path(__file__).resolve().parents[1] / "digits"
X = np.random.default_rng(0).normal(size=(1, 4, 8, 8)).astype(np.float32)


def three_blocks() -> ir.Model:
    """Three residual blocks of one convolution each, named c0 to c2, with their sums s0 to s2."""
    rng = np.random.default_rng(1)
    nodes, weights, last = [], [], "x"
    for i in range(3):
        weights.append(onnx.numpy_helper.from_array(rng.normal(size=(4, 4, 3, 3)).astype(np.float32) / 6, f"w{i}"))
        nodes.append(onnx.helper.make_node("Conv", [last, f"w{i}"], [f"c{i}"], f"c{i}", pads=[1] * 4))
        nodes.append(onnx.helper.make_node("Add", [f"c{i}", last], [f"s{i}"], f"s{i}"))
        last = f"s{i}"
    nodes.append(onnx.helper.make_node("Sigmoid", [last], ["y"], "y"))
    ends = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, 4, 8, 8]) for n in ("x", "y")]
    graph = onnx.helper.make_graph(nodes, "three", ends[:1], ends[1:], weights)
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


class Priced(Search):
    """A search on sessions whose time is a price: of each convolution in float or int8, and where they alternate."""

    def __init__(self, prices: Mapping[str, tuple[float, float]], border: float = 0.0, **more: Any) -> None:
        self.model = three_blocks()
        self.prices, self.border, self.loads = prices, border, 0
        self.judged: list[frozenset[str]] = []
        first = plan(self.model, "best", OPENVINO)
        bound = more.pop("bound", lambda floats: True)

        def make(floats: frozenset[str]) -> tuple[Plan, ir.Model]:
            made = plan(self.model, "best", OPENVINO, exclude=sorted(floats)) if floats else first
            return made, apply(self.model, made, dict.fromkeys(made.observed, (-4.0, 4.0)))

        def judge(made: Plan, model: ir.Model, precision: str) -> tuple[bool, float]:
            floats = frozenset(d.node for d in made.decisions if d.op_type == "Conv" and d.chosen == "float")
            self.judged.append(floats)
            return bound(floats), 20.0 + len(floats)

        given: dict[str, Any] = {"engine": "openvino", "figures": Measurements(None, {}), "budget": 1000.0, **more}
        super().__init__(self.model, first, make, judge, {"x": X}, **given)

    def _load(self, model: ir.Model, options: engines.EngineOptions) -> Session:
        self.loads += 1
        session = super()._load(model, options)
        session.price = self.price(model) * (0.5 if options.precision == "bf16" else 1.0)  # type: ignore[attr-defined]
        return session

    def price(self, model: ir.Model) -> float:
        convs = [n for n in model.graph if n.op_type == "Conv"]
        makers = [n.inputs[0].producer() for n in convs if n.inputs[0] is not None]
        int8 = [m is not None and m.op_type == "DequantizeLinear" for m in makers]
        total = sum(self.prices[str(n.name)][i] for n, i in zip(convs, int8, strict=True))
        return total + self.border * sum(a != b for a, b in pairwise(int8))


@pytest.fixture
def priced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock reads prices; profiles tell those of the layers themselves, borders not included."""

    class Runner:
        def __init__(self, session: Session, feeds: Mapping[str, np.ndarray]) -> None:
            self.session, self.feeds = session, feeds

        def __call__(self) -> object:
            return self.session.run(self.feeds)

    def by_turns(calls: Mapping[str, Any], seconds: float, least: int = 5) -> dict[str, np.ndarray]:
        for call in calls.values():
            call()
        return {name: np.full(least, call.session.price) for name, call in calls.items()}

    monkeypatch.setattr(measured, "_runner", Runner)
    monkeypatch.setattr(measured, "by_turns", by_turns)
    monkeypatch.setattr(measured, "PROFILES", 1)


@pytest.fixture
def profiles(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[float, float]]:
    """What profiles tell; a test fills it in."""
    prices: dict[str, tuple[float, float]] = {}
    which = iter([0, 1] * 100)

    def times(profile: object, model: ir.Model, made: Plan) -> dict[str, float]:
        side = next(which)
        return {node: price[side] for node, price in prices.items()}

    monkeypatch.setattr(measured, "node_times", times)
    return prices


def chosen_floats(search: Search) -> set[str]:
    outcome = search.run()
    return {d.node for d in outcome.plan.decisions if d.op_type == "Conv" and d.chosen == "float"}


@pytest.mark.usefixtures("priced")
@pytest.mark.parametrize(
    ("prices", "floats"),
    [
        ({"c0": (10, 5), "c1": (10, 5), "c2": (10, 5)}, set()),
        ({"c0": (5, 10), "c1": (5, 10), "c2": (5, 10)}, {"c0", "c1", "c2"}),
        ({"c0": (10, 5), "c1": (10, 5), "c2": (5, 40)}, {"c2"}),
        ({"c0": (10, 90), "c1": (10, 5), "c2": (10, 5)}, {"c0"}),
    ],
)
def test_each_layer_becomes_what_is_faster(profiles, prices, floats) -> None:  # type: ignore[no-untyped-def]
    profiles.update(prices)
    search = Priced(prices)
    outcome = search.run()
    assert {d.node for d in outcome.plan.decisions if d.op_type == "Conv" and d.chosen == "float"} == floats
    assert outcome.plan.mode == "measured"
    assert outcome.choice.complete
    whole = {all_one: sum(p[all_one] for p in prices.values()) for all_one in (0, 1)}
    mixed = sum(p[name not in floats] for name, p in prices.items())
    assert outcome.choice.chosen.milliseconds == pytest.approx(1e3 * mixed)
    assert mixed <= min(whole.values())
    for layer in outcome.choice.layers:
        if layer.op_type == "Conv":
            assert (layer.float_us, layer.int8_us) == prices[layer.node]
            assert layer.chosen == ("float" if layer.node in floats else "int8")
            assert (
                f"{layer.float_us:.1f} µs in float, {layer.int8_us:.1f} in int8"
                in outcome.plan.decision(layer.node).why
            )


@pytest.mark.usefixtures("priced")
def test_what_conversions_cost_is_seen_only_in_the_whole(profiles) -> None:  # type: ignore[no-untyped-def]
    """The profile recommends one layer in float; with the price of borders that is slower, so it is not taken."""
    prices = {"c0": (10.0, 5.0), "c1": (5.0, 6.0), "c2": (10.0, 5.0)}
    profiles.update(prices)
    assert chosen_floats(Priced(prices)) == {"c1"}
    assert chosen_floats(Priced(prices, border=4.0)) == set()


@pytest.mark.usefixtures("priced")
def test_a_wrong_profile_is_corrected_by_measuring(profiles) -> None:  # type: ignore[no-untyped-def]
    prices = {"c0": (10.0, 5.0), "c1": (10.0, 30.0), "c2": (10.0, 5.0)}
    profiles.update({"c0": (10, 9), "c1": (10, 11), "c2": (10, 12)})  # c2 does not belong to the slower ones
    assert chosen_floats(Priced(prices)) == {"c1"}


@pytest.mark.usefixtures("priced")
def test_nothing_beyond_the_error_bound_is_chosen(profiles) -> None:  # type: ignore[no-untyped-def]
    prices = {"c0": (10.0, 5.0), "c1": (10.0, 5.0), "c2": (10.0, 5.0)}
    profiles.update(prices)
    search = Priced(prices, bound=lambda floats: False)
    outcome = search.run()
    assert outcome.plan.count("int8") == 0
    assert outcome.choice.chosen.ratio == 1
    assert frozenset() in search.judged  # all in int8 was faster, and was judged
    outcome = Priced(prices, bound=lambda floats: "c1" in floats).run()
    assert outcome.plan.decision("c1").chosen == "float"
    assert outcome.plan.count("int8") > 0
    assert outcome.choice.chosen.sqnr is not None and outcome.choice.chosen.sqnr >= 21


@pytest.mark.usefixtures("priced")
def test_bf16_is_used_only_where_it_is_allowed(profiles) -> None:  # type: ignore[no-untyped-def]
    try:
        requant.Model.from_onnx(three_blocks()).compile(precision="bf16", shapes={"x": (1, 4, 8, 8)})
    except EngineError:
        pytest.skip("this CPU has no bf16")
    prices = {"c0": (10.0, 9.0), "c1": (10.0, 9.0), "c2": (10.0, 9.0)}
    profiles.update(prices)
    assert Priced(prices).run().precision == "f32"
    outcome = Priced(prices, precisions=["bf16"]).run()
    assert outcome.precision == "bf16"
    assert outcome.choice.chosen.precision == "bf16"
    assert Priced(prices, precisions=["bf16"], bound=lambda floats: floats == frozenset()).run().precision == "bf16"


@pytest.mark.usefixtures("priced")
def test_a_search_goes_on_where_the_last_one_ended(profiles, tmp_path) -> None:  # type: ignore[no-untyped-def]
    prices = {"c0": (10.0, 5.0), "c1": (10.0, 5.0), "c2": (5.0, 40.0)}
    profiles.update(prices)
    file = tmp_path / "figures.json"
    first = Priced(prices, figures=Measurements(file, {"cpu": "a"}))
    one = first.run()
    again = Priced(prices, figures=Measurements(file, {"cpu": "a"}))
    two = again.run()
    assert one.choice.reused == 0
    assert two.choice.reused == len(json.loads(file.read_text())["entries"].popitem()[1]["figures"])
    assert again.loads == 3 < first.loads  # for the last comparison alone: float, int8 and the best
    assert [d.chosen for d in one.plan.decisions] == [d.chosen for d in two.plan.decisions]
    other = Priced(prices, figures=Measurements(file, {"cpu": "b"}))
    assert other.run().choice.reused == 0
    assert len(json.loads(file.read_text())["entries"]) == 2


@pytest.mark.usefixtures("priced")
def test_a_budget_that_ends_early_still_has_a_result(profiles, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    prices = {"c0": (10.0, 5.0), "c1": (10.0, 5.0), "c2": (5.0, 40.0)}
    profiles.update(prices)
    outcome = Priced(prices, budget=1e-6).run()
    assert not outcome.choice.complete
    assert outcome.choice.chosen.ratio <= min(1, 50 / 25)
    assert "budget ended" in dict(outcome.choice.rows())["search"]
    with pytest.raises(QuantizationError, match="positive number"):
        Priced(prices, budget=math.nan)


def test_ratios_resist_outliers() -> None:
    times = np.array([1.0, 1.1, 0.9, 1.0, 50.0])
    middle, noise = ratio_of(times, np.full(5, 2.0))
    assert middle == 0.5
    assert 0 < noise < 0.1


# --- layers of engines and nodes of plans -------------------------------------------------------------------------


def layer(name: str, microseconds: float, op: str = "Convolution") -> LayerProfile:
    return LayerProfile(name, op, "kernel", "f32", microseconds)


def test_conversions_belong_to_the_layer_behind_them() -> None:
    model = three_blocks()
    made = plan(model, "best", OPENVINO)
    profile = [
        layer("x/QuantizeLinear", 1, "Subgraph"),
        layer("x/QuantizeLinear_abcd_acdb_c0", 2, "Reorder"),
        layer("c0", 10),
        layer("c1/WithoutBiases/DequantizationMultiply", 20),
        layer("c2_token_7", 30),
        layer("s2", 5, "Eltwise"),
        layer("y", 4, "Sigmoid"),
        layer("Reorder", 8, "Reorder"),
    ]
    assert node_times(profile, model, made) == {"c0": 13, "c1": 20, "c2": 30, "s2": 5, "y": 12}


@pytest.mark.parametrize("engine", ["openvino", "onnxruntime"])
def test_all_time_of_a_real_profile_finds_a_node(engine: str) -> None:
    model = requant.load(DIGITS / "digits")
    data = np.load(DIGITS / "calibration.npz")["data"][:20]
    int8 = requant.quantize(model, data, engine=engine, check=False)
    floating = requant.passes.optimize(model.onnx_for({"data": data.shape}))  # type: ignore[attr-defined]
    for graph in (floating, int8.onnx):
        session = engines.get(engine).load(graph, engines.EngineOptions(profile=True), {"data": (1, 1, 8, 8)})
        session.run({"data": data[:1]})
        layers = session.profile()
        found = node_times(layers, floating, int8.plan)
        assert sum(found.values()) == pytest.approx(sum(p.microseconds for p in layers))
        assert {"conv0/Conv", "conv1/Conv", "conv2/Conv", "fc/Gemm"} <= set(found)


# --- the whole road ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def samples() -> np.ndarray:
    found: np.ndarray = np.load(DIGITS / "calibration.npz")["data"][:60]
    return found


@pytest.fixture(scope="module")
def quick() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify, "SECONDS", 0.02)
        patch.setattr(measured, "SECONDS", 0.02)
        yield


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("engine", ["openvino", "onnxruntime"])
def test_from_a_model_to_a_file(samples, tmp_path, engine) -> None:  # type: ignore[no-untyped-def]
    model = requant.load(DIGITS / "digits")
    figures = tmp_path / "figures.json"
    made = requant.quantize(model, samples, mode="measured", engine=engine, budget=3, measurements=figures)
    report = made.report
    assert report is not None and report.choice is not None
    assert report.mode == made.plan.mode == "measured"
    names = [c.name for c in report.choice.candidates if c.final]
    assert {"all in float", "all in int8"} <= set(names)
    assert report.choice.chosen.int8 == 0 or made.plan.count("int8") > 0
    assert report.choice.batch == 1
    assert {t.node for t in report.choice.layers} >= {"conv0/Conv", "fc/Gemm"}
    assert from_json(made.plan.to_json()) == made.plan
    assert len(report.reasons) < 6  # figures do not make each reason another one
    assert json.loads(report.to_json())["choice"]["candidates"]
    made.save(tmp_path / "x.onnx")
    again = requant.load(tmp_path / "x.onnx")
    for runtime in ("openvino", "onnxruntime"):
        assert (again.run(samples, engine=runtime)[0].argmax(1) == model.run(samples)[0].argmax(1)).mean() > 0.97
    second = requant.quantize(model, samples, mode="measured", engine=engine, budget=3, measurements=figures)
    assert second.report is not None and second.report.choice is not None
    assert second.report.choice.reused > 0


@pytest.mark.usefixtures("quick")
def test_float_is_a_result_and_not_an_error(samples, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """A bound that no int8 model keeps: the float model comes back, and the report says so."""
    model = requant.load(DIGITS / "digits")
    made = requant.quantize(model, samples, mode="measured", budget=2, min_sqnr=500.0)
    assert made.report is not None and made.report.choice is not None
    assert made.plan.count("int8") == 0
    assert made.report.met
    assert any("the result is the float model" in note for note in made.report.notes)
    assert made.report.choice.chosen.name == "all in float"
    np.testing.assert_allclose(made.run(samples[:4])[0], model.run(samples[:4])[0], rtol=1e-4, atol=1e-7)
    made.save(tmp_path / "mxnet")  # MXNet's files hold the float network then
    np.testing.assert_array_equal(requant.load(tmp_path / "mxnet").run(samples[:4])[0], model.run(samples[:4])[0])
    made.save(tmp_path / "x.onnx")
    assert not any(n.op_type == "QuantizeLinear" for n in onnx.load(tmp_path / "x.onnx").graph.node)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"budget": 5}, "belongs to mode 'measured'"),
        ({"measurements": "x.json"}, "belongs to mode 'measured'"),
        ({"precisions": ["bf16"]}, "belongs to mode 'measured'"),
        ({"mode": "measured", "check": False}, "verifies what it measures"),
        ({"mode": "measured", "budget": 0}, "positive number"),
        ({"mode": "measured", "budget": math.inf}, "positive number"),
    ],
)
def test_options_that_do_not_fit(samples, options, match) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(QuantizationError, match=match):
        requant.quantize(requant.load(DIGITS / "digits"), samples, **options)


def test_a_table_alone_has_nothing_to_run(samples, tmp_path) -> None:  # type: ignore[no-untyped-def]
    model = requant.load(DIGITS / "digits")
    table = requant.quantize(model, samples, check=False, calibrator="naive").table
    with pytest.raises(CalibrationError, match="needs data to run"):
        requant.quantize(model, table=table, mode="measured")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "requant measurements", "version": 99}', '{"format": 1}'])
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "figures.json"
    file.write_text(text)
    with pytest.raises(FormatError, match="measurements"):
        Measurements(file, {})
    assert file.read_text() == text
