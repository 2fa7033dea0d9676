"""ONNX Runtime: the second CPU engine, and the one for graphs of a single operator."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir

from requant.engines import machine
from requant.engines.base import Availability, Engine, EngineOptions
from requant.engines.memory import check_run
from requant.engines.onnxruntime_reading import conform, unwanted
from requant.engines.session import LayerProfile, Session
from requant.engines.tensors import Array, Shape, Shapes, TensorSpec, bind, numpy_dtype, output_shape
from requant.engines.wire import join, skeleton
from requant.errors import EngineError
from requant.scheme import ONNXRUNTIME, Scheme

_BF16 = np.dtype(ml_dtypes.bfloat16)
Providers = Sequence[str | tuple[str, Mapping[str, str]]]
_PROVIDERS: Providers = ("CPUExecutionProvider",)
_WORDS = {
    "float": "f32",
    "double": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "bool": "bool",
    **{f"{sign}int{bits}": f"{'u' if sign else 'i'}{bits}" for sign in ("", "u") for bits in (4, 8, 16, 32, 64)},
}
_DTYPES = {
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
    "bfloat16": _BF16,
    **{
        n: np.dtype(n)
        for n in ("float16", "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
    },
    **{
        f"float8{kind}": np.dtype(getattr(ml_dtypes, f"float8_{kind}"))
        for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz")
    },
}
_NEXT = "choose engine 'openvino', or replace what is named above; engines are never switched silently"


def _library() -> Any:
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    return onnxruntime


class OnnxRuntime(Engine):
    """ONNX Runtime's CPU provider. It computes in the precision that the graph is written in, and in no other."""

    name = "onnxruntime"

    @property
    def scheme(self) -> Scheme:
        return machine.fit(ONNXRUNTIME)

    def available(self) -> Availability:
        try:
            return Availability(True, str(_library().__version__), None)
        except (ImportError, OSError) as fault:
            return Availability(False, None, f"{type(fault).__name__}: {fault}")

    def load(self, model: ir.Model, options: EngineOptions, shapes: Shapes | None = None) -> OnnxRuntimeSession:
        self.demand()
        where = f"onnxruntime: {model.graph.name or 'graph'}"
        if options.precision != "f32":
            raise EngineError(
                f"ONNX Runtime's CPU kernels cannot run a float32 graph in {options.precision}",
                where=where,
                expected="precision='f32'",
                next=f"choose engine 'openvino', or convert the graph's tensors to {options.precision}",
            )
        return open_session(model, options, shapes, where)


def open_session(
    model: ir.Model,
    options: EngineOptions,
    shapes: Shapes | None,
    where: str,
    engine: str = "onnxruntime",
    providers: Providers = _PROVIDERS,
    entries: Mapping[str, str] | None = None,
) -> OnnxRuntimeSession:
    """A session on the given providers and no others. Compiled graphs are cached here for the CPU's provider alone.

    Args:
        providers: names, or pairs of a name and the provider's own options, in order of preference.
        entries: more settings of the session, in ONNX Runtime's words.

    Raises:
        EngineError: the graph is refused, or a provider does not load.
    """
    inputs, sizes = bind(model, shapes, engine)
    if providers is _PROVIDERS:  # else the tensors inside are in the memory of a device
        check_run(model, inputs, where)
    release = str(_library().__version__)
    model = conform(model, release)
    left_out = unwanted(model, release)
    proto, weights = skeleton(model)
    _fix_inputs(proto.graph, inputs)
    order = _separate_outputs(proto.graph)
    settings, workers = _settings(options)
    for key, entry in (entries or {}).items():
        settings.add_session_config_entry(key, entry)
    folder = tempfile.mkdtemp(prefix="requant-profile-") if options.profile else None
    if folder is not None:
        settings.enable_profiling, settings.profile_file_prefix = True, str(Path(folder) / "run")
    try:
        cache = options.cache_dir if providers is _PROVIDERS else None
        native = _create(join(proto, weights), settings, cache, providers, left_out)
    except Exception as fault:  # the library's exceptions have no common base of their own
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        raise fault if isinstance(fault, EngineError) else _refusal(fault, model, where) from fault
    ports = native.get_outputs()
    outputs = []
    for value, index in zip(model.graph.outputs, order, strict=True):
        kind = re.sub(r"^tensor\((.*)\)$", r"\1", ports[index].type)
        if value.dtype is None and kind not in _DTYPES:
            raise EngineError(f"{ports[index].type} cannot be an output", where=f"{where}: {value.name}")
        dtype = _DTYPES[kind] if value.dtype is None else numpy_dtype(value, engine)
        known: Shape | None = tuple(ports[index].shape) or None  # () also says that nothing is known
        outputs.append(TensorSpec(str(value.name), dtype, output_shape(value, sizes, known)))
    return OnnxRuntimeSession(native, inputs, outputs, order, workers, folder, where, engine)


