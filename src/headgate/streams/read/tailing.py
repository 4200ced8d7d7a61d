"""Waiting for what comes into streams that are followed: asleep until one of them changes; it does not poll."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeVar

from headgate.file_watch import Watch
from headgate.streams.format import INDEX_SUFFIX, SEALED_SUFFIX

Found = TypeVar("Found")

LONGEST_SLEEP: Final = 5.0  # seconds; should the kernel ever forget to say that something changed


class Tail:
    """The patience of one consumer. Any thread may stop it; it is closed when nobody waits any more."""

    def __init__(self, *directories: Path, follow: bool, timeout: timedelta | None) -> None:
        """`timeout`: how long to wait for something to come; None for ever. Without `follow`, not at all."""
        self._directories, self._follow = directories, follow
        self._timeout = None if timeout is None else timeout / timedelta(seconds=1)
        self._watch: Watch | None = None
        self._stopped = False

    def next(self, look: Callable[[], Found | None]) -> Found:
        """What is found now, or first of all that comes; StopIteration at the end."""
        found = look()
        if found is None and self._follow:
            found = self._first(look)
        if found is None:
            raise StopIteration
        return found

    def _first(self, look: Callable[[], Found | None]) -> Found | None:
        """What is found first, looking after every change; None when the time is up, or somebody stops it."""
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        while not self._stopped and self._sleep(deadline):
            found = look()
            if found is not None:
                return found
        return None

    def _sleep(self, deadline: float | None) -> bool:
        """Until something changes; False when the time is up."""
        if self._watch is None:
            self._watch = Watch(*self._directories, accepts=matters)
            return True  # what came before the watch began is found by one more look
        left = LONGEST_SLEEP if deadline is None else deadline - time.monotonic()
        if left <= 0:
            return False
        self._watch.wait(min(left, LONGEST_SLEEP))
        return True

    def stop(self) -> None:
        """Let whoever waits give up."""
        self._stopped = True
        if self._watch is not None:
            self._watch.wake()

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None


def matters(name: str) -> bool:
    """Whether a change of this file may mean that there is more to read."""
    return name.endswith((INDEX_SUFFIX, SEALED_SUFFIX))
