"""Facts that many tests need."""

from pathlib import Path

import pytest
from hypothesis import settings

# A loaded machine is slow, not wrong.
settings.register_profile("requant", deadline=None)
settings.load_profile("requant")

#: Trained models and data that lie beside a development checkout; never part of the project.
SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of trained models and data; tests that need it skip without it."""
    if not (SHARED / "models").is_dir():
        pytest.skip("needs the trained models beside a development checkout")
    return SHARED
