"""What an engine is: ONNX in, a session out.

An engine lives in one file of this folder and is the only importer of its library. Everything that a caller can see of
it is here, in ``session.py`` and in ``tensors.py``.
"""

from __future__ import annotations

import abc
import dataclasses
import os
from typing import Literal

import onnx_ir as ir

from requant.engines.session import Session
from requant.engines.tensors import Shapes
from requant.errors import EngineError, shown
from requant.scheme import Scheme


@dataclasses.dataclass(frozen=True)
class EngineOptions:
    """How a graph is compiled. The same words for every engine; a wish that an engine cannot grant is an error.

    Args:
        threads: threads for one run; None = all cores that this process may really use.
        hint: ``latency`` spends all threads on one run; ``throughput`` on several runs at a time.
        streams: how many runs at a time; None = what the hint and the machine suggest.
        precision: arithmetic of the float layers. ``f32`` means float32 also where the CPU has faster bfloat16 units.
        cache_dir: folder for compiled models, so that loading the same graph again is fast; None = no cache.
        split: a large batch of samples that have nothing to do with each other may run as several small ones, where
            that is faster (engines decide; ``latency`` without ``streams`` only).
        profile: measure every layer (``Session.profile``); costs some speed.

    Raises:
        EngineError: a value out of range.
    """

    threads: int | None = None
    hint: Literal["latency", "throughput"] = "latency"
    streams: int | None = None
    precision: Literal["f32", "bf16", "f16"] = "f32"
    cache_dir: str | None = None
    profile: bool = False
    split: bool = True

    def __post_init__(self) -> None:
        limit = max(256, 8 * (os.cpu_count() or 1))  # beyond it an engine is busy for minutes with its own threads
        for key in ("threads", "streams"):
            value = getattr(self, key)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= limit):
                raise EngineError(
                    f"engine option {key!r} is out of range",
                    got=repr(value),
                    expected=f"1 to {limit}, or None",
                    next="leave it out: the engine then fits it to this machine",
                )
        if self.cache_dir is not None and not isinstance(self.cache_dir, (str, os.PathLike)):
            raise EngineError("engine option 'cache_dir' is no folder", got=shown(self.cache_dir), expected="its name")
        for key, words in (("hint", ("latency", "throughput")), ("precision", ("f32", "bf16", "f16"))):
            if getattr(self, key) not in words:
                expected = " or ".join(repr(w) for w in words)
                raise EngineError(f"unknown engine option {key!r}", got=repr(getattr(self, key)), expected=expected)


@dataclasses.dataclass(frozen=True)
class Availability:
    """Whether an engine can be used here: its version, or why it cannot."""

    ok: bool
    version: str | None
    why: str | None


class Engine(abc.ABC):
    """An engine: turns ONNX models into sessions. Stateless and shareable."""

    #: how users name it, in lower case
    name: str
    #: activations lie channels-last in its memory: an output that is transposed so costs nothing, one that is not does
    channels_last: bool = False

    @property
    @abc.abstractmethod
    def scheme(self) -> Scheme:
        """The INT8 forms that it runs fast on this machine."""

    @abc.abstractmethod
    def available(self) -> Availability:
        """Whether its library is installed and loads here."""

    @abc.abstractmethod
    def load(self, model: ir.Model, options: EngineOptions, shapes: Shapes | None = None) -> Session:
        """Compile a model. The model is only read.

        Args:
            model: any ONNX model.
            options: see EngineOptions.
            shapes: sizes to fix, by input; a None stays as free or as fixed as it is in the model.

        Raises:
            EngineError: the library is missing, refuses the graph, or cannot grant an option. There is no switch to
                another engine, precision or kernel: the message says what to choose instead.
            InputError: ``shapes`` does not fit the model's inputs.
        """

    def demand(self) -> Availability:
        """Its availability, if it is available.

        Raises:
            EngineError: it is not; the message says why.
        """
        found = self.available()
        if not found.ok:
            raise EngineError(
                f"engine {self.name!r} is not available here",
                got=found.why,
                next="install it, or choose another engine by name; engines are never switched silently",
            )
        return found
