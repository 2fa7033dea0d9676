"""Training mode as far as it concerns computing forward: BatchNorm by the statistics of the batch."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import requant.mx as mx
from requant.errors import UnsupportedError


def data(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).normal(2, 3, shape).astype(np.float32)


def channels(*values: float) -> mx.nd.NDArray:
    return mx.nd.array(list(values))


@pytest.mark.parametrize("axis", [1, -1])
def test_batch_norm_takes_the_statistics_of_the_batch(axis: int) -> None:
    x = data(4, 3, 5, 3)
    moving = channels(7, 7, 7), channels(9, 9, 9)
    args = mx.nd.array(x), channels(1, 2, 3), channels(4, 5, 6), *moving
    with mx.autograd.train_mode():
        found = mx.nd.BatchNorm(*args, eps=1e-5, fix_gamma=False, axis=axis).asnumpy()
        fixed = mx.nd.BatchNorm(*args, eps=1e-5, fix_gamma=False, axis=axis, use_global_stats=True).asnumpy()
    over = tuple(d for d in range(4) if d != axis % 4)
    shape = [3 if d == axis % 4 else 1 for d in range(4)]
    gamma, beta = np.array([1, 2, 3]).reshape(shape), np.array([4, 5, 6]).reshape(shape)
    normal = (x - x.mean(over, keepdims=True)) / np.sqrt(x.var(over, keepdims=True) + 1e-5)
    np.testing.assert_allclose(found, normal * gamma + beta, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(fixed, (x - 7) / np.sqrt(9 + 1e-5) * gamma + beta, rtol=1e-4, atol=1e-4)
    assert moving[0].asnumpy().tolist() == [7, 7, 7]
    np.testing.assert_array_equal(  # and out of the block it is inference again
        mx.nd.BatchNorm(*args, eps=1e-5, fix_gamma=False, axis=axis).asnumpy(), fixed
    )


def test_what_is_random_is_refused() -> None:
    x = mx.nd.ones((2, 2))
    with mx.autograd.train_mode():
        assert mx.nd.Dropout(x, p=0).asnumpy().tolist() == [[1, 1], [1, 1]]
        with pytest.raises(UnsupportedError, match="random"):
            mx.nd.Dropout(x, p=0.5)
        with pytest.raises(UnsupportedError, match="random"):
            mx.nd.LeakyReLU(x, act_type="rrelu")
    assert mx.nd.Dropout(x, p=0.5).asnumpy().tolist() == [[1, 1], [1, 1]]


def test_the_mode_is_of_a_thread_and_nests() -> None:
    seen = []
    with mx.autograd.train_mode():
        thread = threading.Thread(target=lambda: seen.append(mx.autograd.is_training()))
        thread.start()
        thread.join()
        with mx.autograd.predict_mode():
            seen.append(mx.autograd.is_training())
        seen.append(mx.autograd.is_training())
    assert [*seen, mx.autograd.is_training()] == [False, False, True, False]
    assert mx.autograd.set_training(True) is False
    assert mx.autograd.set_training(False) is True


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_block_in_training_mode(hybrid: bool) -> None:
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.BatchNorm(in_channels=3, epsilon=1e-5))
    net.initialize()
    net.hybridize(hybrid)
    x = data(8, 3, 4)
    with mx.autograd.train_mode():
        found = net(mx.nd.array(x)).asnumpy()
    np.testing.assert_allclose(found.mean((0, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(net(mx.nd.array(x)).asnumpy(), x / np.sqrt(1 + 1e-5), rtol=1e-5)
