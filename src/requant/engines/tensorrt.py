"""TensorRT: NVIDIA's engine, for QDQ graphs in its explicit quantization. Needs an NVIDIA device.

Two roads, chosen by what is installed: the ``tensorrt`` package (8.5 or newer) builds an engine directly; else ONNX
Runtime's provider does, of the package ``onnxruntime-gpu``. Built engines are kept in ``EngineOptions.cache_dir``: they
belong to one graph, one version of TensorRT and one kind of device, and take minutes to build.

What changed between versions of TensorRT, and what is done about it here:

- Up to 9, a graph with quantizers needs the builder's flag INT8; 10 has strongly typed networks, where the graph alone
  says what is computed in what; 11 has nothing else, and neither flags of precision nor calibrators.
- Before 10, the parser wants weights in float with a quantizer of their own in front of DequantizeLinear.
- TF32 is always switched off: float32 means float32.

Sources: https://docs.nvidia.com/deeplearning/tensorrt/latest/api/migration/tensorrt-10x-to-11x.html and
https://onnxruntime.ai/docs/execution-providers/TensorRT-ExecutionProvider.html
"""

from __future__ import annotations

import ctypes
import importlib
import os

import onnx_ir as ir

from requant.engines import cuda, tensorrt_native
from requant.engines.base import Availability, Engine, EngineOptions
from requant.engines.onnxruntime import OnnxRuntimeSession, open_session
from requant.engines.session import Session
from requant.engines.tensorrt_native import is_quantized, numbers
from requant.engines.tensors import Shapes
from requant.scheme import TENSORRT, Scheme

PROVIDER = "TensorrtExecutionProvider"


class TensorRT(Engine):
    """TensorRT on the first NVIDIA device that the process sees. ``EngineOptions.threads`` has no meaning there."""

    name = "tensorrt"

    @property
    def scheme(self) -> Scheme:
        return TENSORRT

    def available(self) -> Availability:
        wanting = [w for w in (cuda.missing(),) if w is not None]
        package, provider = package_version(), provider_version()
        if package[0] is None and provider[0] is None:
            wanting += [str(package[1]), str(provider[1])]
        if wanting:
            return Availability(False, None, "; ".join(wanting))
        version = package[0] or provider[0]
        return Availability(True, version, None)

    def load(self, model: ir.Model, options: EngineOptions, shapes: Shapes | None = None) -> Session:
        self.demand()
        where = f"tensorrt: {model.graph.name or 'graph'}"
        if package_version()[0] is not None:
            return tensorrt_native.load(model, options, shapes, where)
        return _load_by_provider(model, options, shapes, where)


def package_version() -> tuple[str | None, str | None]:
    """The version of the package ``tensorrt``, or why it cannot be used."""
    try:
        version = str(importlib.import_module("tensorrt").__version__)
    except ModuleNotFoundError as fault:
        if fault.name == "tensorrt":
            return None, "the package tensorrt is not installed (pip install tensorrt)"
        return None, f"the package tensorrt does not load: {fault}"
    except (ImportError, OSError) as fault:  # libnvinfer or CUDA's libraries are missing
        return None, f"the package tensorrt does not load: {fault}"
    if numbers(version) < (8, 5):
        return None, f"the package tensorrt is too old: {version}, 8.5 is needed"
    return version, None


def provider_version() -> tuple[str | None, str | None]:
    """ONNX Runtime's version if it has the provider and TensorRT's library is there, or why not."""
    try:
        library = importlib.import_module("onnxruntime")
        version, providers = str(library.__version__), library.get_available_providers()
    except (ImportError, OSError) as fault:
        return None, f"onnxruntime does not load: {fault}"
    if PROVIDER not in providers:
        return None, f"onnxruntime {version} has no {PROVIDER} (install onnxruntime-gpu in its place)"
    if (found := _nvinfer()) is None:
        return None, "TensorRT's library libnvinfer is not there (pip install tensorrt, or NVIDIA's package libnvinfer)"
    return f"{version} ({found})", None


def _nvinfer() -> str | None:
    """The name under which TensorRT's library loads, or None."""
    names = [f"nvinfer_{n}.dll" for n in (11, 10)] if os.name == "nt" else [f"libnvinfer.so.{n}" for n in (11, 10, 8)]
    for name in names:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return name
    return None


def provider_options(options: EngineOptions, quantized: bool) -> dict[str, str]:
    """The options of ONNX Runtime's provider."""
    found = {
        "device_id": "0",
        "trt_int8_enable": str(quantized),
        "trt_fp16_enable": str(options.precision == "f16"),
        "trt_bf16_enable": str(options.precision == "bf16"),
    }
    if options.cache_dir is not None:
        found |= {
            "trt_engine_cache_enable": "True",
            "trt_engine_cache_path": options.cache_dir,
            "trt_timing_cache_enable": "True",
            "trt_timing_cache_path": options.cache_dir,
        }
    return found


def _load_by_provider(model: ir.Model, options: EngineOptions, shapes: Shapes | None, where: str) -> OnnxRuntimeSession:
    providers = [(PROVIDER, provider_options(options, is_quantized(model)))]
    # What TensorRT refuses would else run on the CPU, without a word.
    entries = {"session.disable_cpu_ep_fallback": "1"}
    return open_session(model, options, shapes, where, "tensorrt", providers, entries)
