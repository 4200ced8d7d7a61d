"""How a consumer waits: until it is woken, something falls due, or it is time to look anyway."""

from __future__ import annotations

import threading
from datetime import timedelta
from types import TracebackType

from headgate.queues.contract import Engine, QueueInfo


class Waiting:
    """One waiter for one queue. A wake between `prepare` and `wait` is not lost."""

    def __init__(
        self, engine: Engine, queue: QueueInfo, *, notified: bool, poll: timedelta | None
    ) -> None:
        self._engine, self.queue = engine, queue
        self._poll_s = None if poll is None else poll.total_seconds()
        self._woken = threading.Event()
        self._watch = engine.watch(self._wake) if notified else None

    def prepare(self) -> None:
        """Call this before looking."""
        self._woken.clear()

    def wait(self) -> None:
        """Call this after having found nothing."""
        self._woken.wait(self._timeout())

    def nap(self, seconds: float) -> None:
        """Wait that long, or until stopped or woken."""
        self._woken.wait(seconds)

    def turn_to(self, queue: QueueInfo) -> None:
        """Wait for another queue from now on, after one more look."""
        self.queue = queue
        self._woken.set()

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()

    def __enter__(self) -> Waiting:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _wake(self, queues: frozenset[int] | None) -> None:
        if queues is None or self._engine.operations.remembered(self.queue).id in queues:
            self._woken.set()

    def _timeout(self) -> float | None:
        if self._watch is None:
            return self._poll_s
        due = self._engine.run(self._engine.operations.next_due(self.queue))
        times = [self._poll_s, None if due is None else due / 1e6]
        return min((seconds for seconds in times if seconds is not None), default=None)
