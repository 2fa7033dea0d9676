"""AlexNet (Krizhevsky 2012), VGG (Simonyan 2014), SqueezeNet (Iandola 2016) and DenseNet (Huang 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from requant.errors import InputError
from requant.mx.gluon.contrib.nn import HybridConcurrent, Identity
from requant.mx.gluon.model_zoo.vision.building import Classifier, chain, maker
from requant.mx.gluon.nn import (
    Activation,
    AvgPool2D,
    BatchNorm,
    Conv2D,
    Dense,
    Dropout,
    Flatten,
    HybridSequential,
    MaxPool2D,
)
from requant.mx.initializer import Xavier


class AlexNet(Classifier):
    """AlexNet."""

    def __init__(self, classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = HybridSequential(prefix="")
            with self.features.name_scope():
                self.features.add(
                    Conv2D(64, 11, 4, 2, activation="relu"),
                    MaxPool2D(3, 2),
                    Conv2D(192, 5, padding=2, activation="relu"),
                    MaxPool2D(3, 2),
                    Conv2D(384, 3, padding=1, activation="relu"),
                    Conv2D(256, 3, padding=1, activation="relu"),
                    Conv2D(256, 3, padding=1, activation="relu"),
                    MaxPool2D(3, 2),
                    Flatten(),
                    Dense(4096, activation="relu"),
                    Dropout(0.5),
                    Dense(4096, activation="relu"),
                    Dropout(0.5),
                )
            self.output = Dense(classes)


class VGG(Classifier):
    """VGG: stages of 3x3 convolutions, each halved in size at its end.

    Args:
        layers: convolutions of each stage. filters: channels of each stage.
        batch_norm: normalize after every convolution.
    """

    def __init__(
        self,
        layers: Sequence[int],
        filters: Sequence[int],
        classes: int = 1000,
        batch_norm: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if len(layers) != len(filters):
            raise InputError("one number of channels per stage", got=len(filters), expected=len(layers))
        with self.name_scope():
            self.features = HybridSequential(prefix="")
            for count, channels in zip(layers, filters):
                for _ in range(count):
                    init = Xavier(rnd_type="gaussian", factor_type="out", magnitude=2)
                    self.features.add(Conv2D(channels, 3, padding=1, weight_initializer=init))
                    if batch_norm:
                        self.features.add(BatchNorm())
                    self.features.add(Activation("relu"))
                self.features.add(MaxPool2D(strides=2))
            for _ in range(2):
                self.features.add(Dense(4096, activation="relu", weight_initializer="normal"), Dropout(rate=0.5))
            self.output = Dense(classes, weight_initializer="normal")


def _fire(squeeze: int, expand: int) -> Any:
    out = chain(chain(Conv2D(squeeze, 1), Activation("relu")))
    paths = HybridConcurrent(axis=1, prefix="")
    paths.add(chain(Conv2D(expand, 1), Activation("relu")), chain(Conv2D(expand, 3, padding=1), Activation("relu")))
    out.add(paths)
    return out


class SqueezeNet(Classifier):
    """SqueezeNet, version ``1.0`` or ``1.1``.

    Raises:
        InputError: another version.
    """

    def __init__(self, version: str, classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if version not in ("1.0", "1.1"):
            raise InputError("no such SqueezeNet", got=version, expected="1.0 or 1.1")
        first, stages = {
            "1.0": ((96, 7), [[16, 16, 32], [32, 48, 48, 64], [64]]),
            "1.1": ((64, 3), [[16, 16], [32, 32], [48, 48, 64, 64]]),
        }[version]
        with self.name_scope():
            self.features = chain(Conv2D(first[0], first[1], 2), Activation("relu"))
            for stage in stages:
                self.features.add(MaxPool2D(3, 2, ceil_mode=True))
                for squeeze in stage:
                    self.features.add(_fire(squeeze, 4 * squeeze))
            self.features.add(Dropout(0.5))
            self.output = chain(Conv2D(classes, 1), Activation("relu"), AvgPool2D(13), Flatten())


def _dense_stage(layers: int, bn_size: int, growth: int, dropout: float, index: int) -> Any:
    made = HybridSequential(prefix=f"stage{index}_")
    with made.name_scope():
        for _ in range(layers):
            new = chain(
                BatchNorm(),
                Activation("relu"),
                Conv2D(bn_size * growth, 1, use_bias=False),
                BatchNorm(),
                Activation("relu"),
                Conv2D(growth, 3, padding=1, use_bias=False),
            )
            if dropout:
                new.add(Dropout(dropout))
            both = HybridConcurrent(axis=1, prefix="")
            both.add(Identity(), new)
            made.add(both)
    return made


class DenseNet(Classifier):
    """DenseNet: every layer sees all before it.

    Args:
        num_init_features: channels of the stem. growth_rate: channels that each layer adds.
        block_config: layers of each stage. bn_size: width of the inner convolutions, in growth rates.
    """

    def __init__(
        self,
        num_init_features: int,
        growth_rate: int,
        block_config: Sequence[int],
        bn_size: int = 4,
        dropout: float = 0,
        classes: int = 1000,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = chain(
                Conv2D(num_init_features, 7, 2, 3, use_bias=False), BatchNorm(), Activation("relu"), MaxPool2D(3, 2, 1)
            )
            channels = num_init_features
            for i, layers in enumerate(block_config):
                self.features.add(_dense_stage(layers, bn_size, growth_rate, dropout, i + 1))
                channels += layers * growth_rate
                if i < len(block_config) - 1:
                    channels //= 2
                    self.features.add(
                        chain(BatchNorm(), Activation("relu"), Conv2D(channels, 1, use_bias=False), AvgPool2D(2, 2))
                    )
            self.features.add(BatchNorm(), Activation("relu"), AvgPool2D(7), Flatten())
            self.output = Dense(classes)


_VGG = {11: [1, 1, 2, 2, 2], 13: [2, 2, 2, 2, 2], 16: [2, 2, 3, 3, 3], 19: [2, 2, 4, 4, 4]}
_DENSENET = {
    121: (64, 32, [6, 12, 24, 16]),
    161: (96, 48, [6, 12, 36, 24]),
    169: (64, 32, [6, 12, 32, 32]),
    201: (64, 32, [6, 12, 48, 32]),
}


def _vgg(depth: int, batch_norm: bool) -> Any:
    def build(**kwargs: Any) -> Any:
        return VGG(_VGG[depth], [64, 128, 256, 512, 512], batch_norm=batch_norm, **kwargs)

    more = " with batch normalization" if batch_norm else ""
    return maker(f"vgg{depth}{'_bn' if batch_norm else ''}", f"VGG-{depth}{more}.", build)


def _densenet(depth: int) -> Any:
    return maker(f"densenet{depth}", f"DenseNet-{depth}.", lambda **kwargs: DenseNet(*_DENSENET[depth], **kwargs))


def _squeezenet(version: str) -> Any:
    name = f"squeezenet{version}"
    return maker(name, f"SqueezeNet {version}.", lambda **kwargs: SqueezeNet(version, **kwargs))


alexnet = maker("alexnet", "AlexNet.", AlexNet)
vgg11, vgg13, vgg16, vgg19 = _vgg(11, False), _vgg(13, False), _vgg(16, False), _vgg(19, False)
vgg11_bn, vgg13_bn, vgg16_bn, vgg19_bn = _vgg(11, True), _vgg(13, True), _vgg(16, True), _vgg(19, True)
squeezenet1_0, squeezenet1_1 = _squeezenet("1.0"), _squeezenet("1.1")
densenet121, densenet161, densenet169, densenet201 = _densenet(121), _densenet(161), _densenet(169), _densenet(201)
