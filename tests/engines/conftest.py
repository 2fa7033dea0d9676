"""Every engine that `requant.engines` finds, and a session of each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from engine_graphs import OPTIONS, conv_relu

from requant import engines
from requant.engines import Engine, Session


@pytest.fixture(params=engines.names())
def engine(request: pytest.FixtureRequest) -> Engine:
    found = engines.get(request.param)
    if not found.available().ok:
        pytest.skip(str(found.available().why))
    return found


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    with engine.load(conv_relu(), OPTIONS) as loaded:
        yield loaded
