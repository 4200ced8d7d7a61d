"""The engine that answers filters with SQLite."""

from __future__ import annotations

import pytest

from headgate.check.sql import open_sqlite
from tests.conformance.sql_engine import SqlEngineConformance
from tests.generate import NOW_US


@pytest.fixture(scope="module")
def new_engine():
    return lambda: open_sqlite(clock=lambda: NOW_US)


class TestSqliteEngine(SqlEngineConformance):
    pass
