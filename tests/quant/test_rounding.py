"""Weights rounded so that errors cancel: never worse than the nearest integers, and much better where inputs go
together."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from requant.quant.rounding import cost, rounded


def covariances(blocks: int, k: int, seed: int, rank: int) -> np.ndarray:
    x = np.random.default_rng(seed).standard_normal((blocks, rank, k))
    found: np.ndarray = x.transpose(0, 2, 1) @ x / rank
    return found


@settings(max_examples=40, deadline=None)
@given(
    blocks=st.integers(1, 3),
    rows=st.integers(1, 5),
    k=st.integers(1, 70),
    seed=st.integers(0, 999),
    rank=st.integers(1, 90),
    size=st.sampled_from([0.3, 3.0, 100.0, 300.0]),
)
def test_never_worse_than_the_nearest_integers(
    blocks: int, rows: int, k: int, seed: int, rank: int, size: float
) -> None:
    weight = np.random.default_rng(seed + 1).uniform(-size, size, (blocks, rows, k))
    gram = covariances(blocks, k, seed, rank)
    found = rounded(weight, gram)
    nearest = np.clip(np.rint(weight), -127, 127)
    assert found.shape == weight.shape
    assert np.array_equal(found, np.rint(found))
    assert np.abs(found).max() <= 127
    assert (cost(found - weight, gram) <= cost(nearest - weight, gram) * (1 + 1e-9) + 1e-9).all()


def test_errors_of_inputs_that_go_together_cancel() -> None:
    """Two hundred inputs that are one signal and a little noise: the sum of the errors is what counts."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4000, 1)) + 0.1 * rng.standard_normal((4000, 200))
    gram = (x.T @ x / len(x))[None]
    weight = rng.uniform(-50, 50, (1, 20, 200))
    nearest = np.rint(weight)
    assert cost(rounded(weight, gram) - weight, gram).mean() < 0.2 * cost(nearest - weight, gram).mean()


def test_independent_inputs_leave_the_nearest_integers() -> None:
    weight = np.random.default_rng(0).uniform(-50, 50, (2, 6, 30))
    gram = np.stack([np.diag(np.linspace(1, 4, 30))] * 2)
    assert np.array_equal(rounded(weight, gram), np.rint(weight))


@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf])
def test_a_covariance_of_no_use_leaves_the_nearest_integers(bad: float) -> None:
    weight = np.random.default_rng(0).uniform(-50, 50, (1, 3, 8))
    assert np.array_equal(rounded(weight, np.full((1, 8, 8), bad)), np.rint(weight))


def test_a_dead_input_does_not_disturb_the_others() -> None:
    gram = covariances(1, 12, 0, 50)
    gram[:, 5], gram[:, :, 5] = 0, 0
    weight = np.random.default_rng(1).uniform(-50, 50, (1, 4, 12))
    found = rounded(weight, gram)
    assert np.abs(found - weight).max() < 5
    assert (cost(found - weight, gram) <= cost(np.rint(weight) - weight, gram)).all()
