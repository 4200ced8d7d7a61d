"""The threads behind the writers of a process: one while their work is quick, more while some of it is blocked.

A job is run when it is due or was called, in one thread at a time. One thread, the leader, sleeps until then, and runs it.
Meanwhile there is no leader. Another thread stands by: it leads as soon as the job says that it is going to wait for
the disk, and otherwise looks every few milliseconds whether a job is overdue, because the first is blocked; then a
new thread stands by. So a disk that hangs holds up the streams on it and no others, as long as they are fewer than the threads.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from queue import Empty, SimpleQueue
from typing import Final

from headgate.forks import call_in_every_child

_log = logging.getLogger(__name__)

MOST_THREADS: Final = 32
OVERDUE_S: Final = 0.01  # that a job may be late before one more thread helps
_QUIET_LOOKS: Final = 10  # without a run, after which the thread that stands by sleeps
_NEVER: Final = float("inf")


class Job:
    """Work that is repeated when it is due. Any thread may call and close it."""

    def __init__(self, pool: CommitterPool, run: Callable[[], float | None]) -> None:
        self._pool, self.run = pool, run
        self.due = _NEVER
        self.is_running = self.is_closed = False

    def call(self) -> None:
        """Run the job now; if it is running, run it once more after that."""
        # Without a lock, which an interrupted publish might not release.
        self._pool.calls.put((time.monotonic(), self))

    def close(self) -> None:
        """Run the job no more; wait until it is not running."""
        self._pool.remove(self)


class CommitterPool:
    """Runs jobs. It has threads as long as it has jobs."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[tuple[float, Job | None]] = SimpleQueue()  # wakes the leader
        self._looks: SimpleQueue[None] = SimpleQueue()  # wakes the thread that stands by
        self._lock = threading.Lock()
        self._ended = threading.Condition(self._lock)  # a run of a closed job, or a thread
        self._jobs: set[Job] = set()
        # A heap; only the newest entry of a job counts.
        self._due: list[tuple[float, int, Job]] = []
        self._numbers = count()
        self._threads = self._runs = 0  # the threads there are; the runs that were begun
        self._leads_until: float | None = None  # when the leader wakes by itself; None without one
        self._stands_by = self._dozes = self._is_relieved = False

    def add(self, run: Callable[[], float | None]) -> Job:
        """Run a function now and when it is due: at the monotonic time that it returns; None: when the job is called."""
        job = Job(self, run)
        with self._lock:
            if not self._threads:
                self._start_thread()
            self._jobs.add(job)
            self._have_others_looked_after()  # the first one may be blocked
        job.call()
        return job

    def remove(self, job: Job) -> None:
        """Run a job no more; wait until it is not running. After the last one the threads end."""
        with self._lock:
            job.is_closed, job.due = True, _NEVER
            self._jobs.discard(job)
            self._ended.wait_for(lambda: not job.is_running)
            if not self._jobs:
                self.calls.put((_NEVER, None))
                self._looks.put(None)
                self._ended.wait_for(lambda: self._jobs or not self._threads)

    # ---- threads -------------------------------------------------------------------------------------

    def _start_thread(self, *, stands_by: bool = False) -> None:
        threading.Thread(
            target=self._work, args=(stands_by,), name="headgate committer", daemon=True
        ).start()
        self._threads += 1
        self._stands_by = self._stands_by or stands_by

    def _work(self, stands_by: bool) -> None:
        job = self._stand_by() if stands_by else None
        job = job or self._find_job()
        while job is not None:
            try:
                due = job.run()
            except BaseException:  # the thread is needed for the others
                _log.exception("%s failed, and is run again when it is called", job.run)
                due = None
            self._note_end(job, due)
            job = self._find_job()

    def _note_end(self, job: Job, due: float | None) -> None:
        with self._lock:
            job.is_running = False
            if job.is_closed:
                self._ended.notify_all()
                return
            due = min(job.due, _NEVER if due is None else due)  # it may have been called meanwhile
            job.due = _NEVER
            self._schedule(job, due)
            if self._leads_until is not None and due < self._leads_until:
                self.calls.put((_NEVER, None))

    def _find_job(self) -> Job | None:
        """Take the next job, waiting for it as the leader, or standing by; None when this thread is not needed."""
        while True:
            with self._lock:
                job = self._take(time.monotonic())
                if job is not None:
                    return job
                leads = self._leads_until is None
                if not self._jobs or (self._stands_by and not leads):
                    self._threads -= 1
                    self._ended.notify_all()
                    return None
                if leads:
                    self._leads_until = self._due[0][0] if self._due else _NEVER
                else:
                    self._stands_by = True
            if leads:
                self._lead()
            elif (job := self._stand_by()) is not None:
                return job

    def _lead(self) -> None:
        """Sleep until a job is due or called."""
        until, called = self._leads_until, None
        left = None if until is None or until == _NEVER else max(until - time.monotonic(), 0)
        with suppress(Empty):
            called = self.calls.get(timeout=left)
        with self._lock:
            self._leads_until = None
            if called is not None:
                self._receive(*called)

    def _stand_by(self) -> Job | None:
        """Take a job that is overdue; None when another thread has to lead, or there are no jobs any more."""
        runs, quiet = self._runs, 0
        while True:
            with suppress(Empty):
                self._looks.get(timeout=None if self._dozes else OVERDUE_S)
            with self._lock:
                leads = self._leads_until is not None
                self._stands_by = False  # another one does, if this thread takes a job
                if not leads and (job := self._take(time.monotonic() - OVERDUE_S)) is not None:
                    return job
                if not self._jobs or (self._is_relieved and not leads):
                    self._is_relieved = False
                    return None
                self._stands_by = True
                quiet = quiet + 1 if runs == self._runs else 0
                runs = self._runs
                self._dozes = quiet >= _QUIET_LOOKS and leads

    def relieve(self) -> None:
        """Have the thread that stands by lead, if no other thread does."""
        with self._lock:
            if self._stands_by and self._leads_until is None:
                self._is_relieved, self._dozes = True, False
                self._looks.put(None)

    # ---- jobs ----------------------------------------------------------------------------------------

    def _take(self, due_until: float) -> Job | None:
        """Take the job that has been due for the longest time; None when no job was due by `due_until`."""
        with suppress(Empty):
            while self._leads_until is None:  # else the leader receives the calls
                self._receive(*self.calls.get_nowait())
        while self._due and self._due[0][0] <= due_until:
            due, _, job = heappop(self._due)
            if job.due == due and not job.is_running:
                job.due, job.is_running = _NEVER, True
                self._runs += 1
                self._have_others_looked_after()
                return job
        return None

    def _receive(self, at: float, job: Job | None) -> None:
        if job is not None and not job.is_closed:
            self._schedule(job, at)

    def _schedule(self, job: Job, due: float) -> None:
        if due < job.due:
            job.due = due
            if not job.is_running:  # else it is scheduled when its run ends
                heappush(self._due, (due, next(self._numbers), job))

    def _have_others_looked_after(self) -> None:
        """Have a thread stand by, or look again, if there are several jobs."""
        if self._dozes:
            self._dozes = False
            self._looks.put(None)
        elif len(self._jobs) > 1 and not self._stands_by and self._threads < MOST_THREADS:
            with suppress(RuntimeError):  # the system grants no thread: the others wait
                self._start_thread(stands_by=True)


# ---- the one pool of a process -----------------------------------------------------------------------


def _begin_in_child() -> None:
    """Give a forked child a pool of its own, because it has none of the threads of its parent."""
    global _pool
    _pool = CommitterPool()


def start_job(run: Callable[[], float | None]) -> Job:
    """Run a function in the background, in the pool of this process, until the job is closed; see `CommitterPool.add`."""
    return _pool.add(run)


def expect_wait() -> None:
    """Have another thread run the other jobs; a run calls this before it waits for the disk."""
    _pool.relieve()


_pool = CommitterPool()
call_in_every_child(_begin_in_child)
