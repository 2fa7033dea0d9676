"""``mx.init``: first values of parameters. For networks that are only measured, or filled from elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from requant.errors import InputError, ShapeError, nearest
from requant.mx.ndarray.ndarray import NDArray
from requant.mx.random import generator


class InitDesc(str):
    """A parameter's name, with its attributes.

    Attributes:
        attrs: the variable's attributes; ``__init__`` among them names its own initializer.
        global_init: the initializer of the whole network.
    """

    attrs: dict[str, str]
    global_init: Initializer | None

    def __new__(
        cls, name: str, attrs: Mapping[str, str] | None = None, global_init: Initializer | None = None
    ) -> InitDesc:
        made = super().__new__(cls, name)
        made.attrs, made.global_init = dict(attrs or {}), global_init
        return made


class Initializer:
    """Base of initializers: biases, betas and means become 0, gammas and variances 1, weights as the subclass says."""

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = kwargs

    def dumps(self) -> str:
        """As it stands in symbol files: ``["xavier", {...}]``."""
        return json.dumps([type(self).__name__.lower(), self._kwargs])

    def __call__(self, desc: str, arr: NDArray) -> None:
        """Fill an array by its parameter's name.

        Raises:
            InputError: the name does not say what it is.
        """
        own = getattr(desc, "attrs", {}).get("__init__")
        if own:
            made = create(own)
            if isinstance(made, Initializer):
                made._init_weight(desc, arr)
            else:
                made(str(desc), arr)
            return
        for endings, value in (
            (("weight",), None),
            (("bias", "beta", "moving_mean", "running_mean", "min", "moving_inv_var", "moving_avg"), 0.0),
            (("gamma", "moving_var", "running_var", "max"), 1.0),
        ):
            if desc.endswith(endings):
                if value is None:
                    self._init_weight(desc, arr)
                else:
                    arr[:] = value
                return
        raise InputError(
            "the name does not say how to fill the array",
            where=repr(str(desc)),
            expected="a name that ends in weight, bias, gamma, beta, moving_mean or moving_var",
            next="sym.var(name, init=mx.init.Zero())",
        )

    def _init_weight(self, name: str, arr: NDArray) -> None:
        """Fill a weight, by name: what initializers of users override, as in MXNet."""
        self._fill(arr)

    def _fill(self, arr: NDArray) -> None:
        """Fill a weight."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, Initializer) and self._kwargs == other._kwargs

    def __hash__(self) -> int:
        return hash(self.dumps())


class Zero(Initializer):
    """All 0."""

    def _fill(self, arr: NDArray) -> None:
        arr[:] = 0


class One(Initializer):
    """All 1."""

    def _fill(self, arr: NDArray) -> None:
        arr[:] = 1


class Constant(Initializer):
    """All ``value``."""

    def __init__(self, value: Any = 0.0) -> None:
        super().__init__(value=value.asnumpy().tolist() if isinstance(value, NDArray) else value)
        self.value = value

    def _fill(self, arr: NDArray) -> None:
        arr[:] = self.value


class Uniform(Initializer):
    """Uniform over [-scale, scale]."""

    def __init__(self, scale: float = 0.07) -> None:
        super().__init__(scale=scale)
        self.scale = scale

    def _fill(self, arr: NDArray) -> None:
        arr[:] = generator().uniform(-self.scale, self.scale, arr.shape)


class Normal(Initializer):
    """Normal with standard deviation ``sigma``."""

    def __init__(self, sigma: float = 0.01) -> None:
        super().__init__(sigma=sigma)
        self.sigma = sigma

    def _fill(self, arr: NDArray) -> None:
        arr[:] = generator().normal(0, self.sigma, arr.shape)


class Xavier(Initializer):
    """Keeps the scale of activations: magnitude over the number of inputs, outputs, or their mean (Glorot 2010).

    Args:
        rnd_type: ``uniform`` or ``gaussian``. factor_type: ``avg``, ``in`` or ``out``. magnitude: scale.
    """

    def __init__(self, rnd_type: str = "uniform", factor_type: str = "avg", magnitude: float = 3) -> None:
        for what, value, options in (
            ("rnd_type", rnd_type, ("uniform", "gaussian")),
            ("factor_type", factor_type, ("avg", "in", "out")),
        ):
            if value not in options:
                raise InputError(f"unknown {what}", got=value, expected=" or ".join(options))
        super().__init__(rnd_type=rnd_type, factor_type=factor_type, magnitude=magnitude)
        self.rnd_type, self.factor_type, self.magnitude = rnd_type, factor_type, float(magnitude)

    def _fill(self, arr: NDArray) -> None:
        if arr.ndim < 2:
            raise ShapeError("Xavier needs a weight of 2 or more dimensions", got=arr.shape)
        area = int(np.prod(arr.shape[2:]))
        fan_in, fan_out = arr.shape[1] * area, arr.shape[0] * area
        factor = {"avg": (fan_in + fan_out) / 2, "in": fan_in, "out": fan_out}[self.factor_type]
        scale = np.sqrt(self.magnitude / factor)
        random = generator()
        arr[:] = (
            random.uniform(-scale, scale, arr.shape)
            if self.rnd_type == "uniform"
            else random.normal(0, scale, arr.shape)
        )


