"""The 22 INT8 graphs that GluonCV 0.10.5 ships: names, shapes, parameters. Runs under MXNet's Python 3.8 too.

``data/graphs.tar.xz`` holds the symbol files of the package ``gluoncv`` 0.10.5.post0 (Apache License 2.0), unchanged.
They come without parameters here. Parameters are seeded (``tests/zoo/seeded.py``) and then multiplied by the factors of
``data/factors.json.gz``, which bring every layer's output into the range that its node was calibrated for, as trained
parameters do: outside of it everything saturates and nothing can be compared.
"""

import gzip
import json
import os
import sys
import tarfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "data")
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "zoo"))

import seeded  # noqa: E402

#: Input shapes by the beginning of the name; video networks take a batch of frames.
SHAPES = (
    ("simple_pose", (1, 3, 256, 192)),
    ("ssd_300", (1, 3, 300, 300)),
    ("ssd_512", (1, 3, 512, 512)),
    ("fcn", (1, 3, 480, 480)),
    ("psp", (1, 3, 480, 480)),
    ("deeplab", (1, 3, 480, 480)),
    ("vgg16_ucf101", (3, 3, 224, 224)),
    ("inceptionv3", (3, 3, 299, 299)),
    ("resnet18_v1b_kinetics400", (7, 3, 224, 224)),
    ("resnet50_v1b_kinetics400", (7, 3, 224, 224)),
    ("", (1, 3, 224, 224)),
)


def names():
    """All graphs, in alphabetical order."""
    with tarfile.open(os.path.join(DATA, "graphs.tar.xz")) as tar:
        return sorted(n[: -len(".json")] for n in tar.getnames())


def text(name):
    """The symbol file."""
    with tarfile.open(os.path.join(DATA, "graphs.tar.xz")) as tar:
        return tar.extractfile(name + ".json").read()


def shape(name):
    """The input's shape."""
    return next(s for start, s in SHAPES if name.startswith(start))


def image(name):
    """The input."""
    return seeded.image(name, shape(name))


def factors(name):
    """Factor by parameter name."""
    with gzip.open(os.path.join(DATA, "factors.json.gz"), "rt") as file:
        return json.load(file).get(name, {})


def parameters(name, shapes, fitted=True):
    """Parameters by name, from their shapes."""
    scale = factors(name) if fitted else {}
    return {n: seeded.parameter(n, s) * np.float32(scale.get(n, 1)) for n, s in shapes.items()}


def sample(array, count=1500):
    """A few thousand numbers of an array, evenly spread."""
    flat = np.ravel(array)
    return flat[:: max(1, flat.size // count)][:count]
