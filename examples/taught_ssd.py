"""Seeded weights for an SSD that knows the objects of two photos: so that a demo without trained files shows boxes.

The base network gets seeded random weights. What it computes for the photos tells places apart well enough, so the
predictors are fitted to it by ridge regression: at the anchors nearest to the marked objects they say the class and the
offsets of the box, everywhere else background. Nothing is recognized in other pictures.
"""

from __future__ import annotations

import mxnet as mx
import numpy as np

#: Marked objects of photos of the package scikit-image: class, then x0, y0, x1, y1 as shares of the picture.
MARKED = {
    "astronaut.png": [("person", (0.04, 0.03, 0.71, 0.99)), ("aeroplane", (0.69, 0.01, 0.92, 0.56))],
    "chelsea.png": [("cat", (0.26, 0.05, 0.90, 0.96))],
}
#: Logit of what is there, and its negative for what is not.
SURE = 5.0
#: How near an anchor must be to an object to answer for it, as intersection over union.
NEAR = 0.5
#: Share of the mean square of the features that ridge regression adds.
RIDGE = 0.02


def seed(net: mx.gluon.HybridBlock, number: int = 7) -> None:
    """Give all parameters of a network seeded values that keep the scale of activations."""
    net.initialize(mx.init.Zero(), force_reinit=True)
    net(mx.nd.zeros((1, 3, 256, 256)))  # parameters learn their shapes
    random = np.random.default_rng(number)
    for name, parameter in net.collect_params().items():
        shape = parameter.shape
        if name.endswith("weight"):
            values = random.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
        elif name.endswith(("gamma", "var")):
            values = np.ones(shape)
        elif name.endswith(("bias", "beta", "mean")):
            values = np.zeros(shape)
        else:  # the anchors
            continue
        parameter.set_data(mx.nd.array(values))


def overlap(boxes: np.ndarray, box: np.ndarray) -> np.ndarray:
    """Intersection over union of boxes (N, 4) with one box (4,), corners in pixels."""
    low, high = np.maximum(boxes[:, :2], box[:2]), np.minimum(boxes[:, 2:], box[2:])
    shared = np.prod(np.clip(high - low, 0, None), axis=1)
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    return shared / (areas + np.prod(box[2:] - box[:2]) - shared)


def teach(net: mx.gluon.HybridBlock, lessons: list[tuple[mx.nd.NDArray, list[tuple[str, tuple[float, ...]]]]]) -> None:
    """Fit the predictors of an SSD to marked pictures.

    Args:
        net: an SSD of GluonCV, with parameters.
        lessons: pictures (1, 3, H, W) as the network takes them, each with its marked objects.
    """
    levels = len(net.class_predictors)
    rows: list[list[np.ndarray]] = [[] for _ in range(levels)]
    classes: list[list[np.ndarray]] = [[] for _ in range(levels)]
    offsets: list[list[np.ndarray]] = [[] for _ in range(levels)]
    for x, objects in lessons:
        features = net.features(x)
        anchors = [g(f).asnumpy().reshape(-1, 4) for g, f in zip(net.anchor_generators, features)]
        told = targets(net, x.shape[2:], np.concatenate(anchors), objects)
        start = 0
        for level, (feature, own) in enumerate(zip(features, anchors)):
            cells = feature.shape[2] * feature.shape[3]
            wanted_class, wanted_box = (t[start : start + len(own)].reshape(cells, -1) for t in told)
            start += len(own)
            rows[level].append(feature.asnumpy()[0].reshape(-1, cells).T)
            classes[level].append(wanted_class)
            offsets[level].append(wanted_box)
    for level in range(levels):
        x = np.concatenate(rows[level]).astype(np.float64)
        for block, wanted in ((net.class_predictors[level], classes), (net.box_predictors[level], offsets)):
            fit(block.predictor, x, np.concatenate(wanted[level]))


def targets(
    net: mx.gluon.HybridBlock, size: tuple[int, int], anchors: np.ndarray, objects: list[tuple[str, tuple[float, ...]]]
) -> tuple[np.ndarray, np.ndarray]:
    """What the predictors shall say at each anchor: logits (N, classes + 1), and offsets (N, 4)."""
    stds = np.array([0.1, 0.1, 0.2, 0.2])
    corners = np.concatenate([anchors[:, :2] - anchors[:, 2:] / 2, anchors[:, :2] + anchors[:, 2:] / 2], axis=1)
    logits = np.full((len(anchors), len(net.classes) + 1), -SURE)
    logits[:, 0] = SURE
    boxes = np.zeros((len(anchors), 4))
    for name, shares in objects:
        box = np.array(shares) * np.array([size[1], size[0], size[1], size[0]])
        near = overlap(corners, box)
        chosen = np.flatnonzero((near >= NEAR) | (near == near.max()))
        logits[chosen, 0], logits[chosen, 1 + net.classes.index(name)] = -SURE, SURE
        center, extent = (box[:2] + box[2:]) / 2, box[2:] - box[:2]
        boxes[chosen, :2] = (center - anchors[chosen, :2]) / anchors[chosen, 2:]
        boxes[chosen, 2:] = np.log(extent / anchors[chosen, 2:])
    return logits, boxes / stds


def fit(predictor: mx.gluon.HybridBlock, x: np.ndarray, wanted: np.ndarray) -> None:
    """Make a 3 x 3 convolution say ``wanted`` (cells, outputs) at cells with features ``x`` (cells, channels)."""
    mean, level = x.mean(0), wanted.mean(0)
    centred = x - mean
    kernel = centred @ centred.T
    kernel += np.eye(len(x)) * max(RIDGE * np.trace(kernel) / len(x), 1e-6)
    weights = np.linalg.solve(kernel, wanted - level).T @ centred
    full = np.zeros((*weights.shape, 3, 3), np.float32)
    full[:, :, 1, 1] = weights
    predictor.weight.set_data(mx.nd.array(full))
    predictor.bias.set_data(mx.nd.array(level - weights @ mean))
