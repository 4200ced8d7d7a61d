"""Fixtures of the tests of writing."""

from pathlib import Path

import pytest

from headgate.streams import Stream


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The directory of an empty stream with small chunks."""
    Stream.create(tmp_path / "s", chunk_messages=10).close()
    return tmp_path / "s"
