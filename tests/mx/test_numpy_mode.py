"""``mx.np`` and ``mx.npx`` import, answer questions, and say what they are not."""

from __future__ import annotations

import math

import numpy as np
import pytest

import requant.mx as mx
from requant.errors import UnsupportedError


def test_it_imports_under_mxnets_names() -> None:
    import requant.mx.numpy
    import requant.mx.numpy_extension

    assert mx.np is requant.mx.numpy and mx.npx is requant.mx.numpy_extension


@pytest.mark.parametrize(
    "use",
    [
        lambda: mx.np.array([1.0]),
        lambda: mx.np.random.uniform(size=(2,)),
        lambda: mx.np.linalg.norm(1),
        lambda: mx.np.ndarray((2,)),
        lambda: mx.npx.softmax(1),
        lambda: mx.npx.image.to_tensor(1),
        lambda: mx.npx.set_np(),
    ],
)
def test_use_says_why_not(use) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UnsupportedError, match=r"numpy mode(.|\n)*mx\.nd"):
        use()


def test_questions_have_answers() -> None:
    assert not mx.npx.is_np_array() and not mx.npx.is_np_shape() and not mx.is_np_array()
    assert not isinstance(mx.nd.ones((2,)), mx.np.ndarray)
    assert mx.np.float32 is np.float32 and mx.np.pi == math.pi
    assert mx.npx.cpu() == mx.cpu() and mx.npx.num_gpus() == 0
    mx.npx.reset_np()
    mx.npx.waitall()


def test_private_names_are_not_there() -> None:
    assert not hasattr(mx.np, "__all__") and not hasattr(mx.npx, "_internal")
    assert not hasattr(mx.np.random, "__len__")
