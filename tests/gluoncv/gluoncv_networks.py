"""How each network of GluonCV's list is built and fed: the same rules for the recorder and for the test."""

import contextlib
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "zoo"))

import numpy as np  # noqa: E402
import seeded  # noqa: E402

ACTIONS = ("kinetics", "ucf101", "hmdb51", "sthsthv2")
VOLUMES = ("c3d_", "p3d_", "r2plus1d_", "i3d_", "slowfast_")
SEGMENTATION = ("fcn_", "psp_", "deeplab_", "icnet_", "danet_")


def is_volume(name):
    """Whether its input is a video: (N, C, T, H, W)."""
    return name.startswith(VOLUMES)


def arguments(name):
    """Keyword arguments that it needs beside ``pretrained`` and ``pretrained_base``."""
    found = {}
    if name.startswith("custom_"):
        found.update(classes=["a", "b", "c"], dataset="custom")
    elif name.endswith("custom") and not (is_volume(name) or name.startswith("resnet")):
        found.update(classes=["a", "b", "c"])
    elif name.endswith("custom"):
        found.update(nclass=7)
    if name.startswith(SEGMENTATION) and "wideresnet" not in name:
        found.update(crop_size=192 if name.startswith("icnet") else 96)
    return found


def shapes(name):
    """Input shapes to try, cheapest first: the first one that the network takes is recorded."""
    if name.startswith("siamrpn"):
        return [[(1, 3, 127, 127), (1, 3, 287, 287)]]
    if is_volume(name):
        if "slowfast_16x8" in name:
            frames = [48]
        elif "slowfast_8x8" in name:
            frames = [40]
        elif "slowfast" in name:
            frames = [36]
        elif name.startswith(("i3d", "c3d", "p3d", "r2plus1d")):
            frames = [16, 32]
        return [[(1, 3, t, s, s)] for t in frames for s in (64, 112, 224)]
    if name.startswith("cifar"):
        return [[(1, 3, 32, 32)]]
    if "monodepth2" in name:
        return [[(1, 6 if "posenet" in name else 3, 192, 640)]]
    if name.startswith(SEGMENTATION):
        size = arguments(name).get("crop_size", 480)
        return [[(1, 3, size, size)], [(1, 3, 480, 480)]]
    if "fastscnn" in name:
        return [[(1, 3, 1024, 1024)]]
    if "rcnn" in name:
        return [[(1, 3, 192, 256)]]
    if "pose" in name:
        return [[(1, 3, 256, 192)]]
    if name.startswith("ssd_300"):
        return [[(1, 3, 300, 300)]]
    if name.startswith("ssd_512"):
        return [[(1, 3, 512, 512)]]
    if name.startswith(("yolo3", "center_net")):
        return [[(1, 3, 128, 128)]]
    if name.startswith(("residualattention", "nasnet")):
        return [[(1, 3, 224, 224)]]
    return [[(1, 3, s, s)] for s in (64, 128, 224, 299)]


@contextlib.contextmanager
def only_classes():
    """For INT8 names: GluonCV also makes the float network, with a trained base that it downloads, to ask it for its
    classes. Here it makes it without the base."""
    from gluoncv.model_zoo import model_zoo
    from gluoncv.model_zoo.action_recognition import actionrec_resnetv1b as action

    original = model_zoo.get_model
    bases = {n: getattr(action, n) for n in ("resnet18_v1b", "resnet50_v1b")}  # these get no pretrained_base

    def plain(name, **kwargs):
        try:
            return original(name, pretrained_base=False, **kwargs)
        except TypeError:
            return original(name, **kwargs)

    model_zoo.get_model = plain
    for name, base in bases.items():
        setattr(action, name, lambda pretrained, base=base, **kwargs: base(**kwargs))
    try:
        yield
    finally:
        model_zoo.get_model = original
        for name, base in bases.items():
            setattr(action, name, base)


def build(name, get_model):
    """The network, without trained weights."""
    if name.endswith("int8"):
        with only_classes():
            return get_model(name, pretrained=False)
    try:
        return get_model(name, pretrained=False, pretrained_base=False, **arguments(name))
    except (TypeError, Warning):  # Darknet raises a Warning for arguments that it does not know
        return get_model(name, pretrained=False, **arguments(name))


def short_names(net, names):
    """Names of parameters without the prefix of the whole network."""
    return {n: (n[len(net.prefix) :] if net.prefix and n.startswith(net.prefix) else n) for n in names}


def gamma_gain(name):
    """What the scales of normalizations are multiplied by in this network, so that its activations stay sane.

    * MobileNet v1 is a chain of 27 layers without a way around them: with scales below 1 nothing of the picture is left
      at its end, and what an SSD says depends on biases alone, with thousands of ties among its scores.
    * A residual attention network multiplies what flows through it by 1 to 2 in each of up to 18 modules, on top of
      what hundreds of residual blocks add: with scales of 0.6 its values reach 1e5, its masks are sigmoids of
      thousands, that is steps, and rounding decides about them (MXNet in float32 is then 1e-2 off itself in float64).
    """
    if "residualattention" in name:
        return 0.5
    if "mobilenet1" in name or "mobilenet0" in name:
        return 1.5
    return 1.0


def value(name, short, shape, dtype):
    """A seeded value of a parameter of a network, in its dtype."""
    made = seeded.parameter(short, shape)
    if short.endswith("gamma"):
        made = made * np.float32(gamma_gain(name))
    if np.dtype(dtype).kind in "iu":
        return np.clip(np.round(made * 40 / max(1e-6, np.abs(made).max())), -127, 127).astype(dtype)
    return made.astype(dtype)


def inputs(name, shapes_):
    """Seeded inputs. SSD on VGG multiplies its input by 57 on average, which its seeded weights do not expect: it gets
    smaller ones, or else its boxes are exponentials of hundreds."""
    size = np.float32(1 / 57 if name.startswith("ssd") and "vgg" in name else 1)
    return [seeded.image(f"gluoncv {name} {i}", s) * size for i, s in enumerate(shapes_)]


def flat(outputs):
    """Outputs of any nesting as a list; what is no array is left out."""
    if isinstance(outputs, dict):
        outputs = [outputs[k] for k in sorted(outputs, key=str)]
    if isinstance(outputs, (list, tuple)):
        return [a for o in outputs for a in flat(o)]
    return [outputs] if hasattr(outputs, "asnumpy") else []


def is_detector(name):
    """Whether its outputs are a set of boxes, in an order that ties may change."""
    return name.startswith(("ssd_", "yolo3_", "center_net", "faster_", "mask_", "doublehead", "custom_"))
