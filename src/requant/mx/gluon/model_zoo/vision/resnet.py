"""Residual networks, versions 1 (He 2015) and 2 (He 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from requant.errors import InputError
from requant.mx.gluon.hybrid import HybridBlock
from requant.mx.gluon.model_zoo.vision.building import Classifier, chain, maker
from requant.mx.gluon.nn import (
    Activation,
    BatchNorm,
    Conv2D,
    Dense,
    Flatten,
    GlobalAvgPool2D,
    HybridSequential,
    MaxPool2D,
)


def _conv3(channels: int, stride: int, in_channels: int) -> Any:
    return Conv2D(channels, 3, stride, 1, use_bias=False, in_channels=in_channels)


class _V1(HybridBlock):
    """relu(body(x) + x)."""

    _body_first = True

    def __init__(
        self, channels: int, stride: int, downsample: bool = False, in_channels: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.body = self._body(channels, stride, in_channels)
        self.downsample: Any = None
        if downsample:
            self.downsample = chain(Conv2D(channels, 1, stride, use_bias=False, in_channels=in_channels), BatchNorm())

    def _body(self, channels: int, stride: int, in_channels: int) -> Any:
        raise NotImplementedError

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        residual = x if self.downsample is None else self.downsample(x)
        body = self.body(x)
        # MXNet adds in this order, which shows in exported symbols
        return F.Activation(body + residual if self._body_first else residual + body, act_type="relu")


class BasicBlockV1(_V1):
    """Two 3x3 convolutions."""

    _body_first = False

    def _body(self, channels: int, stride: int, in_channels: int) -> Any:
        return chain(
            _conv3(channels, stride, in_channels),
            BatchNorm(),
            Activation("relu"),
            _conv3(channels, 1, channels),
            BatchNorm(),
        )


class BottleneckV1(_V1):
    """1x1, 3x3 and 1x1 convolutions; the stride is in the first."""

    def _body(self, channels: int, stride: int, in_channels: int) -> Any:
        inner = channels // 4
        return chain(
            Conv2D(inner, 1, stride),
            BatchNorm(),
            Activation("relu"),
            _conv3(inner, 1, inner),
            BatchNorm(),
            Activation("relu"),
            Conv2D(channels, 1, 1),
            BatchNorm(),
        )


class _V2(HybridBlock):
    """x + convolutions, each after normalization and relu."""

    def __init__(
        self, channels: int, stride: int, downsample: bool = False, in_channels: int = 0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self._pairs = 0
        for conv in self._convolutions(channels, stride, in_channels):
            self._pairs += 1
            setattr(self, f"bn{self._pairs}", BatchNorm())
            setattr(self, f"conv{self._pairs}", conv())
        self.downsample: Any = None
        if downsample:
            self.downsample = Conv2D(channels, 1, stride, use_bias=False, in_channels=in_channels)

    def _convolutions(self, channels: int, stride: int, in_channels: int) -> Sequence[Any]:
        raise NotImplementedError

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        residual = x
        for i in range(1, self._pairs + 1):
            x = F.Activation(getattr(self, f"bn{i}")(x), act_type="relu")
            if i == 1 and self.downsample is not None:
                residual = self.downsample(x)
            x = getattr(self, f"conv{i}")(x)
        return x + residual


class BasicBlockV2(_V2):
    """Two 3x3 convolutions."""

    def _convolutions(self, channels: int, stride: int, in_channels: int) -> Sequence[Any]:
        return lambda: _conv3(channels, stride, in_channels), lambda: _conv3(channels, 1, channels)


class BottleneckV2(_V2):
    """1x1, 3x3 and 1x1 convolutions; the stride is in the second."""

    def _convolutions(self, channels: int, stride: int, in_channels: int) -> Sequence[Any]:
        inner = channels // 4
        return (
            lambda: Conv2D(inner, 1, 1, use_bias=False),
            lambda: _conv3(inner, stride, inner),
            lambda: Conv2D(channels, 1, 1, use_bias=False),
        )


def _stage(block: type[HybridBlock], layers: int, channels: int, stride: int, index: int, in_channels: int) -> Any:
    made = HybridSequential(prefix=f"stage{index}_")
    make: Any = block
    with made.name_scope():
        made.add(make(channels, stride, channels != in_channels, in_channels=in_channels, prefix=""))
        for _ in range(layers - 1):
            made.add(make(channels, 1, False, in_channels=channels, prefix=""))
    return made


def _check(layers: Sequence[int], channels: Sequence[int]) -> None:
    if len(layers) != len(channels) - 1:
        raise InputError("one number of channels more than stages", got=len(channels), expected=len(layers) + 1)


def _stem(channels: int, thumbnail: bool) -> list[Any]:
    if thumbnail:
        return [_conv3(channels, 1, 0)]
    return [Conv2D(channels, 7, 2, 3, use_bias=False), BatchNorm(), Activation("relu"), MaxPool2D(3, 2, 1)]


class ResNetV1(Classifier):
    """ResNet, version 1.

    Args:
        block: ``BasicBlockV1`` or ``BottleneckV1``.
        layers: blocks of each stage. channels: of the stem, and of each stage.
        thumbnail: a stem for small pictures.
    """

    def __init__(
        self,
        block: type[HybridBlock],
        layers: Sequence[int],
        channels: Sequence[int],
        classes: int = 1000,
        thumbnail: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        _check(layers, channels)
        with self.name_scope():
            self.features = chain(*_stem(channels[0], thumbnail))
            for i, count in enumerate(layers):
                stage = _stage(block, count, channels[i + 1], 1 if i == 0 else 2, i + 1, channels[i])
                self.features.add(stage)
            self.features.add(GlobalAvgPool2D())
            self.output = Dense(classes, in_units=channels[-1])


class ResNetV2(Classifier):
    """ResNet, version 2; arguments as for ``ResNetV1``."""

    def __init__(
        self,
        block: type[HybridBlock],
        layers: Sequence[int],
        channels: Sequence[int],
        classes: int = 1000,
        thumbnail: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        _check(layers, channels)
        with self.name_scope():
            self.features = chain(BatchNorm(scale=False, center=False), *_stem(channels[0], thumbnail))
            inner = channels[0]
            for i, count in enumerate(layers):
                self.features.add(_stage(block, count, channels[i + 1], 1 if i == 0 else 2, i + 1, inner))
                inner = channels[i + 1]
            self.features.add(BatchNorm(), Activation("relu"), GlobalAvgPool2D(), Flatten())
            self.output = Dense(classes, in_units=inner)


_SPEC: dict[int, tuple[bool, list[int], list[int]]] = {
    18: (False, [2, 2, 2, 2], [64, 64, 128, 256, 512]),
    34: (False, [3, 4, 6, 3], [64, 64, 128, 256, 512]),
    50: (True, [3, 4, 6, 3], [64, 256, 512, 1024, 2048]),
    101: (True, [3, 4, 23, 3], [64, 256, 512, 1024, 2048]),
    152: (True, [3, 8, 36, 3], [64, 256, 512, 1024, 2048]),
}


def _build(version: int, layers: int) -> Any:
    deep, counts, channels = _SPEC[layers]

    def build(**kwargs: Any) -> Any:
        if version == 1:
            return ResNetV1(BottleneckV1 if deep else BasicBlockV1, counts, channels, **kwargs)
        return ResNetV2(BottleneckV2 if deep else BasicBlockV2, counts, channels, **kwargs)

    return build


def get_resnet(version: int, num_layers: int, **kwargs: Any) -> Any:
    """A ResNet of that version (1 or 2) and depth (18, 34, 50, 101 or 152).

    Raises:
        InputError: there is none.
    """
    if version not in (1, 2) or num_layers not in _SPEC:
        raise InputError(
            "no such ResNet", got=(version, num_layers), expected=f"version 1 or 2, depth of {list(_SPEC)}"
        )
    return maker(f"resnet{num_layers}_v{version}", "", _build(version, num_layers))(**kwargs)


def _public(version: int, layers: int) -> Any:
    return maker(f"resnet{layers}_v{version}", f"ResNet-{layers}, version {version}.", _build(version, layers))


resnet18_v1, resnet34_v1, resnet50_v1 = _public(1, 18), _public(1, 34), _public(1, 50)
resnet101_v1, resnet152_v1 = _public(1, 101), _public(1, 152)
resnet18_v2, resnet34_v2, resnet50_v2 = _public(2, 18), _public(2, 34), _public(2, 50)
resnet101_v2, resnet152_v2 = _public(2, 101), _public(2, 152)
