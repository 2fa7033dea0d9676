"""MXNet's entropy threshold search (``_contrib_calibrate_entropy``), at the cost of a scan instead of a square.

The definition (MXNet 1.6 to 1.9). A histogram has an odd number of bins around zero. Every window of ``2i + 1`` bins
around the middle is a candidate threshold: ``p`` is the window with the clipped counts added to its first and last
bin, ``q`` is the window (its first bin emptied) averaged over ``quantized_bins`` merged bins and spread back over the
non-zero ones. Both are smoothed (zeros get 1e-4, the rest pays for it) and normalised; the first smallest
Kullback-Leibler divergence Σ p ln(p/q) wins.

MXNet evaluates every window bin by bin in float32: a square number of steps, and the rounding of its running sums is as
large as the differences between good candidates (about 1e-5, with divergences near 1e-4), so that it *decides* the
winner. To return the same threshold for less:

1. **Screen** all candidates in float64 in one scan for each merge width m. With windows of B counts in n non-zero bins
   at every position, the divergence needs only sums of ``B ln(B/n)``, ``n ln(B/n)`` and ``n (n/B)^r`` over windows that
   lie m apart: prefix sums with stride m give them in O(1) a candidate. Smoothing enters as a power series in the
   smoothing mass, which is about 1e-4.
2. **Confirm** the best of them, in ascending order, by MXNet's own float32 steps in its own order (sequential sums,
   natural logarithm rounded to float32), until the screened divergence of the next one is out of reach of the rounding
   errors seen so far.

Source: the behaviour of MXNet 1.9.1, recorded in tests/quant/entropy_thresholds.json.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from requant.errors import CalibrationError, counted

Counts = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
F32Array = npt.NDArray[np.float32]
F32 = np.float32

EPSILON = F32(1e-4)
#: With a larger smoothing mass than this the series is not used: such windows hold a handful of non-zero bins only.
_SERIES_LIMIT = 0.05
_SERIES_ERROR = 1e-12
#: Candidates that are confirmed before the rounding errors seen are believed to be typical: some spread over all window
#: sizes, and the best screened ones.
_SPREAD_CONFIRMED, _BEST_CONFIRMED = 12, 16


class Threshold(NamedTuple):
    """The winner of a search: ``value`` is the upper edge of its window, ``divergence`` in nats."""

    value: float
    divergence: float


def _check(counts: Counts, edges: F64, quantized_bins: int) -> None:
    bins = len(counts)
    if counts.ndim != 1 or bins % 2 == 0 or bins < quantized_bins or quantized_bins < 3:
        raise CalibrationError(
            "the histogram does not fit the search",
            got=f"{counted(bins, 'bin')}, {counted(quantized_bins, 'quantized bin')}",
            expected="an odd number of bins, at least as many as quantized bins (3 or more)",
        )
    if edges.shape != (bins + 1,):
        raise CalibrationError(
            "histogram edges do not fit",
            got=counted(edges.shape[0], "edge"),
            expected=counted(bins + 1, "edge"),
        )
    if counts.min() < 0:
        raise CalibrationError("a histogram has negative counts", got=int(counts.min()))


def find_threshold(
    counts: npt.ArrayLike,
    edges: npt.ArrayLike,
    quantized_bins: int = 255,
    *,
    rounding: Literal["float32", "float64"] = "float32",
) -> Threshold:
    """The threshold that MXNet's ``calibrate_entropy`` returns for a histogram.

    Args:
        counts: int64 (or whole floats), shape (bins,), an odd number, symmetric around zero.
        edges: shape (bins + 1,), ascending.
        quantized_bins: 255 for int8; MXNet uses 511 when non-negative data goes to uint8.
        rounding: ``float32`` reproduces MXNet's rounding and so its choice; ``float64`` evaluates the same definition
            without it (the two differ where candidates are nearly equal).

    Returns:
        Threshold and divergence. If no window is valid (too few non-zero bins), the smallest window with divergence
        ``inf`` (MXNet says FLT_MAX).

    Raises:
        CalibrationError: the sizes do not fit, or a count is negative.
    """
    exact = np.ascontiguousarray(np.asarray(counts).astype(np.int64))
    edge64 = np.asarray(edges, np.float64)
    _check(exact, edge64, quantized_bins)
    middle = len(exact) // 2
    half = np.arange(quantized_bins // 2, middle + 1, dtype=np.int64)
    # MXNet's operator takes float32 counts: from 2^24 on they are rounded before the search begins.
    if rounding == "float32":
        steps = _Float32Steps(exact.astype(np.float32), half, quantized_bins)
        best, divergence = _search(steps, _screen(steps.counts, half, quantized_bins))
    else:
        screened = _screen(exact, half, quantized_bins)
        best = int(np.argmin(screened))
        divergence = float(screened[best])
    if not np.isfinite(divergence):
        best, divergence = 0, float("inf")
    return Threshold(float(F32(edge64[middle + int(half[best]) + 1])), divergence)


def _search(steps: _Float32Steps, screened: F64) -> tuple[int, float]:
    """Confirm candidates in ascending order of screened divergence until the rest cannot win.

    The errors of MXNet's float32 sums are measured on the way. They depend on the window, so the sample that they are
    judged by holds windows of all sizes; a candidate is out of reach when an error half a spread beyond the most
    favourable one seen would still not let it win.
    """
    valid = np.flatnonzero(screened < np.inf)
    if not len(valid):
        return 0, float("inf")
    if steps.nothing_but_zeros:  # p equals q in every window: divergence 0, the first window wins
        return int(valid[0]), 0.0
    order = valid[np.argsort(screened[valid], kind="stable")]
    sample = valid[np.linspace(0, len(valid) - 1, _SPREAD_CONFIRMED).astype(np.int64)]
    confirmed: dict[int, float] = {}
    low = high = 0.0
    lowest = float("inf")
    for rank, candidate in enumerate([*sample.tolist(), *order.tolist()]):
        guess = float(screened[candidate])
        out_of_reach = guess + low - 0.5 * (high - low) > lowest
        if rank >= _SPREAD_CONFIRMED + _BEST_CONFIRMED and out_of_reach:
            break
        if candidate in confirmed:
            continue
        found = confirmed[candidate] = steps.divergence(candidate)
        lowest = min(lowest, found)
        if np.isfinite(guess) and np.isfinite(found):
            low, high = min(low, found - guess), max(high, found - guess)
    best = min(confirmed, key=lambda candidate: (confirmed[candidate], candidate))
    return best, lowest


def _smoothing(zeros: int, nonzeros: int) -> np.float32 | None:
    """What every non-zero bin pays, in MXNet's float32 steps; None if the distribution is malformed."""
    if nonzeros == 0:
        return None
    pays = F32(F32(EPSILON * F32(zeros)) / F32(nonzeros))
    return None if pays >= 1.0 else pays


