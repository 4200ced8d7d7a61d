"""Who wakes a consumer on SQLite.

SQLite tells a connection nothing of the others. Its commits are seen in two ways: those of this process are announced by
the engine itself; all others, by whatever program, touch the database's files, which the system reports
(`headgate.file_watch`), and `PRAGMA data_version` then says whether it was a commit. A rollback changes no version.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import apsw

from headgate import file_watch as files
from headgate.queues.wakers import Wakers

_log = logging.getLogger(__name__)

# The bytes of a commit are written before it counts: between the two lies an fsync.
_SETTLING_S: Final = 2.0
_SHORTEST_NAP_S, _LONGEST_NAP_S = 0.0001, 0.02
_SAFETY_S: Final = 5.0  # look anyway, whatever the system reports
_BREATH_S: Final = 0.001  # between two looks, so that many commits are one
_WAITING: Final = """
SELECT q.id,
    EXISTS (SELECT 1 FROM headgate_delivery d WHERE d.queue = q.id AND d.state = 0),
    (SELECT visible_at FROM headgate_delivery d WHERE d.queue = q.id AND d.state IN (1, 2)
     ORDER BY visible_at LIMIT 1)
FROM headgate_queue q WHERE NOT q.paused
UNION ALL SELECT 0, EXISTS (SELECT 1 FROM headgate_outbox WHERE problem IS NULL), NULL
"""  # 0 is the outbox, for relays


class Watcher:
    """A thread that notices the commits of others to one database file."""

    def __init__(self, path: Path, connect: Callable[[], apsw.Connection], wakers: Wakers) -> None:
        self._wakers, self._stopping = wakers, False
        self._connection, self._path = connect(), path
        real = path.resolve()  # where SQLite keeps its log, and not beside a link to it
        self._files = files.Watch(real.parent, accepts=lambda name: name.startswith(real.name))
        self._version = self._data_version()
        self._queues, _, self._due = self._look()
        self._thread = threading.Thread(target=self._watch, name="headgate-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopping = True
        self._files.wake()
        self._thread.join()
        self._files.close()
        self._connection.close()

    def _watch(self) -> None:
        committed = False
        while not self._stopping:
            try:
                # After a commit, the next writer may have been reported already: its commit is waited for as well.
                touched = committed or self._files.wait(_SAFETY_S)
                committed = False
                if not self._stopping and self._is_committed(wait=touched):
                    committed = True
                    self._tell()
                    time.sleep(_BREATH_S)
            except Exception as problem:  # nothing may end this thread but closing it
                # Busy for a minute, or the file is gone: everybody looks for himself, and we look again later.
                known = isinstance(problem, apsw.Error)
                _log.warning(
                    "cannot look whether %s changed: %s", self._path, problem, exc_info=not known
                )
                committed = False
                self._wakers.wake(None)
                time.sleep(_LONGEST_NAP_S)

    def _is_committed(self, *, wait: bool) -> bool:
        """Whether another connection committed since the last check; after a write, wait a little for its commit."""
        since = time.monotonic()
        while True:
            version = self._data_version()
            if version != self._version:
                self._version = version
                return True
            waited = time.monotonic() - since
            if self._stopping or not wait or waited >= _SETTLING_S:
                return False
            if self._nap(waited):
                since = time.monotonic()

    def _nap(self, waited: float) -> bool:
        """Sleep for a twentieth of the time waited so far; return whether a file was written meanwhile."""
        pause = min(max(waited / 20, _SHORTEST_NAP_S), _LONGEST_NAP_S)
        if pause >= 0.001:  # poll(2) counts in milliseconds
            return self._files.wait(pause)
        time.sleep(pause)
        return self._files.wait(0)

    def _tell(self) -> None:
        queues, ready, due = self._look()
        never = float("inf")
        moved = {queue for queue, at in due.items() if at < self._due.get(queue, never)}
        # Consumers that wait for a queue by name check again when one was created or deleted.
        changed, self._queues, self._due = queues != self._queues, queues, due
        if (
            changed
            or self._connection.execute("SELECT 1 FROM headgate_unrouted LIMIT 1").fetchall()
        ):
            self._wakers.wake(None)
        elif ready | moved:
            self._wakers.wake(frozenset(ready | moved))

    def _look(self) -> tuple[set[int], set[int], dict[int, int]]:
        """All queues, those with something to claim, and when the next thing of each falls due."""
        rows: list[tuple[Any, ...]] = self._connection.execute(_WAITING).fetchall()
        ready = {id for id, ready, _ in rows if ready}
        return {row[0] for row in rows}, ready, {id: due for id, _, due in rows if due}

    def _data_version(self) -> int:
        version: int = self._connection.pragma("data_version")
        return version
