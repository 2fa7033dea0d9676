"""TensorRT through its own package: building, keeping and running an engine. See ``tensorrt.py``."""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from requant.engines import cuda
from requant.engines.base import EngineOptions
from requant.engines.session import LayerProfile, Session
from requant.engines.tensors import Array, Shapes, TensorSpec, bind, numpy_dtype, output_shape
from requant.engines.wire import join, skeleton
from requant.errors import EngineError, InputError
from requant.formats.atomic import atomic_write
from requant.passes.rewrite import initializer

#: Sizes of a free dimension that an engine is built for: least, the one to be fast at, most.
FREE = (1, 8, 64)
_DTYPES = {
    "FLOAT": np.dtype(np.float32),
    "HALF": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "INT8": np.dtype(np.int8),
    "UINT8": np.dtype(np.uint8),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "BOOL": np.dtype(np.bool_),
}
_WORDS = {"float": "f32", "fp32": "f32", "half": "f16", "fp16": "f16", "bf16": "bf16", "int8": "i8", "int32": "i32"}
_NEXT = "choose engine 'openvino' or 'onnxruntime', or replace what is named above; engines are never switched silently"


def numbers(version: str) -> tuple[int, ...]:
    """The first two numbers of a version."""
    return tuple(int(n) for n in version.split(".")[:2] if n.isdigit())


def is_quantized(model: ir.Model) -> bool:
    """The graph has quantizers."""
    return any(n.op_type in ("QuantizeLinear", "DequantizeLinear") for n in model.graph)


def typing_of(version: str, precision: str, quantized: bool) -> tuple[bool, tuple[str, ...]]:
    """How a network is typed: whether strongly, by the graph alone, and which precision flags the builder gets.

    Args:
        version: TensorRT's.
        precision: arithmetic of the float layers.
        quantized: the graph has quantizers.

    Raises:
        EngineError: that version cannot compute a float32 graph in that precision.
    """
    major = numbers(version)[0]
    if major >= 10 and precision == "f32":
        return True, ()
    if major >= 11 or (major == 8 and precision == "bf16"):
        raise EngineError(
            f"TensorRT {version} cannot run a float32 graph in {precision}",
            where="tensorrt",
            expected="precision='f32'",
            next=f"convert the graph's tensors to {precision}"
            if major >= 11
            else "use precision='f16', or TensorRT 10",
        )
    flags = {"f32": (), "f16": ("FP16",), "bf16": ("BF16",)}[precision]
    return False, (*flags, *(("INT8",) if quantized else ()))


def with_float_weights(model: ir.Model) -> ir.Model:
    """A copy in which every int8 constant is float again, with a quantizer that makes the same integers of it."""
    new = model.clone()
    for node in list(new.graph):
        stored = node.inputs[0] if node.op_type == "DequantizeLinear" and node.inputs else None
        if stored is None or stored.const_value is None or stored.dtype != ir.DataType.INT8:
            continue
        q, scale = stored.const_value.numpy(), _constant(node.inputs[1])
        axis = node.attributes.get("axis")
        if scale.ndim:
            shape = [1] * q.ndim
            shape[axis.as_int() if axis is not None else 1] = -1
            scale = scale.reshape(shape)
        name = str(stored.name)
        weight = initializer(new.graph, f"{name}_float", np.asarray(q.astype(np.float32) * scale, np.float32))
        made = ir.Value(name=f"{name}_quantized", shape=stored.shape, type=ir.TensorType(ir.DataType.INT8))
        attributes = [] if axis is None else [ir.AttrInt64("axis", axis.as_int())]
        quantizer = ir.Node(
            "",
            "QuantizeLinear",
            [weight, *node.inputs[1:]],
            attributes=attributes,
            outputs=[made],
            name=f"{name}/QuantizeLinear/{node.name}",
        )
        new.graph.insert_before(node, quantizer)
        node.replace_input_with(0, made)
        if not stored.uses():
            del new.graph.initializers[name]
    return new


def _constant(value: ir.Value | None) -> Array:
    if value is None or value.const_value is None:
        raise EngineError("a scale must be a constant for TensorRT", where=None if value is None else value.name)
    return value.const_value.numpy()


