"""The relay: moves what applications left in an outbox into the queues, as soon as they have committed."""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol

from headgate import file_watch as files
from headgate.errors import (
    DatabaseClosed,
    DatabaseUnavailable,
    QueueError,
    QueueNotFound,
    QueueOptionsError,
)
from headgate.queues.arguments import message_ids
from headgate.queues.consuming import RECONNECT_S
from headgate.queues.engine import Engine
from headgate.queues.outbox import (
    Entry,
    Unreadable,
    abroad,
    by_queue,
    entries_of,
    relay_within,
    with_outbox,
)
from headgate.queues.parked import (
    MOST_LISTED,
    OUTBOX_QUEUE,
    Parked,
    list_parked,
    log_parked,
    only_relay_of,
    parked_of,
    retry_parked,
)
from headgate.queues.sql.publish import check_is_queue
from headgate.queues.sql.records import columns_of
from headgate.queues.sql.statements import statements_of

_log = logging.getLogger(__name__)

BATCH: Final = 500  # entries moved at a time
_SETTLED_S: Final = 0.02  # a commit's bytes are written a moment before it counts


def warn_of_waiting(problem: Exception) -> None:
    """What is not expected is shown with its trace."""
    known = isinstance(problem, QueueError)
    _log.warning("the outbox waits: %s; trying again", problem, exc_info=not known)


class Outboxes(Protocol):
    """Where a relay reads."""

    def move_some(self) -> int:
        """Some of the oldest entries; how many were looked at."""
        ...

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Until the answer is called, `wake` after commits."""
        ...

    def parked(self) -> list[Parked]: ...

    def retry(self, ids: Iterable[int] | None) -> int: ...


class Relay:
    """Open, it moves: `with db.relay(): …`. Several may run; none moves what another is moving."""

    def __init__(self, source: Outboxes, *, poll: timedelta = timedelta(seconds=5)) -> None:
        self._source, self._poll_s = source, poll.total_seconds()
        self._woken, self._stopping = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def run_once(self) -> int:
        """Move everything that is committed now; how much."""
        moved = 0
        while looked_at := self._source.move_some():
            moved += looked_at
        return moved

    def parked(self) -> list[Parked]:
        """What could not be moved, and why: there is no such queue."""
        return self._source.parked()

    def retry(self, ids: Iterable[int] | None = None) -> int:
        """Let what is parked be moved again, those named or all; how many. A relay must run to do it."""
        return self._source.retry(ids)

    def start(self) -> Relay:
        if self._thread is not None:
            raise QueueOptionsError("a relay is started once; make another one")
        self._unwatch = self._source.watch(self._woken.set)
        self._thread = threading.Thread(target=self._run, name="headgate-relay", daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        self._stopping.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join()
            self._unwatch()

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
            except Exception as problem:  # nothing may end a relay but closing it
                warn_of_waiting(problem)
                self._stopping.wait(pause)
                pause = min(pause * 2, RECONNECT_S[1])


class OwnOutbox:
    """The outbox in the queues' own database: a message moves in one transaction."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._operations = engine, with_outbox(engine.operations)

    def move_some(self) -> int:
        return self._engine.run(relay_within(self._operations, BATCH))

    def parked(self) -> list[Parked]:
        return self._engine.run(list_parked(self._operations.dialect))

    def retry(self, ids: Iterable[int] | None) -> int:
        return self._engine.run(retry_parked(self._operations.dialect, ids))

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        def wake_for_outbox(queues: frozenset[int] | None) -> None:
            if queues is None or OUTBOX_QUEUE in queues:
                wake()

        return self._engine.watch(wake_for_outbox).close


class FileOutbox:
    """The outbox in an application's own SQLite file, read through the library the application uses."""

    def __init__(self, path: Path | str, target: Engine) -> None:
        self._path, self._target = Path(path), target
        self._statements = statements_of("sqlite")

    def move_some(self) -> int:
        """Published there, then deleted here: in between, the dedup key remembers. While another relay is at it,
        nothing: what it leaves is moved at the next look."""
        with only_relay_of(self._path) as is_ours:
            return self._move_some() if is_ours else 0

    def parked(self) -> list[Parked]:
        return [parked_of(row) for row in self._ask("outbox_parked", MOST_LISTED)]

    def retry(self, ids: Iterable[int] | None) -> int:
        chosen = None if ids is None else json.dumps(message_ids(ids))
        return len(self._ask("outbox_retry", chosen))

    def _ask(self, name: str, value: int | str | None) -> list[tuple[Any, ...]]:
        """The rows of a statement with one parameter; none when there is no outbox in the file."""
        if not self._path.exists():
            raise DatabaseUnavailable(f"{self._path}: there is no such file")
        with closing(self._connect()) as connection:
            if not self._has_outbox(connection):
                return []
            return connection.execute(self._statements[name], (value,)).fetchall()

    def _connect(self) -> sqlite3.Connection:
        """What is no UTF-8 in it is refused entry by entry, not here."""
        connection = sqlite3.connect(self._path, timeout=60, isolation_level=None)
        connection.text_factory = lambda text: text.decode(errors="surrogateescape")
        return connection

    def _has_outbox(self, connection: sqlite3.Connection) -> bool:
        query = "SELECT 1 FROM sqlite_schema WHERE name = 'headgate_outbox'"
        return bool(connection.execute(query).fetchall())

    def _move_some(self) -> int:
        try:
            with closing(self._connect()) as connection:
                entries, wrong = self._read(connection)
                for one in wrong:
                    connection.execute(
                        self._statements["outbox_refuse"], (f"[{one.id}]", one.problem)
                    )
                for name, of_one in by_queue(entries):
                    self._move(connection, name, of_one)
        except sqlite3.OperationalError as problem:
            raise DatabaseUnavailable(f"{self._path}: {problem}") from problem
        return len(entries) + len(wrong)

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        watch = files.Watch(
            self._path.absolute().parent, accepts=lambda name: name.startswith(self._path.name)
        )
        stopping = threading.Event()

        def follow() -> None:
            while not stopping.is_set():
                if watch.wait() and not stopping.wait(_SETTLED_S):
                    wake()

        thread = threading.Thread(target=follow, name="headgate-relay-watch", daemon=True)
        thread.start()

        def stop() -> None:
            stopping.set()
            watch.wake()
            thread.join()
            watch.close()

        return stop

    def _read(self, connection: sqlite3.Connection) -> tuple[list[Entry], list[Unreadable]]:
        if not self._has_outbox(connection):
            return [], []
        text = self._statements["outbox_read"].replace("{columns}", columns_of("o"))
        return entries_of(connection.execute(text, (BATCH,)).fetchall())

    def _move(self, connection: sqlite3.Connection, queue: str, entries: Sequence[Entry]) -> None:
        ids = "[" + ",".join(str(each.id) for each in entries) + "]"
        operations = self._target.operations
        try:
            info = self._target.run(operations.find(queue))
            check_is_queue(info)
        except (QueueNotFound, QueueOptionsError) as problem:
            reason = log_parked(queue, len(entries), problem)
            connection.execute(self._statements["outbox_refuse"], (ids, reason))
            return
        self._target.run(operations.publish(info, [abroad(each) for each in entries]))
        connection.execute(self._statements["outbox_drop"], (ids,))
