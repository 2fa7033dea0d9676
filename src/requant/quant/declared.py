"""Whether values are what was declared of them: the usual mistakes in preprocessing."""

from __future__ import annotations

from requant.qmath import Range

#: Ratio of widths from which data are far from what was declared of them.
_FAR = 4.0


def compare_declared(tensor: str, seen: Range, declared: Range) -> str | None:
    """A sentence of warning if a tensor's values are far from what was declared of it, else None.

    The usual cause: an input that needs a mean and a scale was given raw, or was scaled twice.

    Args:
        tensor: its name, an input's usually.
        seen: the smallest and largest value.
        declared: the range that the preprocessing says: ``((0 - mean) / std, (255 - mean) / std)`` for images.
    """
    width, expected = seen.max - seen.min, declared.max - declared.min
    if width > _FAR * expected:
        cause = "were the values scaled at all?"
    elif width * _FAR < expected:
        cause = "were the values scaled twice?"
    elif seen.min >= 0 > declared.min and declared.min < -0.1 * expected:
        cause = "was the mean not subtracted?"
    else:
        return None
    return (
        f"{tensor}: calibration data lie in {seen.min:.4g}..{seen.max:.4g}, declared was "
        f"{declared.min:.4g}..{declared.max:.4g}; {cause}"
    )
