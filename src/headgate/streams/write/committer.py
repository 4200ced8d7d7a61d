"""The thread behind a writer: commits what has waited long enough, syncs by the clock, adopts what comes into the inbox.

It sleeps until one of these is due, and costs nothing while nothing is.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from headgate.clock import now_us
from headgate.errors import StreamClosed, StreamError, StreamWriteError
from headgate.file_watch import Watch
from headgate.streams.format import INBOX
from headgate.streams.upkeep.retention import delete_expired
from headgate.streams.write.adoption import adopt
from headgate.streams.write.writer import Writer

_log = logging.getLogger(__name__)

PATIENCE: Final = 20  # lingers that a chunk may wait while messages keep coming
_PAUSES_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # before it is tried again
_TELL_AFTER: Final = 5  # failures in a row


class Committer:
    """Runs from construction until it is closed."""

    def __init__(self, writer: Writer, on_drop: Callable[[], None] = lambda: None) -> None:
        """`on_drop` is called when segments were dropped."""
        self._writer, self._on_drop = writer, on_drop
        self._linger = writer.options.linger / timedelta(seconds=1)
        self._interval = writer.options.fsync_interval / timedelta(seconds=1)
        self._syncs = writer.options.fsync == "interval"
        self._next_sync: float | None = None
        self._commit_at: float | None = None
        self._number = 0  # of pending messages, when we looked last
        self._failures = 0  # in a row
        self._closing = threading.Event()
        inbox = writer.directory / INBOX
        inbox.mkdir(exist_ok=True)
        self._look = True  # at what is in the inbox already
        self._watch = Watch(inbox, accepts=self._is_deposit)
        writer.on_pending = self._watch.wake
        name = f"headgate committer {writer.directory.name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread; what is pending stays pending. Idempotent."""
        self._closing.set()
        self._watch.wake()
        self._thread.join()
        self._writer.on_pending = lambda: None
        self._watch.close()

    def _is_deposit(self, name: str) -> bool:
        """Asked by the watch about every file that changed in the inbox."""
        found = not name.startswith(".")
        self._look = self._look or found
        return found

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._work()
                self._note_success()
                self._watch.wait(self._until_due())
            except StreamClosed:
                return
            except Exception as problem:
                # A committer that is gone would leave messages pending for ever, and nobody would know.
                self._closing.wait(self._note_failure(problem))

    def _note_success(self) -> None:
        if self._failures >= _TELL_AFTER:
            self._writer.report(None)  # whoever was not told yet need not know any more
        self._failures = 0

    def _note_failure(self, problem: Exception) -> float:
        """Log it, tell the producers when it persists; seconds until the next attempt."""
        pause = _PAUSES_S[min(self._failures, len(_PAUSES_S) - 1)]
        self._failures += 1
        expected = isinstance(problem, StreamError | OSError)
        _log.warning(
            "stream %s: background work failed, retrying in %.2f s: %s",
            self._writer.directory,
            pause,
            problem,
            exc_info=None if expected else problem,
        )
        if self._failures == _TELL_AFTER and not isinstance(problem, StreamError):
            # What the writer itself raised, it raises to whoever flushes.
            self._writer.report(
                StreamWriteError(
                    f"{self._writer.directory}: background work has failed {_TELL_AFTER} times in a row and is "
                    f"tried again; what is flushed is stored, but not yet synced or adopted: {problem}"
                )
            )
        return pause

    def _work(self) -> None:
        now = time.monotonic()
        if self._has_lingered(now):
            self._writer.commit_late()
        if self._next_sync is not None and now >= self._next_sync:
            self._writer.sync()
            self._next_sync = None
        if self._syncs and self._next_sync is None and self._writer.dirty:
            self._next_sync = now + self._interval
        if self._look:
            self._adopt()
        if self._writer.rolled:
            self._drop_expired()

    def _adopt(self) -> None:
        self._look = False  # before: what comes meanwhile is looked at again
        try:
            adopt(self._writer)
        except BaseException:
            self._look = True
            raise

    def _drop_expired(self) -> None:
        options = self._writer.options
        self._writer.rolled = False  # before: another roll may come meanwhile
        if options.max_age is None and options.max_bytes is None:
            return
        try:
            dropped = delete_expired(
                self._writer,
                now_us=now_us(),
                max_age=options.max_age,
                max_bytes=options.max_bytes,
            )
        except BaseException:
            self._writer.rolled = True
            raise
        if dropped:
            self._on_drop()

    def _has_lingered(self, now: float) -> bool:
        """Whether pending messages have waited long enough: none came for a while, or the first is getting old."""
        pending = self._writer.pending
        since, number, before = pending.waiting_since(), len(pending), self._number
        self._number = number
        if since is None or now < (self._commit_at or since + self._linger):
            return False
        if number > before and now < since + self._linger * PATIENCE:
            self._commit_at = now + self._linger  # more keep coming: a larger chunk is worth it
            return False
        self._commit_at = None
        return True

    def _until_due(self) -> float | None:
        """Seconds until there is something to do; None: until somebody wakes us."""
        # Always asked before sleeping: only then will whoever adds the next message wake us.
        since = self._writer.pending.waiting_since()
        if since is None or self._commit_at is None:
            self._commit_at = None if since is None else since + self._linger
        due = [self._commit_at] if self._commit_at is not None else []
        due += [self._next_sync] if self._next_sync is not None else []
        return max(min(due) - time.monotonic(), 0) if due else None
