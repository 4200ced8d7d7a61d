"""How a topology is changed: under a lock that most readers do without, and in bulk without the garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Final

from headgate.forks import keep_across_forks

MANY_OBJECTS: Final = 10_000


class ChangeLock:
    """Held during a change. A reader that does not hold it compares `moment` before and after reading.

    `moment` is another object after each change, and None during it: a reader that found the same object twice, and
    not None, has seen no change. Changes do not nest.
    """

    __slots__ = ("lock", "moment")

    def __init__(self) -> None:
        # A long reader holds the lock alone, to keep changes away.
        self.lock = keep_across_forks(RLock())
        self.moment: object | None = object()

    def __enter__(self) -> None:
        self.lock.acquire()
        self.moment = None

    def __exit__(self, *_: object) -> None:
        self.moment = object()
        self.lock.release()


@contextmanager
def pause_collector() -> Iterator[None]:
    """Pause the garbage collector: building makes no garbage, but the collector would traverse the new objects many times."""
    was_running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_running:
            if gc.get_count()[0] > MANY_OBJECTS:
                _move_to_oldest_generation()
            gc.enable()


def _move_to_oldest_generation() -> None:
    """Move the new objects to the oldest generation: they will stay, and the collector need not traverse the younger ones."""
    if (
        not gc.get_freeze_count()
    ):  # which counts them one by one; what other code has frozen must stay so
        gc.freeze()
        gc.unfreeze()  # into the oldest generation, without traversing anything
