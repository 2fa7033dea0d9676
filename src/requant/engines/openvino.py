"""OpenVINO: the default engine for whole graphs, on Intel, AMD and ARM CPUs."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import ml_dtypes
import numpy as np
import onnx_ir as ir

from requant.engines import machine, split
from requant.engines.base import (
    Array,
    Availability,
    Engine,
    EngineOptions,
    Feeds,
    LayerProfile,
    Session,
    Shape,
    Shapes,
    TensorSpec,
    bind,
    numpy_dtype,
    output_shape,
)
from requant.engines.openvino_integers import integer_kernels
from requant.engines.openvino_joins import unsigned_joins
from requant.engines.openvino_reading import conform
from requant.engines.wire import join, memory_folder, skeleton, write_apart
from requant.errors import EngineError, InputError
from requant.scheme import OPENVINO, Scheme

_BF16 = np.dtype(ml_dtypes.bfloat16)
# The CPU plugin computes these in int32, and wraps around without a word.
_NARROWED = {np.dtype(t) for t in (np.int64, np.uint64, np.uint32)}
_INT32 = np.iinfo(np.int32)
# Input shapes of which a session remembers that they fit the graph.
_MAX_FITTING = 4096
_CAPABILITY = {"bf16": "BF16", "f16": "FP16"}

_lock = threading.Lock()
T = TypeVar("T")

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
        parts = _pieces(model, options, inputs)
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
            raise EngineError("OpenVINO refuses the graph", where=where, got=_essence(fault), next=_NEXT) from fault
        if granted != options.precision:
            raise EngineError(
                "OpenVINO cannot compute in that precision", where=where, got=granted, expected=options.precision
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
        if parts is not None:
            return SplitSession(compiled, request, graph, inputs, outputs, parts, options.profile, where)
        return OpenVINOSession(compiled, request, graph, inputs, outputs, flights, options.profile, where)


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


class OpenVINOSession(Session):
    """A compiled model and a stack of idle infer requests, one for each thread that runs at the same time."""

    def __init__(
        self,
        compiled: Any,
        request: Any,
        graph: Any,
        inputs: tuple[TensorSpec, ...],
        outputs: list[TensorSpec],
        flights: int,
        profiled: bool,
        where: str,
    ) -> None:
        super().__init__("openvino", inputs, outputs, flights)
        library = _library()
        self._tensor, self._bf16 = library.Tensor, library.Type.bf16
        self._compiled: Any = compiled
        self._where, self._profiled = where, profiled
        self._process = os.getpid()
        # Two stacks: requests of run() have the caller's memory as input tensors, those of stream() their own.
        self._idle: deque[Any] = deque([request])
        self._idle_async: deque[Any] = deque()
        port_of = {name: i for i, port in enumerate(compiled.inputs) for name in port.get_names()}
        self._ports = [port_of.get(spec.name) for spec in self.inputs]
        # With free sizes the CPU plugin trusts that shapes fit together: it returns nothing, or reads past the end.
        free = any(s.shape is None or any(not isinstance(d, int) for d in s.shape) for s in self.inputs)
        self._graph: Any = graph if free else None
        self._fitting: set[tuple[tuple[int, ...], ...]] = set()
        self._narrowed = [i for i, spec in enumerate(self.inputs) if spec.dtype in _NARROWED]
        self._bf16_outputs = [i for i, spec in enumerate(self.outputs) if spec.dtype == _BF16]

    def _infer(self, arrays: list[Array]) -> list[Array]:
        if self._graph is not None or self._narrowed:
            self._check_contents(arrays)
        request = self._request(self._idle)
        tensors = {port: self._share(array) for port, array in zip(self._ports, arrays) if port is not None}
        try:
            results = list(request.infer(tensors, share_inputs=True).to_tuple())
        except Exception as fault:
            raise self._failed(fault) from fault
        self._idle.append(request)
        return self._own(results)

    def _look(self, arrays: list[Array], at: Callable[[list[Array]], T]) -> T:
        if self._graph is not None or self._narrowed:
            self._check_contents(arrays)
        request = self._request(self._idle)
        tensors = {port: self._share(array) for port, array in zip(self._ports, arrays) if port is not None}
        try:
            results = list(request.infer(tensors, share_inputs=True, share_outputs=True).to_tuple())
        except Exception as fault:
            raise self._failed(fault) from fault
        seen = at(self._own(results))  # the request owns this memory, so it is idle only when this is over
        self._idle.append(request)
        return seen

    def look_many(self, feeds: Iterable[Feeds], at: Callable[[list[Array]], object]) -> None:
        if self._process != os.getpid():
            super().look_many(feeds, at)
            return
        flying: deque[tuple[Any, Any]] = deque()

        def land() -> None:
            request, _ = flying.popleft()
            try:
                request.wait()
                results = [request.get_output_tensor(i).data for i in range(len(self.outputs))]
            except Exception as fault:
                raise self._failed(fault) from fault
            at(self._own(results))
            self._idle.append(request)

        try:
            for given in feeds:
                arrays = self._check(given)
                self._check_contents(arrays)
                while len(flying) > self.workers:
                    land()
                request = self._request(self._idle)
                shared = [(port, self._share(a)) for port, a in zip(self._ports, arrays) if port is not None]
                try:
                    for port, tensor in shared:
                        request.set_input_tensor(port, tensor)
                    request.start_async()
                except Exception as fault:
                    raise self._failed(fault) from fault
                flying.append((request, shared))  # the memory of the inputs must live until the run ends
            while flying:
                land()
        finally:
            for request, _ in flying:
                with contextlib.suppress(Exception):
                    request.wait()

    def _start(self, arrays: list[Array]) -> Callable[[], list[Array]]:
        if self._process != os.getpid():
            return super()._start(arrays)
        if self._graph is not None or self._narrowed:
            self._check_contents(arrays)
        request = self._request(self._idle_async)
        try:
            for port, array in zip(self._ports, arrays):
                if port is not None:
                    self._fill(request, port, array)
            request.start_async()
        except Exception as fault:
            raise self._failed(fault) from fault

        def wait() -> list[Array]:
            try:
                request.wait()
                results = [request.get_output_tensor(i).data.copy() for i in range(len(self.outputs))]
            except Exception as fault:
                raise self._failed(fault) from fault
            self._idle_async.append(request)
            return self._own(results)

        return wait

    def _enqueue(self, arrays: list[Array]) -> Future[list[Array]]:
        if self._process == os.getpid():
            return super()._enqueue(arrays)
        # After a fork OpenVINO's threads do not exist in the child: asynchronous requests would never end, and some
        # versions refuse to run in new threads. The thread that asks still can.
        done: Future[list[Array]] = Future()
        try:
            done.set_result(self._infer(arrays))
        except Exception as fault:
            done.set_exception(fault)
        return done

    def _layers(self) -> list[LayerProfile]:
        if not self._profiled:
            raise EngineError(
                "layers were not measured", where=self._where, next="load with EngineOptions(profile=True)"
            )
        try:
            request = (self._idle_async or self._idle)[-1]
            measured = [p for p in request.profiling_info if "EXECUTED" in str(p.status)]
        except (IndexError, RuntimeError):
            measured = []
        if not measured:
            raise EngineError("nothing was run yet", where=self._where, next="call run(), then profile()")
        known: dict[str, Mapping[str, Any]] = {}
        for node in self._compiled.get_runtime_model().get_ordered_ops():
            known[node.get_friendly_name()] = node.get_rt_info()
        layers = []
        for entry in measured:
            info = known.get(entry.node_name, {})
            precision = str(info["runtimePrecision"].astype(str)) if "runtimePrecision" in info else "unknown"
            name = entry.node_name.removesuffix("/WithoutBiases")
            spent = entry.real_time.total_seconds() * 1e6
            layers.append(LayerProfile(name, entry.node_type, entry.exec_type, precision.lower(), spent))
        return layers

    def close(self) -> None:
        super().close()
        self._idle.clear()
        self._idle_async.clear()
        self._compiled = self._graph = None

    def _request(self, stack: deque[Any]) -> Any:
        try:
            return stack.pop()
        except IndexError:
            compiled = self._compiled
            if compiled is None:
                raise self._closed_error() from None
            try:
                return compiled.create_infer_request()
            except Exception as fault:
                raise self._failed(fault) from fault

    def _share(self, array: Array) -> Any:
        """A tensor over the array's own memory; the graph only reads it."""
        if not array.flags.carray:  # strided, misaligned or read-only (which the binding refuses to share)
            array = np.array(array, order="C")
        if array.dtype == _BF16:
            return self._tensor(array.view(np.uint16), list(array.shape), self._bf16)
        return self._tensor(array, shared_memory=True)

    def _fill(self, request: Any, port: int, array: Array) -> None:
        tensor = request.get_input_tensor(port)
        if tuple(tensor.shape) != array.shape:
            tensor.shape = list(array.shape)
        data = tensor.data
        data[...] = array.view(data.dtype) if array.dtype == _BF16 else array

    def _own(self, results: list[Array]) -> list[Array]:
        for i in self._bf16_outputs:
            results[i] = results[i].view(_BF16)
        return results

    def _check_contents(self, arrays: list[Array]) -> None:
        """What the CPU plugin does not check itself: whether shapes fit the graph, and integers into int32."""
        graph, shapes = self._graph, tuple(a.shape for a in arrays)
        if graph is not None and shapes not in self._fitting:
            fixed = {port: list(shape) for port, shape in zip(self._ports, shapes) if port is not None}
            try:
                with self._lock:
                    graph.clone().reshape(fixed)
            except RuntimeError as fault:
                got = "; ".join(f"{s.name}: {shape}" for s, shape in zip(self.inputs, shapes))
                what = "the graph cannot be computed with inputs of these shapes"
                raise InputError(what, where=self._where, got=got, expected=_essence(fault)) from fault
            if len(self._fitting) >= _MAX_FITTING:
                self._fitting.clear()
            self._fitting.add(shapes)
        for i in self._narrowed:
            array = arrays[i]
            if array.size and (int(array.max()) > _INT32.max or int(array.min()) < _INT32.min):
                raise InputError(
                    "an integer does not fit into int32, in which OpenVINO computes",
                    where=self.inputs[i].name,
                    got=f"{int(array.min())} to {int(array.max())}",
                    expected=f"{_INT32.min} to {_INT32.max}",
                    next="choose engine 'onnxruntime' for this model",
                )

    def _failed(self, fault: Exception) -> EngineError:
        return EngineError("OpenVINO failed while it ran the graph", where=self._where, got=_essence(fault))


