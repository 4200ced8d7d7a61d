"""The work behind a writer: to commit messages that have waited long enough, to sync by the clock and to adopt deposits.

It is done in a thread of the pool (`committer_pool`) when one of these is due. Writers that are open when the process ends
are closed here as well.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 - Arrow imports it with the first commit, too late at the end of the process
import logging
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final
from weakref import WeakSet

from headgate.errors import StreamClosed, StreamError, StreamWriteError
from headgate.file_watch import Watch
from headgate.streams.format import INBOX
from headgate.streams.write.committer_pool import expect_wait, start_job
from headgate.streams.write.expiry import Expiry
from headgate.streams.write.inbox import adopt, is_deposit
from headgate.streams.write.writer import Writer

_log = logging.getLogger(__name__)

MAX_LINGERS: Final = 20  # that a message waits at most while others keep coming
_PAUSES_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # before each retry
_REPORT_AFTER: Final = 5  # failures in a row


class Committer:
    """Commits, syncs, adopts deposits and begins retention for one writer, from construction until it is closed."""

    def __init__(self, writer: Writer, on_drop: Callable[[], None] = lambda: None) -> None:
        """Start the work; `on_drop` is called after expired segments were dropped."""
        self._writer, self._expiry = writer, Expiry(writer, on_drop)
        self._linger = writer.options.linger / timedelta(seconds=1)
        self._interval = writer.options.fsync_interval / timedelta(seconds=1)
        self._syncs = writer.options.fsync == "interval"
        self._syncs_always = writer.options.fsync == "always"
        self._next_sync: float | None = None
        self._commit_at: float | None = None
        self._number = 0  # of pending messages at the last look
        self._failures = 0  # in a row
        self._paused_until = 0.0  # after a failure
        inbox = writer.directory / INBOX
        inbox.mkdir(exist_ok=True)
        self._has_deposits = True  # there may be some already
        # `_run` may be called before `start_job` returns, and so must not need the job.
        self._job = start_job(self._run)
        try:
            self._watch = Watch(inbox, accepts=is_deposit, on_change=self._note_deposits)
        except BaseException:
            self._job.close()
            raise
        writer.on_pending = self._job.call

    def close(self) -> None:
        """Stop the work; pending messages stay pending. Idempotent."""
        self._job.close()
        self._expiry.close()
        self._writer.on_pending = lambda: None
        self._watch.close()

    def _note_deposits(self) -> None:
        self._has_deposits = True
        self._job.call()

    def _run(self) -> float | None:
        """Do the work that is due; return when more will be, by the monotonic clock; None: not before the job is called."""
        if time.monotonic() < self._paused_until:
            return self._paused_until
        try:
            self._work()
            self._note_success()
            return self._next_due()
        except StreamClosed:
            return None
        except Exception as problem:
            # Without another run messages would stay pending for ever, in silence.
            self._paused_until = time.monotonic() + self._note_failure(problem)
            return self._paused_until

    def _note_success(self) -> None:
        if self._failures >= _REPORT_AFTER:
            self._writer.report(None)  # a report that was not raised yet is out of date
        self._failures = 0

    def _note_failure(self, problem: Exception) -> float:
        """Log a failure, report it to the producers when it persists; return the seconds until the retry."""
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
        if self._failures == _REPORT_AFTER and not isinstance(problem, StreamError):
            # An error of the writer itself is raised by the next flush anyway.
            self._writer.report(
                StreamWriteError(
                    f"{self._writer.directory}: background work has failed {_REPORT_AFTER} times in a row and is "
                    f"retried; flushed messages are stored, but not yet synced, and deposits not adopted: {problem}"
                )
            )
        return pause

    def _work(self) -> None:
        now = time.monotonic()
        if self._has_lingered(now):
            if self._syncs_always:
                expect_wait()
            self._writer.commit_in_background()
        if self._next_sync is not None and now >= self._next_sync:
            expect_wait()
            self._writer.sync()
            self._next_sync = None
        if self._syncs and self._next_sync is None and self._writer.dirty:
            self._next_sync = now + self._interval
        if self._has_deposits:
            self._adopt()
        if self._writer.rolled:
            self._writer.rolled = False  # before: another roll meanwhile sets it again
            self._expiry.begin()

    def _adopt(self) -> None:
        self._has_deposits = False  # before: a deposit that arrives meanwhile sets it again
        expect_wait()
        try:
            adopt(self._writer)
        except BaseException:
            self._has_deposits = True
            raise

    def _has_lingered(self, now: float) -> bool:
        """Whether to commit: no message came for one linger, or the first has waited for the longest time."""
        pending = self._writer.pending
        since, number, before = pending.waiting_since(), len(pending), self._number
        self._number = number
        if since is None or now < (self._commit_at or since + self._linger):
            return False
        if number > before and now < since + self._linger * MAX_LINGERS:
            self._commit_at = now + self._linger  # messages keep coming: wait for a larger chunk
            return False
        self._commit_at = None
        return True

    def _next_due(self) -> float | None:
        # `waiting_since` must be called at the end: only then does the next message call the job.
        since = self._writer.pending.waiting_since()
        if since is None or self._commit_at is None:
            self._commit_at = None if since is None else since + self._linger
        return min(
            (at for at in (self._commit_at, self._next_sync) if at is not None), default=None
        )


# ---- the end of the process -------------------------------------------------------------------------

# What was accepted is written when the interpreter ends: at the end of the script, by an exception, by `sys.exit`, and in a
# child of multiprocessing. Not when the process is killed (also by a SIGTERM without a handler) or ends by `os._exit`.
_open: WeakSet[Writer] = WeakSet()
_hooked: set[int] = set()  # ids of processes in which multiprocessing calls `close_writers`


def close_at_exit(writer: Writer) -> None:
    """Close the writer when the process ends, unless it was closed before."""
    _open.add(writer)
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        _hook_into_multiprocessing()


def _hook_into_multiprocessing() -> None:
    """Register with multiprocessing: its children end without calling atexit's functions."""
    from multiprocessing.util import Finalize

    if os.getpid() not in _hooked:
        _hooked.add(os.getpid())
        Finalize(None, close_writers, exitpriority=0)


def close_writers() -> None:
    """Close every open writer, and log how many messages could not be written."""
    for writer in list(_open):
        try:
            writer.close()
        except Exception as problem:  # the others have to be closed as well
            number = len(writer.pending)
            _log.error(
                "%s: %d published messages are not stored, the process ends: %s",
                writer.directory,
                number,
                problem,
            )


# At import: what a program registers later runs earlier, and may still publish.
atexit.register(close_writers)
