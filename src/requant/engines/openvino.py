"""OpenVINO: the default engine for whole graphs, on Intel, AMD and ARM CPUs."""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from requant.engines import machine, split
from requant.engines.base import Availability, Engine, EngineOptions
from requant.engines.memory import check_run
from requant.engines.openvino_integers import integer_kernels
from requant.engines.openvino_joins import parted_quantizers, unsigned_joins
from requant.engines.openvino_reading import conform
from requant.engines.openvino_reductions import lifted_reductions
from requant.engines.openvino_session import BF16, Compilation, OpenVINOSession, SplitSession, essence
from requant.engines.tensors import Shape, Shapes, TensorSpec, bind, numpy_dtype, output_shape
from requant.engines.wire import join, memory_folder, skeleton, write_apart
from requant.errors import EngineError
from requant.scheme import OPENVINO, Scheme

_CAPABILITY = {"bf16": "BF16", "f16": "FP16"}

_lock = threading.Lock()

_core: Any = None


def _library() -> Any:
    """The ``openvino`` module, without the message home that its import sends.

    ``openvino.tools.ovc`` reports every import through the package ``openvino_telemetry`` if that is installed, and
    has a stand-in for when it is not; hiding the package while OpenVINO is imported selects the stand-in.
    """
    with _lock:
        hidden = "openvino" not in sys.modules and "openvino_telemetry" not in sys.modules
        if hidden:
            sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
        try:
            import openvino
        finally:
            if hidden:
                del sys.modules["openvino_telemetry"]
        return openvino


def _one_core() -> Any:
    """The process-wide Core: it owns the plugins, and their compiled kernels are shared through it."""
    global _core
    library = _library()
    with _lock:
        if _core is None:
            _core = library.Core()
        return _core


class OpenVINO(Engine):
    """OpenVINO's CPU plugin.

    It computes 64-bit integers in int32: integer inputs out of that range are an InputError. It computes float64 in
    float32. Inputs that no output depends on are accepted and not looked at.
    """

    name = "openvino"
    channels_last = True

    @property
    def scheme(self) -> Scheme:
        return machine.fit(OPENVINO)

    def available(self) -> Availability:
        try:
            return Availability(True, str(_library().__version__).split("-")[0], None)
        except (ImportError, OSError) as fault:
            return Availability(False, None, f"{type(fault).__name__}: {fault}")

    def load(self, model: ir.Model, options: EngineOptions, shapes: Shapes | None = None) -> OpenVINOSession:
        self.demand()
        where = f"openvino: {model.graph.name or 'graph'}"
        inputs, sizes = bind(model, shapes, self.name)
        core = _one_core()
        if not self.scheme.reduced:  # else its integer kernels saturate, and float ones are right
            model = integer_kernels(model)
        if machine.shifts_signed():
            model = unsigned_joins(model)
        model = lifted_reductions(parted_quantizers(model))
        parts = _pieces(model, options, inputs)
        share = 1.0 if parts is None else parts[0] * parts[1] / _batch(inputs)
        check_run(model, inputs, where, precision=options.precision, share=share)
        config = _config(core, options if parts is None else dataclasses.replace(options, streams=parts[1]), where)
        try:
            graph = _read(core, model)
            _reshape(graph, inputs if parts is None else _part_of(inputs, parts[0]))
            conform(graph, _library())
            compiled = core.compile_model(graph, "CPU", config)
            granted = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
            flights = int(compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))
            request = compiled.create_infer_request()  # allocates inputs and outputs of fixed size
        except EngineError:
            raise
        except Exception as fault:  # RuntimeError and others, from native code
            empty = next((s for s in inputs if s.shape is not None and 0 in s.shape), None)
            todo = _NEXT if empty is None else f"feed at least one sample: {empty} has no elements"
            raise EngineError("OpenVINO refuses the graph", where=where, got=essence(fault), next=todo) from fault
        if granted != options.precision:
            raise EngineError(
                "OpenVINO cannot compute in that precision",
                where=where,
                got=granted,
                expected=options.precision,
                next="use precision='f32'",
            )
        if len(compiled.outputs) != len(model.graph.outputs):
            got = ", ".join(sorted(n for port in compiled.outputs for n in port.get_names()))
            raise EngineError("OpenVINO changed the number of outputs", where=where, got=got, next=_NEXT)
        outputs = []
        for value, port in zip(model.graph.outputs, compiled.outputs):
            dtype = numpy_dtype(value, self.name) if value.dtype is not None else _dtype(port)
            known = _shape(port)
            if parts is not None and known is not None:
                known = (inputs[0].shape[0] if inputs[0].shape else None, *known[1:])
            outputs.append(TensorSpec(str(value.name), dtype, output_shape(value, sizes, known)))
        made = Compilation(
            library=_library(),
            graph=graph,
            compiled=compiled,
            request=request,
            inputs=inputs,
            outputs=tuple(outputs),
            profiled=options.profile,
            where=where,
        )
        return OpenVINOSession(made, flights) if parts is None else SplitSession(made, *parts)