def _sequential(values: F32Array, begin: np.float32 | None = None) -> np.float32:
    """The float32 sum of ``values`` in order, rounded after each addition (numpy's ``sum`` adds pairwise)."""
    if begin is None:
        return F32(np.add.accumulate(values)[-1])
    values = values.copy()
    values[0] += begin
    return F32(np.add.accumulate(values)[-1])


class _Float32Steps:
    """MXNet's own evaluation of single candidates: its float32 steps, in its order."""

    def __init__(self, hist: F32Array, half: Counts, quantized_bins: int) -> None:
        self.hist, self.half, self.quantized_bins = hist, half, quantized_bins
        self.counts = hist.astype(np.int64)
        self.left = np.add.accumulate(hist)  # MXNet adds the clipped counts one by one from the left
        self.right = _prefix(self.counts)
        self.sums_are_exact = int(self.right[-1]) < 2**24
        self.nothing_but_zeros = self.counts[len(hist) // 2] == self.right[-1]
        self.first_nonzero = int(np.argmax(hist != 0))
        self.epsilons = np.add.accumulate(np.full(len(hist), EPSILON))

    def _ends(self, a: int, b: int) -> tuple[np.float32, np.float32]:
        if self.sums_are_exact:
            return self.left[a], F32(self.right[-1] - self.right[b - 1])
        return self.left[a], _sequential(self.hist[b - 1 :])

    def divergence(self, candidate: int) -> float:
        """The divergence of one window; inf if it is malformed."""
        middle, half = len(self.hist) // 2, int(self.half[candidate])
        a, b = middle - half, middle + half + 1
        length, width = b - a, (b - a) // self.quantized_bins
        # Merged bins that are empty from the left on (half of all, behind ReLU) hold EPSILON in p and q.
        skipped = min(max(self.first_nonzero - a, 0) // width, self.quantized_bins - 1)
        bins, lead = self.quantized_bins - skipped, skipped * width
        a += lead
        split = bins * width
        starts = np.arange(0, split, width)
        spread = np.full(bins, width)
        spread[-1] += b - a - split

        # The counts of each merged bin, without the window's first one, over its non-zero bins.
        merged = self.counts[a:b].copy()
        if not lead:
            merged[0] = 0
        held = np.add.reduceat(merged[:split], starts).astype(np.float32)
        held[-1] += F32(merged[split:].sum())
        occupied = np.add.reduceat(merged != 0, starts, dtype=np.int64).astype(np.float32)
        average = np.divide(held, occupied, out=np.zeros_like(held), where=occupied > 0)

        p = self.hist[a:b].copy()
        first, p[-1] = self._ends(a, b)
        if not lead:
            p[0] = first
        empty = np.flatnonzero(p == 0)
        pays_p = _smoothing(lead + len(empty), b - a - len(empty))
        no_level = np.repeat(average == 0, spread)
        no_level[empty] = True
        zeros_q = lead + int(np.count_nonzero(no_level))
        pays_q = _smoothing(zeros_q, length - zeros_q)
        if pays_p is None or pays_q is None:
            return float("inf")
        p -= pays_p
        p[empty] = EPSILON
        q = np.repeat(np.where(average == 0, EPSILON, average - pays_q), spread)
        q[empty] = EPSILON
        begin = self.epsilons[lead - 1] if lead else None
        sum_p, sum_q = _sequential(p, begin), _sequential(q, begin)
        p /= sum_p
        q /= sum_q
        terms = p * np.log((p / q).astype(np.float64)).astype(np.float32)
        if lead:
            empty_p, empty_q = EPSILON / sum_p, EPSILON / sum_q
            term = empty_p * F32(np.log(np.float64(empty_p / empty_q)))
            return float(_sequential(terms, _sequential(np.full(lead, term, np.float32))))
        return float(_sequential(terms))


# --- screening in float64 -------------------------------------------------------------------------------------------


def _prefix(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    out = np.zeros(len(values) + 1, values.dtype)
    np.cumsum(values, out=out[1:])
    return out


def _spread_sums(hist: Counts, total: Counts, held: Counts, m: int, orders: int) -> list[F64]:
    """For merge width m: stride-m prefix sums of the terms of every window of m bins.

    With B counts in n non-zero bins and v = B/n, the terms are ``B ln v``, ``n ln v`` and ``n / v^r``, r = 1..orders.
    ``result[k + j*m] - result[k]`` then sums the windows that start at k + m, k + 2m, ... k + j*m.
    """
    bins = len(hist)
    counts = (total[m:] - total[:-m]).astype(np.float64)
    nonzero = (held[m:] - held[:-m]).astype(np.float64)
    inverse = np.divide(
        nonzero, counts, out=np.ones_like(counts), where=counts > 0
    )  # 1/v; an empty window adds nothing
    logarithm = -np.log(inverse)
    rows = -(-bins // m)
    terms = [counts * logarithm, nonzero * logarithm]
    power = nonzero
    for _ in range(orders):
        power = power * inverse
        terms.append(power)
    sums: list[F64] = []
    for term in terms:
        padded = np.zeros(rows * m)
        padded[: len(term)] = term
        sums.append(np.cumsum(padded.reshape(rows, m), axis=0).ravel())
    return sums


def _screen(hist: Counts, half: Counts, quantized_bins: int) -> F64:
    """The divergence of every candidate in float64; inf where malformed."""
    bins, middle = len(hist), len(hist) // 2
    eps = float(EPSILON)
    total = _prefix(hist)
    held = _prefix((hist != 0).astype(np.int64))
    a, b = middle - half, middle + half + 1
    length = b - a
    width = length // quantized_bins
    tail = a + (quantized_bins - 1) * width  # where the last merged bin starts; it takes the remainder too

    # What stands at the two ends: all that is clipped there.
    first, last = total[a + 1].astype(np.float64), (total[bins] - total[b - 1]).astype(np.float64)
    has_first, has_last = first > 0, last > 0
    edge = hist[b - 1]
    nonzero_p = held[b - 1] - held[a + 1] + has_first + has_last

    # The first merged bin lacks its first element, the last one may have clipped counts on an empty bin.
    first_counts, first_held = total[a + width] - total[a + 1], held[a + width] - held[a + 1]
    last_counts, last_held = total[b] - total[tail], held[b] - held[tail]
    first_spread = np.where(first_held > 0, first_held + has_first, 0)
    last_spread = np.where(last_held > 0, last_held + (has_last & (edge == 0)), 0)
    nonzero_q = held[tail] - held[a + width] + first_spread + last_spread
    first_level = first_counts / np.maximum(first_held, 1)
    last_level = last_counts / np.maximum(last_held, 1)

    with np.errstate(divide="ignore", invalid="ignore"):
        pays_p = eps * (length - nonzero_p) / nonzero_p
        pays_q = eps * (length - nonzero_q) / nonzero_q
    valid = (nonzero_q > 0) & (nonzero_p > 0) & (pays_q < 1.0) & (pays_p < 1.0)
    if not valid.any():
        return np.full(len(half), np.inf)
    pays_p, pays_q = np.where(valid, pays_p, 0.0), np.where(valid, pays_q, 0.0)
    sparse = np.maximum(pays_p, pays_q) > _SERIES_LIMIT
    series = valid & ~sparse

    own, cross = np.zeros(len(half)), np.zeros(len(half))
    if sparse.any():
        own[sparse], cross[sparse] = _sparse_terms(
            hist, total, held, a[sparse], b[sparse], quantized_bins, pays_p[sparse], pays_q[sparse]
        )
    if series.any():
        orders = 1
        while max(pays_p[series].max(), pays_q[series].max()) ** (orders + 1) > _SERIES_ERROR:
            orders += 1
        own[series] = _self_term(hist, a[series], b[series], pays_p[series], orders)
    for m in np.unique(width[series]):
        at = series & (width == m)
        start, stop = a[at], a[at] + (quantized_bins - 2) * m
        sums = [s[stop] - s[start] for s in _spread_sums(hist, total, held, int(m), orders)]
        weighted, plain, powers = sums[0], sums[1], sums[2:]
        below = (held[stop + m] - held[start + m]).astype(np.float64)  # sum of n / v^0
        p_at, q_at = pays_p[at], pays_q[at]
        value = weighted - p_at * plain
        for r, power in enumerate(powers, start=1):
            value -= q_at**r / r * (below - p_at * power)
            below = power
        cross[at] = value

    with np.errstate(divide="ignore", invalid="ignore"):
        first_left = np.where(has_first, first - pays_p, 0.0)
        last_left = np.where(has_last, last - pays_p, 0.0)
        own += _x_log_x(first_left) + _x_log_x(last_left)
        in_first = first_left + first_counts - pays_p * first_held
        in_last = last_left + (last_counts - edge) - pays_p * (last_held - (edge > 0))
        cross += np.where(first_held > 0, in_first * np.log(first_level - pays_q), first_left * np.log(eps))
        cross += np.where(last_held > 0, in_last * np.log(last_level - pays_q), last_left * np.log(eps))
        mass_q = total[tail] - total[a + width] + first_level * first_spread + last_level * last_spread
        divergence = (own - cross) / total[bins] + np.log(mass_q / total[bins])
    return np.where(valid, divergence, np.inf)


def _sparse_terms(
    hist: Counts, total: Counts, held: Counts, a: Counts, b: Counts, quantized_bins: int, pays_p: F64, pays_q: F64
) -> tuple[F64, F64]:
    """Own term of the inside and cross term of the middle merged bins, for windows with a handful of non-zero bins."""
    positions = np.flatnonzero(hist)
    positions = positions[(positions > a.min()) & (positions < b.max() - 1)]
    counts = hist[positions].astype(np.float64)
    a, b = a[:, None], b[:, None]
    width = (b - a) // quantized_bins
    inside = (positions > a) & (positions < b - 1)
    bin_of = np.clip((positions - a) // width, 0, quantized_bins - 1)
    middle = inside & (bin_of > 0) & (bin_of < quantized_bins - 1)
    start = np.where(middle, a + bin_of * width, 0)
    stop = np.where(middle, start + width, 1)
    level = (total[stop] - total[start]) / np.maximum(held[stop] - held[start], 1)
    left = np.where(inside, counts - pays_p[:, None], 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        cross = np.where(middle, left * np.log(level - pays_q[:, None]), 0.0)
    return _x_log_x(left).sum(axis=1), cross.sum(axis=1)


def _x_log_x(x: F64) -> F64:
    return np.where(x > 0, x * np.log(np.maximum(x, np.finfo(np.float64).tiny)), 0.0)


def _self_term(hist: Counts, a: Counts, b: Counts, pays: F64, orders: int) -> F64:
    """Σ (h - e) ln(h - e) over the non-zero bins inside each window, ends excluded, as a series in e."""
    occupied = hist > 0
    x = np.where(occupied, hist, 1).astype(np.float64)
    logarithm = np.log(x)

    def inside(values: F64) -> F64:
        sums = _prefix(np.where(occupied, values, 0.0))
        return np.asarray(sums[b - 1] - sums[a + 1], np.float64)

    value = inside(x * logarithm) - pays * inside(logarithm + 1.0)
    power = np.ones_like(x)
    for k in range(2, orders + 2):
        power = power / x
        value += pays**k / (k * (k - 1)) * inside(power)
    return value
