"""A broker in a process of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.served import Served


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    running = Served(tmp_path / "data")
    yield running
    running.kill()
