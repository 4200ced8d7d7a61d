"""The thread behind a writer: commits what has waited long enough, syncs by the clock, adopts what comes into the inbox.

It sleeps until one of these is due, and costs nothing while nothing is.
"""

from __future__ import annotations

import logging
import threading
import time
from datetime import timedelta
from typing import Final

from headgate.errors import StreamClosed, StreamError
from headgate.streams.adoption import adopt
from headgate.streams.clock import now_us
from headgate.streams.layout import INBOX
from headgate.streams.maintenance import drop_segments
from headgate.streams.writer import Writer
from headgate.wake import Watch

_log = logging.getLogger(__name__)

PATIENCE: Final = 20  # lingers that a chunk may wait while messages keep coming
_RETRY_SECONDS: Final = 1.0  # after the disk refused something


class Committer:
    """Runs from construction until it is closed."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._linger = writer.options.linger / timedelta(seconds=1)
        self._interval = writer.options.fsync_interval / timedelta(seconds=1)
        self._syncs = writer.options.fsync == "interval"
        self._next_sync: float | None = None
        self._commit_at: float | None = None
        self._number = 0  # of pending messages, when we looked last
        self._retry_at: float | None = None
        self._closing = False
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
        self._closing = True
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
        while not self._closing:
            try:
                self._work()
                self._retry_at = None
            except StreamClosed:
                return
            except StreamError as problem:
                # Whoever flushes next gets the same error; here it is only tried again.
                _log.warning("%s", problem)
                self._retry_at = time.monotonic() + _RETRY_SECONDS
            except Exception:
                # A committer that is gone would leave messages pending for ever, and nobody would know.
                _log.exception("%s: could not be seen to", self._writer.directory)
                self._retry_at = time.monotonic() + _RETRY_SECONDS
            self._watch.wait(self._until_due())

    def _work(self) -> None:
        now = time.monotonic()
        if self._has_lingered(now):
            self._writer.commit_late()
        if self._next_sync is not None and now >= self._next_sync:
            self._next_sync = None
            self._writer.sync()
        if self._syncs and self._next_sync is None and self._writer.dirty:
            self._next_sync = now + self._interval
        if self._look or self._retry_at is not None:
            self._look = False
            adopt(self._writer)
        if self._writer.rolled:
            self._writer.rolled = False
            self._drop_expired()

    def _drop_expired(self) -> None:
        options = self._writer.options
        if options.max_age is not None or options.max_bytes is not None:
            limits = {"max_age": options.max_age, "max_bytes": options.max_bytes}
            drop_segments(self._writer, now_us=now_us(), **limits)  # type: ignore[arg-type]

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
        if self._retry_at is not None:
            return max(self._retry_at - time.monotonic(), 0)
        due = [self._commit_at] if self._commit_at is not None else []
        due += [self._next_sync] if self._next_sync is not None else []
        return max(min(due) - time.monotonic(), 0) if due else None
