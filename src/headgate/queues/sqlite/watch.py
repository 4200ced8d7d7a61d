"""The thread that wakes consumers after commits of other processes. While no consumer waits, it rests.

SQLite tells a connection nothing of the commits of others. The engine announces those of its own process. All others, of
whatever program, write to the files of the database, which the system reports (`headgate.file_watch`); `PRAGMA
data_version` then tells whether it was a commit. A rollback does not change the version.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import apsw

from headgate import file_watch as files
from headgate.queues.engine import RESULTS
from headgate.queues.wakers import Wakers

_log = logging.getLogger(__name__)

_COMMIT_WITHIN_S: Final = 2.0  # from the report of a write to its commit, at most
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.0001, 0.02
_POLL_S: Final = 5.0  # without a report
_BETWEEN_COMMITS_S: Final = 0.001  # so that many commits wake the consumers once
_QUEUE_STATES: Final = """
SELECT q.id,
    EXISTS (SELECT 1 FROM headgate_delivery d WHERE d.queue = q.id AND d.state = 0 AND d.aside = 0)
        OR q.kind <> 'queue' AND EXISTS (SELECT 1 FROM headgate_unrouted),
    (SELECT visible_at FROM headgate_delivery d WHERE d.queue = q.id AND d.state IN (1, 2)
     ORDER BY visible_at LIMIT 1)
FROM json_each(?1) w CROSS JOIN headgate_queue q ON q.id = w.value WHERE NOT q.paused
UNION ALL SELECT 0, EXISTS (SELECT 1 FROM headgate_outbox WHERE problem IS NULL), NULL
"""  # 0 is the outbox, for relays; a claim on a subscription routes what is unrouted


class Watcher:
    """Watches one database file."""

    def __init__(self, path: Path, connect: Callable[[], apsw.Connection], wakers: Wakers) -> None:
        self._wakers, self._stopping = wakers, False
        self._connection, self._path = connect(), path
        real = path.resolve()  # SQLite keeps its log there, not beside a link
        self._files = files.Watch(real.parent, accepts=lambda name: name.startswith(real.name))
        self._version = self._data_version()
        # Queues that consumers wait for and that are paused or gone.
        self._missing: set[int] = set()
        self._due = self._read_queues(self._wakers.queues())[2]
        self._thread = threading.Thread(target=self._watch, name="headgate-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopping = True
        self._wakers.resume()
        self._files.wake()
        self._thread.join()
        self._files.close()
        self._connection.close()

    def _watch(self) -> None:
        committed = False
        while not self._stopping:
            try:
                rested = self._wakers.rest(lambda: self._stopping)
                if rested:  # others may have committed meanwhile
                    self._due = {}
                # After a commit, wait for another: its write may have been reported together with the first.
                touched = committed or (not rested and self._files.wait(_POLL_S))
                committed = False
                if not self._stopping and self._has_committed(wait=touched):
                    committed = True
                    self._wake_consumers()
                    time.sleep(_BETWEEN_COMMITS_S)
            except Exception as problem:  # only close() ends this thread
                # The file was busy for a minute or was deleted: wake all consumers, and try again later.
                expected = isinstance(problem, apsw.Error)
                _log.warning(
                    "cannot check %s for commits: %s", self._path, problem, exc_info=not expected
                )
                committed = False
                self._wakers.wake(None)
                time.sleep(_LONGEST_PAUSE_S)

    def _has_committed(self, *, wait: bool) -> bool:
        """Whether another connection has committed since the last call; after a write, wait a little for its commit."""
        since = time.monotonic()
        while True:
            version = self._data_version()
            if version != self._version:
                self._version = version
                return True
            waited = time.monotonic() - since
            if self._stopping or not wait or waited >= _COMMIT_WITHIN_S:
                return False
            if self._pause(waited):
                since = time.monotonic()

    def _pause(self, waited: float) -> bool:
        """Pause for a twentieth of the time waited so far; return whether another write was reported."""
        pause = min(max(waited / 20, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S)
        if pause >= 0.001:  # poll(2) counts in milliseconds
            return self._files.wait(pause)
        time.sleep(pause)
        return self._files.wait(0)

    def _wake_consumers(self) -> None:
        """Wake consumers of the queues with something to claim, and tell others of an earlier due time."""
        watched: set[int] | None = None
        # A consumer that meanwhile learned the new id of its queue has missed the wake-up: then look again.
        while watched != (watched := self._wakers.queues()):
            self._wake_consumers_of(watched)

    def _wake_consumers_of(self, watched: set[int]) -> None:
        queues, ready, due = self._read_queues(watched)
        never = float("inf")
        earlier = {queue for queue, at in due.items() if at < self._due.get(queue, never)}
        # After a queue was deleted, paused or resumed, its consumers look it up again.
        changed = self._missing ^ (watched - queues)
        self._missing, self._due = watched - queues, due
        self._wakers.wake(frozenset({RESULTS, *ready, *changed}))
        if earlier:
            self._wakers.set_due_time(frozenset(earlier))

    def _read_queues(self, watched: set[int]) -> tuple[set[int], set[int], dict[int, int]]:
        """The ids of those of these queues that are not paused, those with something to claim, and the next due time of
        each queue."""
        rows: list[tuple[Any, ...]] = self._connection.execute(
            _QUEUE_STATES, (json.dumps(sorted(watched)),)
        ).fetchall()
        ready = {id for id, ready, _ in rows if ready}
        return {row[0] for row in rows}, ready, {id: due for id, _, due in rows if due}

    def _data_version(self) -> int:
        version: int = self._connection.pragma("data_version")
        return version
