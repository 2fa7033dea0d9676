"""Round a weight so that the errors of its elements cancel over the data it will see.

Rounding each element to the nearest integer is best for each element, and not for their sum: the error of an output is
Σ δ_k x_k, with variance δᵀ C δ, where C is the covariance of the inputs. Neighbouring pixels and channels go together,
so C is far from diagonal, and what rounding one element up adds, rounding its neighbours down takes back. The
elements are rounded one after another, and the error of each is made up for, as far as C allows, by those that are
still free (Frantar et al. 2022, "GPTQ").
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

#: Added to the diagonal, as a share of its mean: keeps directions that the data hardly show from being used freely.
_DAMPING = 0.01
#: Columns between two updates of all that is to their right.
_STRIP = 32


def rounded(weight: npt.ArrayLike, covariance: npt.ArrayLike, largest: int = 127) -> npt.NDArray[np.float32]:
    """Integers near a weight whose errors cancel under a covariance.

    Args:
        weight: shape (blocks, rows, k), in units of its scale; rows are output channels.
        covariance: shape (blocks, k, k), of the inputs that each block multiplies; symmetric, not negative.
        largest: the integers lie in -largest..largest.

    Returns:
        Whole numbers as float32, of the shape of ``weight``. Where that is not better than the nearest integers (or the
        covariance is of no use), those.
    """
    wide = np.asarray(weight, np.float64)
    gram = np.asarray(covariance, np.float64)
    nearest = np.clip(np.rint(wide), -largest, largest)
    # The elements with the largest variance go first: their errors cost most, and many are left to make up for them.
    order = np.argsort(-np.diagonal(gram, axis1=1, axis2=2), axis=1, kind="stable")
    factors = _factors(np.take_along_axis(np.take_along_axis(gram, order[:, :, None], 1), order[:, None, :], 2))
    if factors is None or not wide.size:
        return nearest.astype(np.float32)
    left = np.take_along_axis(wide, order[:, None, :], 2)
    found = np.empty_like(left)
    width = left.shape[2]
    for start in range(0, width, _STRIP):
        stop = min(start + _STRIP, width)
        errors = np.empty((*left.shape[:2], stop - start))
        for k in range(start, stop):
            whole = np.clip(np.rint(left[:, :, k]), -largest, largest)
            found[:, :, k] = whole
            error = (left[:, :, k] - whole) / factors[:, k, k, None]
            errors[:, :, k - start] = error
            left[:, :, k + 1 : stop] -= error[:, :, None] * factors[:, None, k, k + 1 : stop]
        left[:, :, stop:] -= errors @ factors[:, start:stop, stop:]
    out = np.empty_like(found)
    np.put_along_axis(out, order[:, None, :], found, 2)
    better = cost(out - wide, gram) <= cost(nearest - wide, gram)
    return np.where(better[:, :, None], out, nearest).astype(np.float32)


def cost(error: F64, covariance: F64) -> F64:
    """The variance δᵀ C δ that errors of shape (blocks, rows, k) make in each output: shape (blocks, rows)."""
    return np.asarray(((error @ covariance) * error).sum(axis=2))


def _factors(gram: F64) -> F64 | None:
    """The upper Cholesky factor of the inverse of each damped covariance, or None if there is none."""
    if not np.isfinite(gram).all():
        return None
    size = gram.shape[-1]
    mean = np.maximum(np.trace(gram, axis1=1, axis2=2) / max(1, size), 0.0)
    if not mean.any():
        return None
    damped = gram + (_DAMPING * mean + 1e-12 * mean.max())[:, None, None] * np.eye(size)
    try:
        inverse = np.linalg.inv(damped)
        lower = np.linalg.cholesky(inverse)
    except np.linalg.LinAlgError:
        return None
    return np.ascontiguousarray(lower.transpose(0, 2, 1))
