"""A broker in a process of its own."""

from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from tests.served import Served


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    running = Served(tmp_path / "data")
    yield running
    running.kill()


@pytest.fixture
def connection(broker):
    """A connection of pika."""
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as made:
        yield made


@pytest.fixture
def channel(connection):
    """A channel of pika."""
    return connection.channel()
