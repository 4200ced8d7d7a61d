"""Databases of queues that Spark reads: each test has one of its own, on either engine."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.queues.database import Database, connect

ENGINES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/queues.db"
    found: str = request.getfixturevalue("postgres_url")
    return f"{found}&schema=s_{uuid.uuid4().hex[:12]}"


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    with connect(url) as connected:
        yield connected
