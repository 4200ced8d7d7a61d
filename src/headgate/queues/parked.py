"""Entries of an outbox that a relay could not move: kept there with the reason, until somebody says to try again."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from headgate.queues.arguments import message_ids
from headgate.queues.engine import Notify, Operation, Row, SqlValue
from headgate.queues.sql.dialect import Dialect

_log = logging.getLogger(__name__)

OUTBOX_QUEUE: Final = 0  # what relays are woken for
MOST_LISTED: Final = 10_000


class Parked(NamedTuple):
    """An entry that waits, and why."""

    id: int
    delivery_key: str
    queue: str
    topic: str
    problem: str


def log_parked(queue: str, count: int, problem: Exception) -> str:
    """Say that entries are kept; the reason."""
    _log.warning(
        "outbox: %d entries for %r are parked: %s; then try them again with Relay.retry() or "
        "`headgate queue outbox retry`",
        count,
        queue,
        problem,
    )
    return str(problem)


def list_parked(dialect: Dialect) -> Operation[list[Parked]]:
    """The entries that wait with a problem, oldest first."""
    rows = yield dialect.statement("outbox_parked", MOST_LISTED)
    return [parked_of(row) for row in rows]


def parked_of(row: Row) -> Parked:
    """From id, delivery key, queue, topic and problem; SQLite gives the texts as bytes."""
    id, delivery_key, queue, topic, problem = row
    return Parked(id, _shown(delivery_key), _shown(queue), _shown(topic), problem)


def _shown(text: str | bytes) -> str:
    return text if isinstance(text, str) else text.decode(errors="backslashreplace")


def retry_parked(dialect: Dialect, ids: Iterable[int] | None) -> Operation[int]:
    """Let relays try them again, those named or all; how many."""
    chosen: list[SqlValue] | None = None if ids is None else [*message_ids(ids)]
    rows = yield dialect.statement("outbox_retry", chosen)
    yield Notify((OUTBOX_QUEUE,))
    return len(rows)


@contextmanager
def only_relay_of(file: Path) -> Iterator[bool]:
    """Whether nobody else moves entries out of that file meanwhile; the next one may when this process has ended.

    A file beside it is locked, not the database: its writers go on, and SQLite's own locks stay as they are.
    """
    real = file.resolve()
    fd = os.open(real.with_name(f".headgate-relay.{real.name}"), os.O_RDWR | os.O_CREAT, 0o644)
    is_ours = False
    try:
        with suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = True
        yield is_ours
    finally:
        if (
            is_ours
        ):  # said, not left to closing: a child that was forked meanwhile has the file open as well
            fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)
