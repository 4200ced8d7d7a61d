"""The outbox in an application's own SQLite file, read through the library the application uses: sqlite3."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from headgate import file_watch
from headgate.errors import DatabaseUnavailable
from headgate.queues.arguments import message_ids
from headgate.queues.outbox_table import (
    MOST_LISTED,
    SQLITE_TABLE,
    OutboxEntry,
    ParkedEntry,
    UnreadableEntry,
    decode_entries,
    decode_parked,
)
from headgate.queues.sql.dialect import statements_of
from headgate.queues.sql.message_rows import columns_of

_SETTLE_S: Final = 0.02  # the bytes of a commit are written a moment before it counts


class OutboxFile:
    """Reads and changes the outbox table of one file. Each call opens a connection of its own."""

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._statements = statements_of("sqlite")

    def read(self, limit: int) -> tuple[list[OutboxEntry], list[UnreadableEntry]]:
        """Read the oldest entries, and park the unreadable ones among them; return the others in order, and those parked."""
        with self._connect() as connection:
            if not self._has_outbox(connection):
                return [], []
            text = self._statements["outbox_read"].replace("{columns}", columns_of("o"))
            entries, unreadable = decode_entries(connection.execute(text, (limit,)).fetchall())
            for one in unreadable:
                self._park(connection, [one], one.problem)
            return entries, unreadable

    def delete(self, entries: Sequence[OutboxEntry]) -> None:
        with self._connect() as connection:
            connection.execute(self._statements["outbox_drop"], (_ids(entries),))

    def park(self, entries: Sequence[OutboxEntry], problem: str) -> None:
        """Keep these entries with the reason why they cannot be moved."""
        with self._connect() as connection:
            self._park(connection, entries, problem)

    def parked(self) -> list[ParkedEntry]:
        """Return the parked entries, oldest first."""
        return [decode_parked(row) for row in self._ask("outbox_parked", MOST_LISTED)]

    def count_waiting(self) -> int:
        """Return how many entries wait for a relay; at most MOST_LISTED are counted."""
        return len(self._ask("outbox_waiting", MOST_LISTED))

    def retry(self, ids: Iterable[int] | None) -> int:
        """Let relays try parked entries again, those with these ids or all; return their number."""
        listed = None if ids is None else json.dumps(message_ids(ids))
        return len(self._ask("outbox_retry", listed))

    def _park(
        self,
        connection: sqlite3.Connection,
        entries: Sequence[OutboxEntry | UnreadableEntry],
        problem: str,
    ) -> None:
        connection.execute(self._statements["outbox_refuse"], (_ids(entries), problem))

    def _ask(self, name: str, value: int | str | None) -> list[tuple[Any, ...]]:
        """Return the rows of a statement with one parameter; none if there is no outbox in the file."""
        with self._connect() as connection:
            if not self._has_outbox(connection):
                return []
            return connection.execute(self._statements[name], (value,)).fetchall()

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        self._require_file()
        try:
            with closing(sqlite3.connect(self._path, timeout=60, isolation_level=None)) as opened:
                # Text that is not UTF-8 must not fail here: its entry is parked, and the others are moved.
                opened.text_factory = lambda text: text.decode(errors="surrogateescape")
                yield opened
        except sqlite3.OperationalError as problem:
            raise DatabaseUnavailable(f"{self._path}: {problem}") from problem

    def _require_file(self) -> None:
        """Refuse a file that does not exist: SQLite would create one with the misspelt name."""
        if not self._path.exists():
            raise DatabaseUnavailable(
                f"{self._path}: there is no such file; the application makes it with its first publish"
            )

    def _has_outbox(self, connection: sqlite3.Connection) -> bool:
        query = "SELECT 1 FROM sqlite_schema WHERE name = ?"
        return bool(connection.execute(query, (SQLITE_TABLE,)).fetchall())

    # -- locking and watching the file --

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Lock the outbox, so that this relay alone moves entries; yield whether that succeeded. The lock ends with the process.

        A file beside the database is locked, not the database: its writers go on, and SQLite's own locks stay as they are.
        """
        self._require_file()
        real = self._path.resolve()
        fd = os.open(real.with_name(f".headgate-relay.{real.name}"), os.O_RDWR | os.O_CREAT, 0o644)
        is_locked = False
        try:
            with suppress(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_locked = True
            yield is_locked
        finally:
            # Unlocked, not only closed: a child that was forked meanwhile has the file open as well.
            if is_locked:
                fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)

    def watch(self, wake: Callable[[], object]) -> Callable[[], None]:
        """Call `wake`, from another thread, after each change of the file, until the returned function is called."""
        watch = file_watch.Watch(
            self._path.absolute().parent, accepts=lambda name: name.startswith(self._path.name)
        )
        stopping = threading.Event()

        def follow() -> None:
            while not stopping.is_set():
                if watch.wait() and not stopping.wait(_SETTLE_S):
                    wake()

        thread = threading.Thread(target=follow, name="headgate-relay-watch", daemon=True)
        thread.start()

        def stop() -> None:
            stopping.set()
            watch.wake()
            thread.join()
            watch.close()

        return stop


def _ids(entries: Sequence[OutboxEntry | UnreadableEntry]) -> str:
    return json.dumps([entry.id for entry in entries])
