# Generated from headgate/queues/aio/scheduler.py by tools/generate_sync.py: do not edit, run `make generate`.
"""Schedulers: each publishes the due messages of the schedules in a database while it is open: `with db.scheduler(): …`."""

from __future__ import annotations

import logging
from datetime import timedelta
from types import TracebackType

from headgate.errors import DatabaseClosed, QueueError, QueueOptionsError
from headgate.queues import arguments, schedules
from headgate.queues.engine import Engine
from headgate.queues.ledger import RECONNECT_S
from headgate.queues.threads import Event, Worker, join_all

_log = logging.getLogger(__name__)


class Scheduler:
    """Runs schedules. Several may be open, in one process or in many; each run is published once."""

    def __init__(self, engine: Engine, *, poll: timedelta = timedelta(seconds=5)) -> None:
        self._engine = engine
        self._poll_s = arguments.lease_us(poll) / 1e6  # finds schedules that other programs add
        self._stopping = Event()
        self._worker: Worker | None = None

    def run_once(self) -> float | None:
        """Publish what is due now; return the seconds until the next run, None without schedules."""
        left_us = self._engine.run(schedules.run_due(self._engine.operations))
        return None if left_us is None else left_us / 1e6

    def start(self) -> Scheduler:
        """Begin to publish."""
        if self._worker is not None:
            raise QueueOptionsError("a scheduler is started once; make another one")
        self._worker = Worker(self._run, name="headgate-scheduler")
        self._worker.start()
        return self

    def close(self) -> None:
        self._stopping.set()
        if self._worker is not None:
            join_all([self._worker])

    def __enter__(self) -> Scheduler:
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
            try:
                left = self.run_once()
                pause = RECONNECT_S[0]
                # At least a moment: another scheduler may hold what is due.
                wait = self._poll_s if left is None else min(max(left, 0.01), self._poll_s)
                self._stopping.wait(wait)
            except DatabaseClosed:
                return
            except Exception as problem:  # only closing may end a scheduler
                expected = isinstance(problem, QueueError)
                _log.warning("scheduler: %s; retrying", problem, exc_info=not expected)
                self._stopping.wait(pause)
                pause = min(pause * 2, RECONNECT_S[1])