@functools.cache
def _library() -> tuple[Any, Any]:
    """The module, and the logger that everything it makes keeps hold of."""
    trt: Any = importlib.import_module("tensorrt")

    class Logger(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.told = threading.local()

        def log(self, severity: Any, message: str) -> None:
            if int(severity) <= int(trt.ILogger.Severity.ERROR):
                self.told.errors = [*self.errors(), message]

        def errors(self) -> list[str]:
            return list(getattr(self.told, "errors", []))

    return trt, Logger()


def load(model: ir.Model, options: EngineOptions, shapes: Shapes | None, where: str) -> TensorRTSession:
    trt, logger = _library()
    device = cuda.device()
    device.enter()
    logger.told.errors = []
    strong, flags = typing_of(trt.__version__, options.precision, is_quantized(model))
    inputs, sizes = bind(model, shapes, "tensorrt")
    if numbers(trt.__version__)[0] < 10:
        model = with_float_weights(model)
    proto, weights = skeleton(model)
    data = join(proto, weights)
    facts = [trt.__version__, device.name, device.capability, strong, flags, options.profile, [str(i) for i in inputs]]
    key = hashlib.sha256(data + json.dumps(facts).encode()).hexdigest()
    kept = None if options.cache_dir is None else Path(options.cache_dir) / f"{key}.plan"
    try:
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
        plan = kept.read_bytes() if kept is not None and kept.exists() else None
    except OSError as fault:
        raise EngineError(
            "the cache folder cannot be used",
            where=options.cache_dir,
            got=fault,
            next="name a folder that can be written, or leave out cache_dir",
        ) from fault
    runtime = trt.Runtime(logger)
    engine = None if plan is None else runtime.deserialize_cuda_engine(plan)  # None of a damaged file: built anew
    if engine is None:
        logger.told.errors = []
        plan = _build(trt, logger, data, inputs, strong, flags, where)
        engine = runtime.deserialize_cuda_engine(plan)
        if engine is None:
            raise _refused("TensorRT does not load the engine that it built", logger, where)
        if kept is not None:
            with atomic_write(kept) as file:
                file.write(plan)
    outputs = [
        TensorSpec(str(v.name), numpy_dtype(v, "tensorrt"), output_shape(v, sizes, _known(engine, v)))
        for v in model.graph.outputs
    ]
    return TensorRTSession(engine, runtime, inputs, outputs, options, where)


def _build(
    trt: Any, logger: Any, data: bytes, inputs: tuple[TensorSpec, ...], strong: bool, flags: tuple[str, ...], where: str
) -> bytes:
    """A serialized engine."""
    builder = trt.Builder(logger)
    creation = trt.NetworkDefinitionCreationFlag
    typed = 0
    if strong:
        typed = 1 << int(creation.STRONGLY_TYPED)
    elif numbers(trt.__version__)[0] < 10:
        typed = 1 << int(creation.EXPLICIT_BATCH)
    network = builder.create_network(typed)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(data):
        faults = [str(parser.get_error(i).desc()) for i in range(parser.num_errors)]
        raise _refused("TensorRT refuses the graph", logger, where, faults)
    config = builder.create_builder_config()
    config.clear_flag(trt.BuilderFlag.TF32)
    for flag in flags:
        config.set_flag(getattr(trt.BuilderFlag, flag))
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    profile = builder.create_optimization_profile()
    for spec in inputs:
        if spec.shape is None:
            raise EngineError(
                "TensorRT must know the rank of an input", where=f"{where}: {spec.name}", next="give shapes"
            )
        ends = [[d if isinstance(d, int) else free for d in spec.shape] for free in FREE]
        profile.set_shape(spec.name, *ends)
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise _refused("TensorRT builds no engine of the graph", logger, where)
    return bytes(plan)


def _refused(what: str, logger: Any, where: str, faults: list[str] | None = None) -> EngineError:
    texts = [*(faults or []), *logger.errors()]
    return EngineError(what, where=where, got=" ".join(dict.fromkeys(texts))[:1500] or "no reason", next=_NEXT)


def _known(engine: Any, value: ir.Value) -> tuple[int | None, ...] | None:
    shape = tuple(engine.get_tensor_shape(str(value.name)))
    return tuple(None if d < 0 else int(d) for d in shape) or None


class _Runner:
    """An execution context with a stream and memory of its own: one for each thread that runs at the same time."""

    def __init__(self, engine: Any, profiler: Any) -> None:
        self.device = cuda.device()
        self.context = engine.create_execution_context()
        if profiler is not None:
            self.context.profiler = profiler
        self.stream = self.device.stream()
        self.memory: dict[str, cuda.Memory] = {}

    def at(self, name: str, size: int) -> cuda.Memory:
        """Memory of a tensor, large enough."""
        if name not in self.memory or self.memory[name].size < size:
            self.memory[name] = cuda.Memory(self.device, size)
        self.context.set_tensor_address(name, self.memory[name].address)
        return self.memory[name]


class TensorRTSession(Session):
    """A built engine and a stack of idle runners."""

    def __init__(
        self,
        engine: Any,
        runtime: Any,
        inputs: tuple[TensorSpec, ...],
        outputs: list[TensorSpec],
        options: EngineOptions,
        where: str,
    ) -> None:
        super().__init__("tensorrt", inputs, outputs, options.streams or (1 if options.hint == "latency" else 2))
        self._native, self._runtime, self._where = engine, runtime, where
        names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
        self._native_dtypes = {n: _DTYPES[str(engine.get_tensor_dtype(n)).rpartition(".")[2]] for n in names}
        self._times: dict[str, list[float]] | None = {} if options.profile else None
        self._profiler = None if self._times is None else _profiler(self._times)
        self._idle: deque[_Runner] = deque()

    def _infer(self, arrays: list[Array]) -> list[Array]:
        engine = self._native
        if engine is None:
            raise self._closed_error()
        cuda.device().enter()
        try:
            runner = self._idle.pop()
        except IndexError:
            runner = _Runner(engine, self._profiler)
        sent = []  # kept until the stream is done with them
        for spec, array in zip(self.inputs, arrays):
            if spec.name not in self._native_dtypes:
                continue  # no output depends on it
            native = self._converted(spec, array)
            sent.append(native)
            if not runner.context.set_input_shape(spec.name, native.shape):
                most = f"free dimensions of {FREE[0]} to {FREE[2]}"
                raise InputError(
                    "the engine was not built for this size", where=spec.name, got=array.shape, expected=most
                )
            runner.at(spec.name, native.nbytes).fill(native, runner.stream)
        results = []
        for spec in self.outputs:
            shape = tuple(runner.context.get_tensor_shape(spec.name))
            if any(d < 0 for d in shape):
                raise EngineError(
                    "the size of an output depends on the data", where=f"{self._where}: {spec.name}", next=_NEXT
                )
            result = np.empty(shape, self._native_dtypes[spec.name])
            runner.at(spec.name, result.nbytes)
            results.append(result)
        if not runner.context.execute_async_v3(runner.stream):
            raise _refused("TensorRT failed while it ran the graph", _library()[1], self._where)
        for spec, result in zip(self.outputs, results):
            runner.memory[spec.name].read(result, runner.stream)
        runner.device.wait(runner.stream)
        del sent
        self._idle.append(runner)
        return [r if r.dtype == spec.dtype else r.astype(spec.dtype) for spec, r in zip(self.outputs, results)]

    def _converted(self, spec: TensorSpec, array: Array) -> Array:
        """The array in the type that the engine reads: before TensorRT 10 there is no int64."""
        native = self._native_dtypes[spec.name]
        if native == np.int32 and array.dtype == np.int64 and array.size:
            limits, ends = np.iinfo(np.int32), (int(array.min()), int(array.max()))
            if ends[0] < limits.min or ends[1] > limits.max:
                got = f"{ends[0]} to {ends[1]}"
                raise InputError(
                    "an integer does not fit into int32, in which TensorRT computes", where=spec.name, got=got
                )
        return np.ascontiguousarray(array, native).reshape(array.shape)

    def _layers(self) -> list[LayerProfile]:
        if self._times is None:
            raise EngineError(
                "layers were not measured", where=self._where, next="load with EngineOptions(profile=True)"
            )
        if not self._times:
            raise EngineError("nothing was run yet", where=self._where, next="call run(), then profile()")
        trt, _ = _library()
        inspector = self._native.create_engine_inspector()
        known = {}
        for i in range(self._native.num_layers):
            text = inspector.get_layer_information(i, trt.LayerInformationFormat.JSON)
            facts = json.loads(text)
            if isinstance(facts, Mapping):
                known[str(facts.get("Name"))] = facts
        return [layer_profile(name, known.get(name, {}), times) for name, times in self._times.items()]

    def close(self) -> None:
        super().close()
        self._idle.clear()
        self._native = self._runtime = None


def layer_profile(name: str, facts: Mapping[str, Any], milliseconds: list[float]) -> LayerProfile:
    """A layer as TensorRT's inspector describes it, with its mean time.

    Args:
        facts: one layer of the inspector's JSON, of TensorRT 8 to 11.
        milliseconds: of each run.
    """
    ports = facts.get("Inputs") or facts.get("Outputs") or []
    first = ports[0] if ports and isinstance(ports[0], Mapping) else {}
    text = str(first.get("Format/Datatype") or first.get("DataType") or first.get("Datatype") or "")
    word = next((w for w in text.replace(",", " ").lower().split() if w in _WORDS), "")
    kernel = str(facts.get("TacticName") or facts.get("TacticValue") or "")
    kind = str(facts.get("ParameterType") or facts.get("LayerType") or "unknown")
    spent = 1e3 * sum(milliseconds) / len(milliseconds)
    return LayerProfile(name, kind, kernel, _WORDS.get(word, "unknown"), spent)


def _profiler(times: dict[str, list[float]]) -> Any:
    trt, _ = _library()

    class Profiler(trt.IProfiler):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            trt.IProfiler.__init__(self)

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            times.setdefault(layer_name, []).append(ms)

    return Profiler()
