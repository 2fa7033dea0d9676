"""Golden cases: what one operator does in MXNet 1.9.1 for given attributes and inputs.

This file runs on both sides: under MXNet's Python 3.8 (``record.py``) and in our tests. It needs numpy alone. Inputs
are not stored: both sides make them from the case's name. Outputs are stored, one ``data/<family>.npz`` per family.
"""

import importlib
import os
import zlib

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))


class In(object):
    """One input array, by recipe.

    kind: "normal" (mean 0, sigma ``scale``), "uniform" (``low``..``high``), "ints" (``low`` <= i < ``high``),
    "positive" (|normal| + 0.1), or "perm" (a random permutation of 0..n-1, no ties). ``value`` gives the array
    itself, as a list.
    """

    def __init__(self, *shape, **kw):
        self.shape = tuple(shape)
        self.kind = kw.pop("kind", "normal")
        self.dtype = kw.pop("dtype", "float32")
        self.scale = kw.pop("scale", 1.0)
        self.low = kw.pop("low", -1.0)
        self.high = kw.pop("high", 1.0)
        self.value = kw.pop("value", None)
        assert not kw, kw

    def make(self, rng):
        if self.value is not None:
            return np.array(self.value, dtype=self.dtype)
        if self.kind == "normal":
            x = rng.normal(0, self.scale, self.shape)
        elif self.kind == "uniform":
            x = rng.uniform(self.low, self.high, self.shape)
        elif self.kind == "ints":
            x = rng.randint(int(self.low), int(self.high), self.shape)
        elif self.kind == "positive":
            x = np.abs(rng.normal(0, self.scale, self.shape)) + 0.1
        elif self.kind == "perm":
            x = rng.permutation(int(np.prod(self.shape))).reshape(self.shape)
        else:
            raise ValueError(self.kind)
        return np.asarray(x).astype(self.dtype)


class Case(object):
    """One operator call.

    op: MXNet's operator name, as in symbol files. attrs: Python values. inputs: ``In`` in MXNet's order (parameters and
    auxiliary states included). rtol, atol: tolerance of the comparison. env: extra environment for the recorder, as
    ("MXNET_MKLDNN_ENABLED", "0"). skip: {engine name: reason} for engines that cannot run it; a reason is a must.
    outputs: how many visible outputs are compared (None: all that MXNet lists).
    """

    def __init__(self, op, inputs, attrs=None, note="", rtol=1e-4, atol=1e-5, env=(), skip=None, outputs=None):
        self.op, self.inputs, self.attrs, self.note = op, list(inputs), dict(attrs or {}), note
        self.rtol, self.atol, self.env, self.skip, self.outputs = rtol, atol, tuple(env), dict(skip or {}), outputs

    @property
    def id(self):
        shown = ",".join("%s=%s" % (k, str(v).replace(" ", "")) for k, v in sorted(self.attrs.items()))
        shapes = ";".join(
            "x".join(map(str, i.shape)) + ("" if i.dtype == "float32" else ":" + i.dtype) for i in self.inputs
        )
        return "%s(%s)[%s]%s" % (self.op, shown, shapes, " " + self.note if self.note else "")

    def arrays(self):
        """The input arrays: the same on every machine and numpy version."""
        rng = np.random.RandomState(zlib.crc32(self.id.encode()) & 0x7FFFFFFF)
        return [i.make(rng) for i in self.inputs]


def families():
    """Names of the case files."""
    names = os.listdir(os.path.join(HERE, "cases"))
    return sorted(n[:-3] for n in names if n.endswith(".py") and not n.startswith("_"))


def cases(family):
    """The cases of a family; their ids are unique."""
    found = importlib.import_module("cases." + family).CASES
    ids = [c.id for c in found]
    twice = sorted(set(i for i in ids if ids.count(i) > 1))
    assert not twice, "two cases are the same: %s" % twice[:3]
    return found
