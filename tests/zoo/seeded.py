"""Weights from a seed: the same under MXNet's Python 3.8 and in our tests, so that no weights need to be stored."""

import zlib

import numpy as np


def rng(name):
    """A generator that depends on the name alone."""
    return np.random.RandomState(zlib.crc32(name.encode()) & 0x7FFFFFFF)


def parameter(name, shape):
    """A float32 parameter in the range that its kind has in trained networks, so that activations stay sane."""
    shape = tuple(int(d) for d in shape)
    draw = rng(name + str(shape)).random_sample(shape).astype(np.float32)
    if name.endswith("gamma"):  # below 1, so that residual branches do not drown the way around them
        return np.float32(0.4) + np.float32(0.4) * draw
    if name.endswith(("running_var", "moving_var")):
        return np.float32(0.75) + np.float32(0.5) * draw
    centred = draw - np.float32(0.5)
    if name.endswith(("weight", "parameters")) and len(shape) > 1:
        fan_in = int(np.prod(shape[1:]))
        return centred * np.float32(np.sqrt(24.0 / fan_in))  # variance 2 / fan_in
    if name.endswith("alpha"):
        return np.abs(centred)
    return centred * np.float32(0.2)


def image(name, shape):
    """A float32 input, about standard normal."""
    return rng("input " + name + str(tuple(shape))).normal(0, 1, tuple(shape)).astype(np.float32)
