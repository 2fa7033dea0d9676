"""Sessions of OpenVINO: requests for many threads and streams, and checks of what the library takes without a word.

The library comes as an argument: ``openvino.py`` alone imports it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

import ml_dtypes
import numpy as np

from requant.engines.session import LayerProfile, Session
from requant.engines.tensors import Array, Feeds, TensorSpec
from requant.errors import EngineError, InputError

BF16 = np.dtype(ml_dtypes.bfloat16)
# The CPU plugin computes these in int32, and wraps around without a word.
_NARROWED = {np.dtype(t) for t in (np.int64, np.uint64, np.uint32)}
_INT32 = np.iinfo(np.int32)
# Input shapes of which a session remembers that they fit the graph.
_MAX_FITTING = 4096
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Compilation:
    """What OpenVINO made of a graph, and what it is a compilation of.

    Args:
        library: the ``openvino`` module.
        graph: OpenVINO's own graph, from which it was compiled.
        compiled: the compiled model.
        request: an infer request of it.
        inputs, outputs: those of the ONNX graph.
        profiled: layers are measured.
        where: names engine and graph in messages.
    """

    library: Any
    graph: Any
    compiled: Any
    request: Any
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    profiled: bool
    where: str


class OpenVINOSession(Session):
    """A compiled model and a stack of idle infer requests, one for each thread that runs at the same time."""

    def __init__(self, made: Compilation, flights: int) -> None:
        super().__init__("openvino", made.inputs, made.outputs, flights)
        self._tensor, self._bf16 = made.library.Tensor, made.library.Type.bf16
        self._compiled: Any = made.compiled
        self._where, self._profiled = made.where, made.profiled
        self._process = os.getpid()
        # Two stacks: requests of run() have the caller's memory as input tensors, those of stream() their own.
        self._idle: deque[Any] = deque([made.request])
        self._idle_async: deque[Any] = deque()
        port_of = {name: i for i, port in enumerate(made.compiled.inputs) for name in port.get_names()}
        self._ports = [port_of.get(spec.name) for spec in self.inputs]
        # With free sizes the CPU plugin trusts that shapes fit together: it returns nothing, or reads past the end.
        free = any(s.shape is None or any(not isinstance(d, int) for d in s.shape) for s in self.inputs)
        self._graph: Any = made.graph if free else None
        self._fitting: set[tuple[tuple[int, ...], ...]] = set()
        self._narrowed = [i for i, spec in enumerate(self.inputs) if spec.dtype in _NARROWED]
        self._bf16_outputs = [i for i, spec in enumerate(self.outputs) if spec.dtype == BF16]

    def _infer(self, arrays: list[Array]) -> list[Array]:
        request, results = self._compute(arrays, share_outputs=False)
        self._idle.append(request)
        return results

    def _look(self, arrays: list[Array], at: Callable[[list[Array]], T]) -> T:
        request, results = self._compute(arrays, share_outputs=True)
        seen = at(results)  # the request owns this memory, so it is idle only when this is over
        self._idle.append(request)
        return seen

    def _compute(self, arrays: list[Array], share_outputs: bool) -> tuple[Any, list[Array]]:
        """The request that ran, still taken, and the outputs: in its memory if they are shared."""
        if self._graph is not None or self._narrowed:
            self._check_contents(arrays)
        request = self._request(self._idle)
        tensors = {port: self._share(array) for port, array in zip(self._ports, arrays) if port is not None}
        try:
            results = list(request.infer(tensors, share_inputs=True, share_outputs=share_outputs).to_tuple())
        except Exception as fault:
            raise self._failed(fault) from fault
        return request, self._own(results)

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
        if array.dtype == BF16:
            return self._tensor(array.view(np.uint16), list(array.shape), self._bf16)
        return self._tensor(array, shared_memory=True)

    def _fill(self, request: Any, port: int, array: Array) -> None:
        tensor = request.get_input_tensor(port)
        if tuple(tensor.shape) != array.shape:
            tensor.shape = list(array.shape)
        data = tensor.data
        data[...] = array.view(data.dtype) if array.dtype == BF16 else array

    def _own(self, results: list[Array]) -> list[Array]:
        for i in self._bf16_outputs:
            results[i] = results[i].view(BF16)
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
                raise InputError(what, where=self._where, got=got, expected=essence(fault)) from fault
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
        return EngineError("OpenVINO failed while it ran the graph", where=self._where, got=essence(fault))


class SplitSession(OpenVINOSession):
    """A compiled model for a few samples, on several streams: a large batch runs through it piece by piece."""

    def __init__(self, made: Compilation, size: int, streams: int) -> None:
        super().__init__(made, 1)
        self._size = size
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


def essence(fault: Exception) -> str:
    """What an OpenVINO message says, without the places in its sources."""
    lines = [re.sub(r"\s*Check '.*?' failed at \S+:\d+:?", "", line).strip() for line in str(fault).splitlines()]
    kept = [line for line in lines if line and not line.startswith(("Exception from", "FrontEnd API failed"))]
    return " ".join(kept[:8])[:1500] or type(fault).__name__
