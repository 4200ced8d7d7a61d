# Generated from headgate/queues/aio/outbox.py by tools/generate_sync.py: do not edit, run `make generate`.
"""The transactional outbox: publish inside the caller's own transaction, with it or not at all.

    with psycopg.Connection.connect(…) as connection:
        connection.execute("UPDATE account …")
        db.outbox(connection).publish("orders", b"…", headers={"type": "created"})

Both are committed together. A relay moves what was committed into the queues: `with db.relay(): …`. Entries that
cannot be moved are parked: `relay.parked()` lists them, `relay.retry()` has them tried again. `headgate.queues.outbox_table`
describes the table of the entries, and what a relay guarantees.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Unpack

from headgate.errors import DatabaseClosed, QueueError, QueueNotFound, QueueOptionsError
from headgate.message import HeaderValue, Message, MessageDetails
from headgate.queues import arguments
from headgate.queues.engine import Engine
from headgate.queues.ledger import RECONNECT_S
from headgate.queues.outbox_file import OutboxFile
from headgate.queues.outbox_table import (
    OUTBOX_QUEUE,
    OutboxEntry,
    ParkedEntry,
    count_waiting,
    entry_values,
    group_by_queue,
    inserter,
    list_parked,
    log_parked,
    move_entries,
    require_outbox,
    retry_parked,
    with_delivery_key,
)
from headgate.queues.sql.publish import check_is_queue
from headgate.queues.threads import Event, Worker, call, join_all, run_blocking, setter

_log = logging.getLogger(__name__)

BATCH: Final = 500  # entries moved at a time


class Outbox:
    """Publishes through one connection of the caller's; its entries commit or roll back with the caller's transaction."""

    def __init__(self, engine: Engine, connection: Any) -> None:
        self._insert = inserter(engine, connection)

    def publish(
        self,
        queue: str,
        payload: bytes | Message,
        *,
        topic: str | None = None,
        headers: Mapping[str, HeaderValue] | None = None,
        priority: int = 0,
        delay: timedelta | None = None,
        dedup_key: str | None = None,
        group: str | None = None,
        **fields: Unpack[MessageDetails],
    ) -> str:
        """Insert a message that is published to the queue of that name once the caller commits; return its delivery key."""
        publication = arguments.publication(
            payload,
            topic=topic,
            headers=headers,
            priority=priority,
            delay=delay,
            dedup_key=dedup_key,
            group=group,
            default_topic=queue,
            fields=fields,
        )
        values = entry_values(queue, publication)
        call(self._insert, values)
        delivery_key: str = values[0]
        return delivery_key


class Relay:
    """Moves committed entries into the queues while it is open: `with db.relay(): …`.

    Several relays may run; none moves what another is moving.
    """

    def __init__(
        self,
        source: TableSource | FileSource,
        *,
        poll: timedelta = timedelta(seconds=5),
    ) -> None:
        self._source, self._poll_s = source, arguments.check_poll(poll).total_seconds()
        self._woken, self._stopping = Event(), Event()
        self._worker: Worker | None = None

    def run_once(self) -> int:
        """Move everything that is committed now; return the number of entries, parked ones included."""
        moved = 0
        while read := self._source.move_some():
            moved += read
        return moved

    def parked(self) -> list[ParkedEntry]:
        """Return the entries that could not be moved, and why: for example there is no such queue."""
        return self._source.parked()

    def waiting(self) -> int:
        """Return the number of committed entries that no relay has moved yet; at most 10,000 are counted."""
        return self._source.waiting()

    def retry(self, ids: Iterable[int] | None = None) -> int:
        """Let relays try parked entries again, those with these ids or all; return their number."""
        return self._source.retry(ids)

    def start(self) -> Relay:
        if self._worker is not None:
            raise QueueOptionsError("a relay is started once; make another one")
        self._unwatch = self._source.watch(setter(self._woken))
        self._worker = Worker(self._run, name="headgate-relay")
        self._worker.start()
        return self

    def close(self) -> None:
        self._stopping.set()
        self._woken.set()
        if self._worker is not None:
            join_all([self._worker])
            run_blocking(self._unwatch)

    def __enter__(self) -> Relay:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self) -> None:
        pause = RECONNECT_S[0]
        while not self._stopping.is_set():
            self._woken.clear()
            try:
                self.run_once()
                pause = RECONNECT_S[0]
                if not self._stopping.is_set():
                    self._woken.wait(self._poll_s)
            except DatabaseClosed:
                return
            except Exception as problem:  # only closing may end a relay
                expected = isinstance(problem, QueueError)
                _log.warning("relay of the outbox: %s; retrying", problem, exc_info=not expected)
                self._stopping.wait(pause)
                pause = min(pause * 2, RECONNECT_S[1])


class TableSource:
    """The outbox in the database of the queues: an entry is moved in one transaction."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._operations = engine, require_outbox(engine.operations)

    def move_some(self) -> int:
        """Move some of the oldest entries; return how many were read, parked ones included."""
        return self._engine.run(move_entries(self._operations, BATCH))

    def parked(self) -> list[ParkedEntry]:
        return self._engine.run(list_parked(self._operations.dialect))

    def waiting(self) -> int:
        return self._engine.run(count_waiting(self._operations.dialect))

    def retry(self, ids: Iterable[int] | None) -> int:
        return self._engine.run(retry_parked(self._operations.dialect, ids))

    def watch(self, wake: Callable[[], object]) -> Callable[[], None]:
        """Call `wake`, from any thread, after commits, until the returned function is called."""

        def wake_for_outbox(queues: frozenset[int] | None) -> None:
            if queues is None or OUTBOX_QUEUE in queues:
                wake()

        return self._engine.watch(wake_for_outbox).close


class FileSource:
    """The outbox in an application's own SQLite file.

    Entries are published, then deleted; those that a killed relay left in between are recognized by a dedup key.
    """

    def __init__(self, path: Path | str, engine: Engine) -> None:
        self._file, self._engine, self._operations = OutboxFile(path), engine, engine.operations
        self.watch = self._file.watch

    def move_some(self) -> int:
        """Move some of the oldest entries; return how many were read, parked ones included. 0 while another relay moves them."""
        with self._file.lock() as is_locked:
            return self._move_some() if is_locked else 0

    def parked(self) -> list[ParkedEntry]:
        return run_blocking(self._file.parked)

    def waiting(self) -> int:
        return run_blocking(self._file.count_waiting)

    def retry(self, ids: Iterable[int] | None) -> int:
        return run_blocking(self._file.retry, ids)

    def _move_some(self) -> int:
        entries, unreadable = run_blocking(self._file.read, BATCH)
        for name, group in group_by_queue(entries):
            self._move(name, group)
        return len(entries) + len(unreadable)

    def _move(self, queue: str, entries: Sequence[OutboxEntry]) -> None:
        try:
            info = self._engine.run(self._operations.find(queue))
            check_is_queue(info)
        except (QueueNotFound, QueueOptionsError) as problem:
            reason = log_parked(queue, len(entries), problem)
            run_blocking(self._file.park, entries, reason)
            return
        publications = [with_delivery_key(entry) for entry in entries]
        self._engine.run(self._operations.publish(info, publications))
        run_blocking(self._file.delete, entries)