class MSRAPrelu(Xavier):
    """Xavier for networks of rectifiers of that slope (He 2015)."""

    def __init__(self, factor_type: str = "avg", slope: float = 0.25) -> None:
        super().__init__("gaussian", factor_type, 2.0 / (1 + slope**2))
        self._kwargs = {"factor_type": factor_type, "slope": slope}


class Bilinear(Initializer):
    """Weights of a transposed convolution that interpolates."""

    def _fill(self, arr: NDArray) -> None:
        half = np.ceil(arr.shape[3] / 2.0)
        center = (2 * half - 1 - half % 2) / (2.0 * half)
        across = 1 - np.abs(np.arange(arr.shape[3]) / half - center)
        down = 1 - np.abs(np.arange(arr.shape[2]) / half - center)
        arr[:] = np.broadcast_to(np.outer(down, across), arr.shape)


class LSTMBias(Initializer):
    """Biases of an LSTM: 0, and ``forget_bias`` for the forget gate, the second of four equal parts."""

    def __init__(self, forget_bias: float = 1.0) -> None:
        super().__init__(forget_bias=forget_bias)
        self.forget_bias = forget_bias

    def _fill(self, arr: NDArray) -> None:
        size = arr.shape[0] // 4
        made = np.zeros(arr.shape, np.float32)
        made[size : 2 * size] = self.forget_bias
        arr[:] = made


class Orthogonal(Initializer):
    """Rows or columns that are orthogonal (Saxe 2013), times ``scale``.

    Args:
        scale: length of each. rand_type: ``uniform`` or ``normal``, what the matrix is decomposed from.
    """

    def __init__(self, scale: float = 1.414, rand_type: str = "uniform") -> None:
        super().__init__(scale=scale, rand_type=rand_type)
        self.scale, self.rand_type = scale, rand_type

    def _fill(self, arr: NDArray) -> None:
        random, shape = generator(), (arr.shape[0], int(np.prod(arr.shape[1:])))
        drawn = random.uniform(-1, 1, shape) if self.rand_type == "uniform" else random.normal(0, 1, shape)
        u, _, v = np.linalg.svd(drawn, full_matrices=False)
        arr[:] = (self.scale * (u if u.shape == shape else v)).reshape(arr.shape)


class Mixed:
    """Several initializers: the first one whose pattern (a regular expression) matches the name's start fills it.

    Raises:
        InputError: not as many patterns as initializers.
    """

    def __init__(self, patterns: Sequence[str], initializers: Sequence[Initializer]) -> None:
        if len(patterns) != len(initializers):
            raise InputError("one initializer for each pattern", got=f"{len(patterns)} and {len(initializers)}")
        self.map = [(re.compile(p), i) for p, i in zip(patterns, initializers)]

    def __call__(self, name: str, arr: NDArray) -> None:
        """Fill an array.

        Raises:
            InputError: no pattern matches.
        """
        for pattern, initializer in self.map:
            if pattern.match(name):
                initializer(str(name), arr)  # without the attributes, which name this object as the one to fill it
                return
        raise InputError("no pattern matches", got=str(name), next='end the list with ".*"')


class Load:
    """Values of a file or dict by name (``arg:`` and ``aux:`` are left out); others by ``default_init``."""

    def __init__(
        self,
        param: str | Mapping[str, NDArray],
        default_init: Callable[[str, NDArray], None] | None = None,
        verbose: bool = False,
    ) -> None:
        from requant.mx.ndarray.saving import load

        found = load(param) if isinstance(param, str) else param
        if not isinstance(found, Mapping):
            raise InputError("the arrays have no names", got=str(param))
        self.param = {n[4:] if n.startswith(("arg:", "aux:")) else n: v for n, v in found.items()}
        self.default_init = default_init

    def __call__(self, name: str, arr: NDArray) -> None:
        """Fill an array.

        Raises:
            InputError: there is no value of that name, and no other way. ShapeError: it has another shape.
        """
        found = self.param.get(name)
        if found is not None:
            if found.shape != arr.shape:
                raise ShapeError("a loaded value has another shape", where=str(name), got=found.shape)
            arr[:] = found
        elif self.default_init is not None:
            self.default_init(name, arr)
        else:
            raise InputError("no value of that name was loaded", got=str(name), next=nearest(name, self.param))


_NAMES: dict[str, type[Initializer]] = {
    "zero": Zero,
    "zeros": Zero,
    "one": One,
    "ones": One,
    "constant": Constant,
    "uniform": Uniform,
    "normal": Normal,
    "xavier": Xavier,
    "msraprelu": MSRAPrelu,
    "bilinear": Bilinear,
    "lstmbias": LSTMBias,
    "orthogonal": Orthogonal,
}


def register(klass: type[Initializer]) -> type[Initializer]:
    """Make a class known by its name in lower case; a decorator."""
    _NAMES[klass.__name__.lower()] = klass
    return klass


def create(name: str | Initializer | Mixed | Load, **kwargs: Any) -> Initializer | Mixed | Load:
    """An initializer from its name, or from the text of ``dumps``; one that is made already is given back.

    Raises:
        InputError: there is none of that name.
    """
    if not isinstance(name, str):
        return name
    if name.startswith("["):
        try:
            name, kwargs = json.loads(name)
        except ValueError as fault:
            raise InputError("not the text of an initializer", got=name, expected='["xavier", {}]') from fault
    found = _NAMES.get(str(name).lower())
    if found is None:
        raise InputError("no initializer of that name", got=name, next=nearest(str(name), _NAMES))
    return found(**kwargs)
