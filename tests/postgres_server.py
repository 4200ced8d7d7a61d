"""One private PostgreSQL server for the whole test run, from the package index."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headgate.check.postgres import private_server
from headgate.errors import ServerNotFound


@contextmanager
def running_server() -> Iterator[str]:
    """Its URL. Where no server can be had, the tests that need one fail; they are never skipped."""
    try:
        with private_server() as url:
            yield url
    except ServerNotFound as problem:
        pytest.fail(f"these tests need a PostgreSQL server: {problem}", pytrace=False)
