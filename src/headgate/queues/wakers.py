"""The callbacks in this process that an engine calls after commits."""

from __future__ import annotations

import logging
import threading

from headgate.queues.engine import Wake

_log = logging.getLogger(__name__)


class Wakers:
    """The registered callbacks. Safe to use from several threads."""

    def __init__(self) -> None:
        self._wakes: dict[Registration, Wake] = {}
        self._lock = threading.Lock()

    def add(self, wake: Wake) -> Registration:
        """Call `wake` until the registration is closed."""
        registration = Registration(self)
        with self._lock:
            self._wakes[registration] = wake
        return registration

    def remove(self, registration: Registration) -> None:
        with self._lock:
            self._wakes.pop(registration, None)

    def wake(self, queues: frozenset[int] | None) -> None:
        """Call all of them; they must not block."""
        if not self._wakes:
            return
        with self._lock:
            wakes = list(self._wakes.values())
        for wake in wakes:
            try:
                wake(queues)
            except Exception:  # of a closed event loop, for example; the others must be called
                _log.warning("a waiting consumer could not be woken", exc_info=True)


class Registration:
    """One registered callback."""

    def __init__(self, wakers: Wakers) -> None:
        self._wakers = wakers

    def close(self) -> None:
        self._wakers.remove(self)