class OnnxRuntimeSession(Session):
    """An ``InferenceSession``, which is safe to share between threads by itself."""

    def __init__(
        self,
        native: Any,
        inputs: tuple[TensorSpec, ...],
        outputs: list[TensorSpec],
        order: list[int],
        workers: int,
        folder: str | None,
        where: str,
        engine: str = "onnxruntime",
    ) -> None:
        super().__init__(engine, inputs, outputs, workers)
        self._native: Any = native
        self._where = where
        self._tidy = None if folder is None else weakref.finalize(self, _discard, native, folder)
        self._names = [spec.name for spec in self.inputs]
        self._results = [port.name for port in native.get_outputs()]
        # What the caller would share with us or with itself: inputs handed through, outputs that stand twice.
        self._copied = [i in order[:place] or self._results[i] in self._names for place, i in enumerate(order)]
        plain = order == list(range(len(self._results))) and not any(self._copied)
        self._order = None if plain else order
        # numpy has no bfloat16 of its own: such tensors go in and out as values of the library
        self._by_value = any(spec.dtype == _BF16 for spec in (*self.inputs, *self.outputs))
        self._measured: list[LayerProfile] | None = None

    def _infer(self, arrays: list[Array]) -> list[Array]:
        native = self._native
        if native is None:
            raise self._closed_error()
        results: list[Array]
        try:
            if self._by_value:
                results = self._infer_values(native, arrays)
            else:
                results = native.run(self._results, dict(zip(self._names, arrays)))
        except Exception as fault:
            raise EngineError(
                "ONNX Runtime failed while it ran the graph", where=self._where, got=_essence(fault)
            ) from fault
        if self._order is None:
            return results
        return [results[i].copy() if again else results[i] for i, again in zip(self._order, self._copied)]

    def _infer_values(self, native: Any, arrays: list[Array]) -> list[Array]:
        values = {}
        make = _library().OrtValue
        for spec, array in zip(self.inputs, arrays):
            array = np.ascontiguousarray(array).reshape(array.shape)
            if spec.dtype == _BF16:
                kind = onnx.TensorProto.BFLOAT16
                values[spec.name] = make.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), kind)
            else:
                values[spec.name] = make.ortvalue_from_numpy(array)
        results = []
        for value in native.run_with_ort_values(self._results, values):
            if value.data_type() == "tensor(bfloat16)":
                shape = tuple(value.shape())
                raw = ctypes.string_at(value.data_ptr(), 2 * int(np.prod(shape, dtype=np.int64)))
                results.append(np.frombuffer(bytearray(raw), _BF16).reshape(shape))
            else:
                results.append(value.numpy())
        return results

    def _layers(self) -> list[LayerProfile]:
        """See ``Session.profile``. ONNX Runtime stops measuring at the first call; later ones return the same."""
        if self._tidy is None:
            raise EngineError(
                "layers were not measured", where=self._where, next="load with EngineOptions(profile=True)"
            )
        with self._lock:
            if self._measured is None:
                with open(self._native.end_profiling(), encoding="utf-8") as file:
                    self._measured = _mean_times(json.load(file))
        if not self._measured:
            raise EngineError("nothing was run yet", where=self._where, next="load again, call run(), then profile()")
        return list(self._measured)

    def close(self) -> None:
        super().close()
        self._native = None
        if self._tidy is not None:
            self._tidy()


def _discard(native: Any, folder: str) -> None:
    native.end_profiling()  # else it would write to its file when it is freed; ending twice is nothing
    shutil.rmtree(folder, ignore_errors=True)


