"""The handlers that a consumer runs: since when, for which delivery, and which messages wait behind it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, TypeVar

from headgate.queues.engine import ClaimedMessage, Receipt

D = TypeVar("D")  # Delivery or AsyncDelivery
W = TypeVar("W")  # what runs the handler


class HandlerGivenUp(Exception):
    """The handler took longer than its timeout, or its consumer was stopped: the consumer has settled its messages."""


@dataclass(eq=False, slots=True)
class HandlerRun(Generic[D, W]):
    """One call of a handler."""

    delivery: D
    waiting: Sequence[ClaimedMessage]  # claimed together with it, and handled after it
    runner: W
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began


class HandlerRuns(Generic[D, W]):
    """All handlers that are running. Each run is ended once: by its runner, or by the caller of `give_up`."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running: dict[HandlerRun[D, W], None] = {}

    def begin(self, delivery: D, waiting: Sequence[ClaimedMessage], runner: W) -> HandlerRun[D, W]:
        """Note that a handler is being called; return its run."""
        run = HandlerRun(delivery, waiting, runner)
        with self._lock:
            self._running[run] = None
        return run

    def end(self, run: HandlerRun[D, W]) -> None:
        """Note that the handler has returned or raised; raise HandlerGivenUp if the run was given up before."""
        with self._lock:
            if run not in self._running:
                raise HandlerGivenUp
            del self._running[run]

    def give_up(self, older_than_s: float = 0.0) -> list[HandlerRun[D, W]]:
        """End all runs that have taken at least that long, and return them: the caller settles their messages."""
        with self._lock:
            found = [run for run in self._running if run.seconds >= older_than_s]
            for run in found:
                del self._running[run]
        return found

    def seconds_left(self, limit_s: float) -> float:
        """Return the seconds until the oldest run has taken `limit_s`; the limit itself if nothing is running."""
        with self._lock:
            longest = max((run.seconds for run in self._running), default=0.0)
        return max(limit_s - longest, 0.0)


def receipts_of(claimed: Sequence[ClaimedMessage]) -> list[Receipt]:
    return [one.receipt for one in claimed]
