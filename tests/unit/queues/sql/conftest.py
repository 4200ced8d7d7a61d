"""Fixtures of the tests on both SQL databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.queues.database import Database, connect
from headgate.testing import ManualClock


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def pair(
    request: pytest.FixtureRequest, tmp_path: Path, manual_clock: ManualClock
) -> Iterator[tuple[Database, Database]]:
    """Two connections, each with a catalog of its own."""
    url, schema = f"sqlite:///{tmp_path}/q.db", None
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
        schema = request.getfixturevalue("postgres_schema")
    with (
        connect(url, schema=schema, clock=manual_clock.clock) as one,
        connect(url, schema=schema, clock=manual_clock.clock) as two,
    ):
        yield one, two
