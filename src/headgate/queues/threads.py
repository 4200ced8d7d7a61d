"""Events, locks and workers of the sync API. `headgate.queues.aio.tasks` has the same names, with Async, for tasks.

The sync API is generated from the asyncio API; only these two modules and `engines` are written for each of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from threading import Event as Event
from threading import Lock as Lock
from typing import ParamSpec, TypeVar, TypeVarTuple

T = TypeVar("T")
P = ParamSpec("P")
Ts = TypeVarTuple("Ts")


def setter(event: Event) -> Callable[[], object]:
    """Return a function that sets the event, from any thread."""
    return event.set


def call(function: Callable[P, object], *args: P.args, **options: P.kwargs) -> object:
    """Call a handler or callback, and return its result."""
    return function(*args, **options)


def run_blocking(function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Call a function that blocks, and return its result."""
    return function(*args, **options)


def ends_worker(problem: BaseException) -> bool:
    """Whether an exception must end the thread that raised it: never, a thread ends when its consumer is closed."""
    return False


class Worker:
    """A daemon thread that calls a function once."""

    def __init__(self, target: Callable[[*Ts], None], *args: *Ts, name: str) -> None:
        def run() -> None:
            try:
                target(*args)
            finally:
                self._left.set()

        self._thread = threading.Thread(target=run, name=name, daemon=True)
        self._left = threading.Event()  # the thread has ended, or was abandoned
        self._abandoned = False

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def is_current(self) -> bool:
        """Whether the caller runs in this worker."""
        return self._thread is threading.current_thread()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread has ended or was abandoned."""
        if self._left.wait(timeout) and not self._abandoned:
            self._thread.join()

    def abandon(self) -> None:
        """Let `join` return at once. A thread cannot be cancelled: it ends when the function that it calls returns."""
        self._abandoned = True
        self._left.set()


def join_all(workers: Iterable[Worker]) -> None:
    """Wait until all workers have ended or were abandoned."""
    for worker in list(workers):
        worker.join()
