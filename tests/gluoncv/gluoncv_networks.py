"""How each network of GluonCV's list is built and fed: the same rules for the recorder and for the test."""

import contextlib
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "zoo"))

import numpy as np  # noqa: E402
import seeded  # noqa: E402

ACTIONS = ("kinetics400", "ucf101", "hmdb51", "sthsthv2")
VOLUMES = ("c3d_", "p3d_", "r2plus1d_", "i3d_", "slowfast_")
SEGMENTATION = ("fcn_", "psp_", "deeplab_", "icnet_", "danet_")

#: These begin with weights trained on Kinetics, which are downloaded, unless told not to.
KINETICS_FIRST = (
    *("resnet18_v1b_custom", "resnet50_v1b_custom", "slowfast_4x16_resnet50_custom"),
    *("i3d_resnet50_v1_ucf101", "i3d_resnet50_v1_hmdb51", "i3d_resnet50_v1_custom"),
)


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
    if name in KINETICS_FIRST:
        found.update(use_kinetics_pretrain=False)
    if name.startswith(SEGMENTATION) and "wideresnet" not in name:
        found.update(crop_size=192 if name.startswith("icnet") else 96)
    return found


def shapes(name):
    """Input shapes to try, cheapest first: the first one that the network takes is recorded."""
    if name.startswith("siamrpn"):
        return [[(1, 3, 127, 127), (1, 3, 287, 287)]]
    if is_volume(name):
        if "slowfast_16x8" in name:
            frames = [80]
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


#: Networks on single frames stand on a base whose weights GluonCV downloads, whatever it is asked for; or, without
#: weights, it fails in MXNet, because they have no values yet when it sets their device. Module -> bases.
BASES = {
    "actionrec_resnetv1b": [f"resnet{depth}_v1b" for depth in (18, 34, 50, 101, 152)],
    "actionrec_vgg16": ["vgg16"],
    "actionrec_inceptionv1": ["googlenet"],
    "actionrec_inceptionv3": ["inception_v3"],
}


def has_base(name):
    """Whether it is such a network on frames."""
    starts = [base + "_" for base in BASES["actionrec_resnetv1b"]] + ["vgg16_", "inceptionv1_", "inceptionv3_"]
    return name.startswith(tuple(starts)) and name.replace("_int8", "").endswith((*ACTIONS, "custom"))


@contextlib.contextmanager
def without_download():
    """Bases get first values instead of downloaded weights; the zoo is not changed otherwise.

    For INT8 names, GluonCV also makes the float network with such a base, to ask it for its classes.
    """
    import importlib

    from gluoncv.model_zoo import model_zoo

    original = model_zoo.get_model
    kept = []

    def first_values(make):
        def base(pretrained=False, **kwargs):
            made = make(pretrained=False, **kwargs)
            made.initialize()
            return made

        return base

    def plain(name, **kwargs):
        try:
            return original(name, pretrained_base=False, **kwargs)
        except TypeError:
            return original(name, **kwargs)

    for module, names in BASES.items():
        found = importlib.import_module("gluoncv.model_zoo.action_recognition." + module)
        for name in names:
            kept.append((found, name, getattr(found, name)))
            setattr(found, name, first_values(getattr(found, name)))
    model_zoo.get_model = plain
    try:
        yield
    finally:
        model_zoo.get_model = original
        for found, name, make in kept:
            setattr(found, name, make)


def build(name, get_model):
    """The network, without trained weights."""
    if name.endswith("int8"):
        with without_download():
            return get_model(name, pretrained=False)
    if has_base(name):
        with without_download():
            return get_model(name, pretrained=False, **arguments(name))
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
      thousands, that is steps, and rounding decides about them: MXNet in float32 is then off what it gives in float64
      by 2e-3 (CIFAR, 452 layers) or 2e-4 (200 layers), and by 2e-7 with scales half as large.
    """
    if "residualattention" in name:
        return 0.5
    if "mobilenet1" in name or "mobilenet0" in name:
        return 1.5
    return 1.0


def moves_boxes(short, shape):
    """Whether a weight belongs to the layers of an R-CNN that move and stretch boxes.

    With weights of variance 2 / inputs, boxes become exponentials: slivers a third of a pixel wide, whose masks MXNet
    itself computes differently by 2e-2 from run to run. Trained networks stretch by a few percent.
    """
    return short.endswith("rpnhead0_conv2_weight") or (short == "dense1_weight" and shape[0] != 1024)


def value(name, short, shape, dtype):
    """A seeded value of a parameter of a network, in its dtype."""
    made = seeded.parameter(short, shape)
    if short.endswith("gamma"):
        made = made * np.float32(gamma_gain(name))
    if name.startswith("mask_rcnn_fpn") and moves_boxes(short, shape):
        made = made * np.float32(0.05)
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
