"""The helpers of `headgate.testing` as pytest fixtures: `pytest_plugins = ["headgate.testing.fixtures"]`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headgate.testing import ManualClock, MessageFactory
from headgate.testing import memory_database as open_memory_database

if TYPE_CHECKING:
    from headgate.queues import Database
    from headgate.streams import Stream
    from headgate.testing import Broker


@pytest.fixture
def manual_clock() -> ManualClock:
    """A clock that stands still until the test advances it."""
    return ManualClock()


@pytest.fixture
def memory_database(manual_clock: ManualClock) -> Iterator[Database]:
    """An empty database in memory whose time is `manual_clock`."""
    with open_memory_database(manual_clock) as database:
        yield database


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A running broker that keeps everything in memory; `broker.url` is its address."""
    from headgate.testing import Broker

    with Broker() as running:
        yield running


@pytest.fixture
def message_factory() -> MessageFactory:
    """A factory of distinct messages."""
    return MessageFactory()


@pytest.fixture
def temporary_stream(tmp_path: Path) -> Iterator[Stream]:
    """An empty stream in a directory of this test."""
    from headgate.streams import Stream

    with Stream.create(tmp_path / "stream") as stream:
        yield stream
