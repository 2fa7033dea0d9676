"""MobileNet (Howard 2017) and MobileNetV2 (Sandler 2018)."""

from __future__ import annotations

from typing import Any

from requant.mx.gluon.hybrid import HybridBlock
from requant.mx.gluon.model_zoo.vision.building import Classifier, maker
from requant.mx.gluon.nn import Activation, BatchNorm, Conv2D, Dense, Flatten, GlobalAvgPool2D, HybridSequential


class RELU6(HybridBlock):
    """min(max(x, 0), 6)."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.clip(x, 0, 6, name="relu6")


def _conv(
    out: Any,
    channels: int,
    kernel: int = 1,
    stride: int = 1,
    pad: int = 0,
    group: int = 1,
    active: bool = True,
    relu6: bool = False,
) -> None:
    out.add(Conv2D(channels, kernel, stride, pad, groups=group, use_bias=False), BatchNorm(scale=True))
    if active:
        out.add(RELU6() if relu6 else Activation("relu"))


class LinearBottleneck(HybridBlock):
    """Expand by ``t``, filter each channel, and project; the input is added where shapes allow."""

    def __init__(self, in_channels: int, channels: int, t: int, stride: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.use_shortcut = stride == 1 and in_channels == channels
        inner = in_channels * t
        with self.name_scope():
            self.out = HybridSequential()
            _conv(self.out, inner, relu6=True)
            _conv(self.out, inner, 3, stride, 1, group=inner, relu6=True)
            _conv(self.out, channels, active=False)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        out = self.out(x)
        return F.elemwise_add(out, x) if self.use_shortcut else out


class MobileNet(Classifier):
    """MobileNet, its channels times ``multiplier``."""

    def __init__(self, multiplier: float = 1.0, classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        widths = [32, 64, 128, 128, 256, 256, *[512] * 6, 1024, 1024]
        strides = [1, 2, 1, 2, 1, 2, *[1] * 5, 2, 1]
        scaled = [int(w * multiplier) for w in widths]
        with self.name_scope():
            self.features = HybridSequential(prefix="")
            with self.features.name_scope():
                _conv(self.features, scaled[0], 3, 2, 1)
                for inner, outer, stride in zip(scaled[:-1], scaled[1:], strides):
                    _conv(self.features, inner, 3, stride, 1, group=inner)
                    _conv(self.features, outer)
                self.features.add(GlobalAvgPool2D(), Flatten())
            self.output = Dense(classes)


class MobileNetV2(Classifier):
    """MobileNetV2, its channels times ``multiplier``."""

    def __init__(self, multiplier: float = 1.0, classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        outer = [16, *[24] * 2, *[32] * 3, *[64] * 4, *[96] * 3, *[160] * 3, 320]
        inner = [32, *outer[:-1]]
        factors = [1, *[6] * 16]
        strides = [1, 2, 1, 2, 1, 1, 2, *[1] * 6, 2, *[1] * 3]
        with self.name_scope():
            self.features = HybridSequential(prefix="features_")
            with self.features.name_scope():
                _conv(self.features, int(32 * multiplier), 3, 2, 1, relu6=True)
                for i, o, t, s in zip(inner, outer, factors, strides):
                    self.features.add(LinearBottleneck(int(i * multiplier), int(o * multiplier), t, s))
                _conv(self.features, int(1280 * multiplier) if multiplier > 1 else 1280, relu6=True)
                self.features.add(GlobalAvgPool2D())
            self.output = HybridSequential(prefix="output_")
            with self.output.name_scope():
                self.output.add(Conv2D(classes, 1, use_bias=False, prefix="pred_"), Flatten())


def _v1(multiplier: float, text: str) -> Any:
    return maker(f"mobilenet{text}", f"MobileNet {text}.", lambda **kwargs: MobileNet(multiplier, **kwargs))


def _v2(multiplier: float, text: str) -> Any:
    return maker(f"mobilenetv2_{text}", f"MobileNetV2 {text}.", lambda **kwargs: MobileNetV2(multiplier, **kwargs))


mobilenet1_0, mobilenet0_75 = _v1(1.0, "1.0"), _v1(0.75, "0.75")
mobilenet0_5, mobilenet0_25 = _v1(0.5, "0.5"), _v1(0.25, "0.25")
mobilenet_v2_1_0, mobilenet_v2_0_75 = _v2(1.0, "1.0"), _v2(0.75, "0.75")
mobilenet_v2_0_5, mobilenet_v2_0_25 = _v2(0.5, "0.5"), _v2(0.25, "0.25")
