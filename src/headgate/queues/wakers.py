"""Everyone in this process who wants to be woken by an engine."""

from __future__ import annotations

import logging
import threading

from headgate.queues.engine import Wake

_log = logging.getLogger(__name__)


class Wakers:
    """Who is to be woken. Safe to use from several threads."""

    def __init__(self) -> None:
        self._wakes: dict[Registration, Wake] = {}
        self._lock = threading.Lock()

    def add(self, wake: Wake) -> Registration:
        """Until the registration is closed, `wake` is called."""
        registration = Registration(self)
        with self._lock:
            self._wakes[registration] = wake
        return registration

    def remove(self, registration: Registration) -> None:
        with self._lock:
            self._wakes.pop(registration, None)

    def wake(self, queues: frozenset[int] | None) -> None:
        """Call them all; what they do must not block."""
        if not self._wakes:
            return
        with self._lock:
            wakes = list(self._wakes.values())
        for wake in wakes:
            try:
                wake(queues)
            except (
                Exception
            ):  # such as that of an event loop that was closed: the others are woken all the same
                _log.warning("one who waits could not be woken", exc_info=True)


class Registration:
    """One who wants to be woken, until closed."""

    def __init__(self, wakers: Wakers) -> None:
        self._wakers = wakers

    def close(self) -> None:
        self._wakers.remove(self)