def _read(core: Any, model: ir.Model) -> Any:
    """The model as OpenVINO's own graph. Large weights go through a file in memory, which OpenVINO maps."""
    proto, weights = skeleton(model)
    size = sum(len(raw) for _, raw in weights)
    folder = memory_folder(size) if size >= _MAPPED else None
    if folder is None:
        return core.read_model(join(proto, weights))
    with tempfile.TemporaryDirectory(prefix="requant-", dir=folder) as scratch:
        return core.read_model(write_apart(proto, weights, Path(scratch)))  # the mapping outlives the file's name


#: Bytes of weights from which a file in memory is quicker than one message.
_MAPPED = 2**20
_NEXT = "choose engine 'onnxruntime', or replace what is named above; engines are never switched silently"


def _config(core: Any, options: EngineOptions, where: str) -> dict[str, str]:
    if options.precision in _CAPABILITY:
        can = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        if _CAPABILITY[options.precision] not in can:
            raise EngineError(
                f"this CPU has no {options.precision} arithmetic",
                where=where,
                got=", ".join(can),
                next="use precision='f32'",
            )
    config = {
        "INFERENCE_PRECISION_HINT": options.precision,
        "PERFORMANCE_HINT": options.hint.upper(),
        "PERF_COUNT": "YES" if options.profile else "NO",
        # Else fully connected layers with 8-bit weights would quantize their float activations, unasked.
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
    }
    threads = options.threads or machine.quota_threads()
    if threads is not None:  # OpenVINO knows the affinity of the process, but not the quota of its container
        config["INFERENCE_NUM_THREADS"] = str(threads)
    if options.streams is not None:
        config["NUM_STREAMS"] = str(options.streams)
    if options.cache_dir is not None:
        try:
            os.makedirs(options.cache_dir, exist_ok=True)
        except OSError as fault:
            raise EngineError(
                "the cache folder cannot be used",
                where=options.cache_dir,
                got=fault,
                next="name a folder that can be written, or leave out cache_dir",
            ) from fault
        config["CACHE_DIR"] = options.cache_dir
    return config


def _pieces(model: ir.Model, options: EngineOptions, inputs: tuple[TensorSpec, ...]) -> tuple[int, int] | None:
    """How a large batch is cut; see ``split.pieces``. Who asks for streams or throughput has other batches to run."""
    if not options.split or options.hint != "latency" or options.streams is not None:
        return None
    shapes = {s.name: tuple(d if isinstance(d, int) else None for d in s.shape or (None,)) for s in inputs}
    return split.pieces(model, shapes, options.threads or machine.usable_physical_cores())


def _batch(inputs: tuple[TensorSpec, ...]) -> int:
    """The size of dimension 0, which is fixed."""
    return next(d for s in inputs for d in (s.shape or ())[:1] if isinstance(d, int))


def _part_of(inputs: tuple[TensorSpec, ...], size: int) -> tuple[TensorSpec, ...]:
    """The inputs with that many samples."""
    return tuple(dataclasses.replace(s, shape=(size, *(s.shape or ())[1:])) for s in inputs)


def _reshape(graph: Any, inputs: tuple[TensorSpec, ...]) -> None:
    """Fix the sizes that are known; inputs that OpenVINO dropped (unused ones) have none to fix."""
    wanted = {spec.name: spec.shape for spec in inputs}
    shapes = {}
    for port in graph.inputs:
        shape = next((wanted[n] for n in port.get_names() if n in wanted), None)
        if shape is not None and _shape(port) != tuple(d if isinstance(d, int) else None for d in shape):
            shapes[port] = [d if isinstance(d, int) else -1 for d in shape]
    if shapes:
        graph.reshape(shapes)


def _shape(port: Any) -> Shape | None:
    shape = port.get_partial_shape()
    if shape.rank.is_dynamic:
        return None
    return tuple(None if d.is_dynamic else d.get_length() for d in shape)


def _dtype(port: Any) -> np.dtype[Any]:
    kind = port.get_element_type()
    found: np.dtype[Any] = BF16 if kind.to_string() == "bf16" else np.dtype(kind.to_dtype())
    return found
