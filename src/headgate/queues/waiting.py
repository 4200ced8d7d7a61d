"""How a consumer waits: until it is woken, something falls due, or it is time to look anyway."""

from __future__ import annotations

import threading
from datetime import timedelta
from types import TracebackType
from typing import Final

from headgate.queues.engine import Engine, QueueInfo

_SHORTEST_PAUSE_S: Final = 0.005
_LONGEST_PAUSE_S: Final = 1.0
_LONGEST_WAIT_S: Final = 86_400.0  # the system's own limits are not to be met


class Patience:
    """How long to wait for what falls due or the next poll, whichever is earlier.

    What is due already, after a look that found nothing, is in somebody else's hands: it is looked for again after a
    pause, and each time after a longer one.
    """

    def __init__(self, poll: timedelta | None) -> None:
        self._poll_s = None if poll is None else poll.total_seconds()
        self._pause_s = _SHORTEST_PAUSE_S

    def seconds(self, due_us: int | None) -> float | None:
        times = [self._poll_s, self._until_due(due_us)]
        return min((seconds for seconds in times if seconds is not None), default=None)

    def _until_due(self, due_us: int | None) -> float | None:
        if due_us == 0:
            pause, self._pause_s = self._pause_s, min(self._pause_s * 2, _LONGEST_PAUSE_S)
            return pause
        self._pause_s = _SHORTEST_PAUSE_S
        return None if due_us is None else min(due_us / 1e6, _LONGEST_WAIT_S)


class Waiting:
    """One waiter for one queue. A wake between `prepare` and `wait` is not lost."""

    def __init__(
        self, engine: Engine, queue: QueueInfo, *, notified: bool, poll: timedelta | None
    ) -> None:
        self._engine, self.queue = engine, queue
        self._patience = Patience(poll)
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
        if queues is None or self._engine.operations.last_known(self.queue).id in queues:
            self._woken.set()

    def _timeout(self) -> float | None:
        if self._watch is None:
            return self._patience.seconds(None)
        due = self._engine.run(self._engine.operations.next_due(self.queue))
        return self._patience.seconds(due)