class SplitSession(OpenVINOSession):
    """A compiled model for a few samples, on several streams: a large batch runs through it piece by piece."""

    def __init__(
        self,
        compiled: Any,
        request: Any,
        graph: Any,
        inputs: tuple[TensorSpec, ...],
        outputs: list[TensorSpec],
        parts: tuple[int, int],
        profiled: bool,
        where: str,
    ) -> None:
        super().__init__(compiled, request, graph, inputs, outputs, 1, profiled, where)
        self._size, streams = parts
        # Twice the streams, so that no stream waits for this thread between two pieces.
        self._flying = 2 * streams

    def _infer(self, arrays: list[Array]) -> list[Array]:
        if self._narrowed:
            self._check_contents(arrays)
        # Pieces are views, which the binding shares only if they are writable and in C order.
        whole = [a if a.flags.carray else np.array(a, order="C") for a in arrays]
        batch, size = len(whole[0]), self._size
        results: list[Array] = []
        flying: deque[tuple[int, Any]] = deque()

        def land() -> None:
            at, request = flying.popleft()
            request.wait()
            for i in range(len(self.outputs)):
                data = request.get_output_tensor(i).data
                if len(results) == i:
                    results.append(np.empty((batch, *data.shape[1:]), data.dtype))
                results[i][at : at + size] = data
            self._idle.append(request)

        try:
            for at in range(0, batch, size):
                if len(flying) == self._flying:
                    land()
                request = self._request(self._idle)
                for port, array in zip(self._ports, whole):
                    if port is not None:
                        request.set_input_tensor(port, self._share(array[at : at + size]))
                request.start_async()
                flying.append((at, request))
            while flying:
                land()
        except Exception as fault:
            for _, request in flying:  # they read the caller's memory, so they must have ended
                with contextlib.suppress(Exception):
                    request.wait()
            raise fault if isinstance(fault, EngineError) else self._failed(fault) from fault
        return self._own(results)

    def _look(self, arrays: list[Array], at: Callable[[list[Array]], T]) -> T:
        return at(self._infer(arrays))

    def look_many(self, feeds: Iterable[Feeds], at: Callable[[list[Array]], object]) -> None:
        Session.look_many(self, feeds, at)

    def _start(self, arrays: list[Array]) -> Callable[[], list[Array]]:
        return Session._start(self, arrays)


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
            raise EngineError("the cache folder cannot be used", where=options.cache_dir, got=fault) from fault
        config["CACHE_DIR"] = options.cache_dir
    return config


def _pieces(model: ir.Model, options: EngineOptions, inputs: tuple[TensorSpec, ...]) -> tuple[int, int] | None:
    """How a large batch is cut; see ``split.pieces``. Who asks for streams or throughput has other batches to run."""
    if not options.split or options.hint != "latency" or options.streams is not None:
        return None
    shapes = {s.name: tuple(d if isinstance(d, int) else None for d in s.shape or (None,)) for s in inputs}
    return split.pieces(model, shapes, options.threads or machine.usable_physical_cores())


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
    found: np.dtype[Any] = _BF16 if kind.to_string() == "bf16" else np.dtype(kind.to_dtype())
    return found


def _essence(fault: Exception) -> str:
    """What an OpenVINO message says, without the places in its sources."""
    lines = [re.sub(r"\s*Check '.*?' failed at \S+:\d+:?", "", line).strip() for line in str(fault).splitlines()]
    kept = [line for line in lines if line and not line.startswith(("Exception from", "FrontEnd API failed"))]
    return " ".join(kept[:8])[:1500] or type(fault).__name__
