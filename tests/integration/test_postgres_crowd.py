"""A server that has as many clients waiting as it lets wait refuses the next one: over a Unix socket it does so at once."""

from __future__ import annotations

import asyncio
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headgate.queues.database_url import postgres_target
from headgate.queues.postgres.connection import (
    is_crowded,
    open_async_connection,
    open_connection,
)

pytestmark = pytest.mark.postgres
NAME = ".s.PGSQL.5432"


class Crowd:
    """A directory with a socket that accepts nobody, until `leave` puts the server's own in its place."""

    def __init__(self, place: Path, server: Path, open_files: ExitStack) -> None:
        self._door, self._server = place / NAME, server
        listener = open_files.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(self._door))
        listener.listen(0)
        while True:
            waiting = open_files.enter_context(socket.socket(socket.AF_UNIX))
            waiting.setblocking(False)
            try:
                waiting.connect(str(self._door))
            except BlockingIOError:
                return

    def leave(self) -> None:
        self._door.unlink(missing_ok=True)
        self._door.symlink_to(self._server)


@pytest.fixture
def url_and_crowd(postgres_url: str) -> Iterator[tuple[str, Crowd]]:
    info = conninfo_to_dict(postgres_url)
    if not str(info.get("host", "")).startswith("/"):
        pytest.skip("the server has no Unix socket")
    server = Path(str(info["host"])) / f".s.PGSQL.{info.get('port', 5432)}"
    with ExitStack() as open_files:
        place = open_files.enter_context(tempfile.TemporaryDirectory(prefix="hg"))
        url = f"postgresql://{info['user']}@/{info['dbname']}?host={place}&port=5432"
        yield url, Crowd(Path(place), server, open_files)


def test_a_refused_connection_is_tried_again(url_and_crowd, monkeypatch):
    url, crowd = url_and_crowd
    with pytest.raises(psycopg.OperationalError) as refused:
        psycopg.connect(make_conninfo(url))
    assert is_crowded(refused.value)
    monkeypatch.setattr(time, "sleep", lambda seconds: crowd.leave())
    with open_connection(postgres_target(url)) as connection:
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_a_refused_connection_is_tried_again_in_asyncio(url_and_crowd, monkeypatch):
    url, crowd = url_and_crowd

    async def pause(seconds: float) -> None:
        crowd.leave()

    async def ask() -> list[tuple[int]]:
        monkeypatch.setattr(asyncio, "sleep", pause)
        async with await open_async_connection(postgres_target(url)) as connection:
            return await (await connection.execute("SELECT 1")).fetchall()

    assert asyncio.run(ask()) == [(1,)]


def test_another_refusal_is_an_error_at_once(postgres_url, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("waited"))
    with pytest.raises(psycopg.OperationalError) as refused:
        psycopg.connect(make_conninfo(postgres_url, dbname="missing"))
    assert not is_crowded(refused.value)
