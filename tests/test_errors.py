"""The parts of messages that many places share."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import requant
from requant.errors import counted, nearest, shown


@pytest.mark.parametrize(
    ("number", "words", "said"),
    [
        (1, ("sample",), "1 sample"),
        (0, ("sample",), "0 samples"),
        (2, ("sample",), "2 samples"),
        (1, ("batch", "batches"), "1 batch"),
        (3, ("batch", "batches"), "3 batches"),
    ],
)
def test_counted(number: int, words: tuple[str, ...], said: str) -> None:
    assert counted(number, *words) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "None"),
        ("cat.jpg", "'cat.jpg'"),
        (np.zeros((2, 3)), "ndarray of shape (2, 3)"),
        ([np.zeros((2, 2))], "[array([[0., 0.], [0., 0.]])]"),
        ("x" * 100, "'" + "x" * 79 + "..."),
    ],
)
def test_shown(value: object, said: str) -> None:
    assert shown(value) == said


def test_nearest_takes_names_that_are_no_text() -> None:
    assert nearest(1, ["data", 2]) == "known names: 'data', '2'"


#: A number before a plural, written without ``counted``.
_PLURAL = re.compile(
    r"(?:%d|\{(?:len\([^{}]*\)|[a-z_.]*\b(?:samples|skipped|count|batches)\b)\}) (?:held-out )?"
    r"(?:samples|nodes|images|tensors|bytes|batches|files|arrays|inputs|scales|weights)\b"
)
#: What is never one, in MXNet's own words, or for those who work on requant itself.
_FITS = ("with batch_size=%d", "absurdly large", "<- ... (", "log.debug")


def test_no_message_says_1_samples() -> None:
    root = Path(requant.__file__).parent
    found = []
    for file in root.rglob("*.py"):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if _PLURAL.search(line) and not any(words in line for words in _FITS):
                found.append(f"{file.relative_to(root)}:{number}: {line.strip()}")
    assert not found