def _settings(options: EngineOptions) -> tuple[Any, int]:
    """Session options, and how many runs at a time keep the machine busy."""
    library = _library()
    threads = options.threads or machine.usable_physical_cores()
    if options.hint == "latency":
        workers = options.streams or 1
    else:  # many runs with few threads each do more than one run with many threads
        workers = options.streams or threads
    settings = library.SessionOptions()
    settings.graph_optimization_level = library.GraphOptimizationLevel.ORT_ENABLE_ALL
    settings.execution_mode = library.ExecutionMode.ORT_SEQUENTIAL
    settings.intra_op_num_threads = max(1, threads // workers)
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 4  # what goes wrong is raised; it need not be printed as well
    if options.hint == "throughput":
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return settings, workers


def _create(data: bytes, settings: Any, cache_dir: str | None, providers: Providers, left_out: list[str]) -> Any:
    library = _library()
    # Without enable_fallback=0 a provider that does not load would be replaced, with a line on stdout.
    chosen: dict[str, Any] = {"providers": list(providers), "enable_fallback": 0}
    if left_out:
        chosen["disabled_optimizers"] = left_out
    if cache_dir is None:
        return library.InferenceSession(data, settings, **chosen)
    # The optimized graph depends on the CPU (its layouts) and on the library's version.
    facts = f"{library.__version__} {machine.architecture()} {sorted(machine.instruction_sets())} {left_out}"
    kept = Path(cache_dir) / f"{hashlib.sha256(data + facts.encode()).hexdigest()}.ort.onnx"
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        stored = kept.read_bytes() if kept.exists() else None
    except OSError as fault:
        raise EngineError(
            "the cache folder cannot be used",
            where=cache_dir,
            got=fault,
            next="name a folder that can be written, or leave out cache_dir",
        ) from fault
    if stored is not None:
        level = settings.graph_optimization_level
        settings.graph_optimization_level = library.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            return library.InferenceSession(stored, settings, **chosen)
        except Exception:  # cut short or damaged: made anew, as for any cache
            settings.graph_optimization_level = level
    unfinished = tempfile.mkdtemp(dir=cache_dir)
    try:
        settings.optimized_model_filepath = str(Path(unfinished) / "model.onnx")
        native = library.InferenceSession(data, settings, **chosen)
        os.replace(settings.optimized_model_filepath, kept)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return native


def _fix_inputs(graph: onnx.GraphProto, inputs: tuple[TensorSpec, ...]) -> None:
    shapes = {spec.name: spec.shape for spec in inputs}
    for value in graph.input:
        shape = shapes.get(value.name)
        if shape is None:
            continue
        dims = value.type.tensor_type.shape.dim
        while len(dims) < len(shape):
            dims.add()
        for dim, size in zip(dims, shape):
            if isinstance(size, int):
                dim.dim_value = size


def _separate_outputs(graph: onnx.GraphProto) -> list[int]:
    """Keep one of each output that stands there several times; where each output of the model is then."""
    order: list[int] = []
    kept: dict[str, int] = {}
    values = []
    for value in graph.output:
        if value.name not in kept:
            kept[value.name] = len(kept)
            values.append(value)
        order.append(kept[value.name])
    if len(values) < len(order):
        del graph.output[:]
        graph.output.extend(values)
    return order


def _mean_times(events: list[dict[str, Any]]) -> list[LayerProfile]:
    found: dict[str, tuple[Mapping[str, Any], list[float]]] = {}
    for event in events:
        name, facts = str(event.get("name", "")), event.get("args", {})
        if event.get("cat") == "Node" and name.endswith("_kernel_time"):
            key = f"{facts.get('node_index', '')} {name}"
            found.setdefault(key, ({"name": name.removesuffix("_kernel_time"), **facts}, []))[1].append(event["dur"])
    layers = []
    for facts, times in found.values():
        op, provider = (
            str(facts.get("op_name", "unknown")),
            str(facts.get("provider", "")).removesuffix("ExecutionProvider"),
        )
        kinds = [next(iter(kind)) for kind in facts.get("output_type_shape", []) if kind]
        precision = _WORDS.get(kinds[0], kinds[0]) if kinds else "unknown"
        layers.append(LayerProfile(facts["name"], op, f"{provider}:{op}", precision, sum(times) / len(times)))
    return layers


def _refusal(fault: Exception, model: ir.Model, where: str) -> EngineError:
    text = _essence(fault)
    if re.search(r"IR version", text):
        what, got = "the model's IR version is too new for this ONNX Runtime", f"IR version {model.ir_version}: {text}"
        return EngineError(
            what, where=where, got=got, next="save the model with an older IR version, or update onnxruntime"
        )
    if re.search(r"opset", text, re.IGNORECASE) and "under development" in text:
        versions = ", ".join(f"{d or 'ai.onnx'} {v}" for d, v in model.opset_imports.items())
        what, got = "the model's opset is too new for this ONNX Runtime", f"{versions}: {text}"
        return EngineError(
            what, where=where, got=got, next="convert the model to an older opset, or update onnxruntime"
        )
    return EngineError("ONNX Runtime refuses the graph", where=where, got=text, next=_NEXT)


def _essence(fault: Exception) -> str:
    """What a message of ONNX Runtime says, without the places in its sources."""
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", str(fault))
    text = re.sub(r"\S*onnxruntime/core/\S+:\d+ .*?\)(?= [A-Z])", "", text)
    return " ".join(text.split())[:1500] or type(fault).__name__
