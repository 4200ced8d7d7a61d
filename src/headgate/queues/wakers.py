"""The callbacks in this process that an engine calls after commits.

Consumers that would claim the same messages stand in one line, and a commit wakes one of them. No message is missed: a
consumer wakes the next one of its line when its claim finds messages and when it is closed, also when it was woken and has not
claimed since. A claim that finds nothing ends the chain: then there is nothing for the others either.

Only the first consumer of a chain claims at once. The next ones look first, by a query that writes nothing, whether there is
something to claim.

Every process wakes a consumer of its own for the same commit. So that they do not all claim one message, a woken consumer may
have to let other processes go first, and then looks. It waits a moment if the last consumer that a commit woke in its line
found nothing, and a little longer if other consumers of its line are at work, unless something was found after such a wait a
short time ago. How long a claim takes depends on the load of the machine and of the server: so the moment doubles when a
consumer saw a message after it and claimed in vain, and else becomes shorter again; it differs a little each time, so that
processes that wait for the same commit look one after the other. A look sees all commits until it begins, as a claim does, and
a consumer that is woken while it looks does so again: so no message is missed.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final

from headgate.queues.engine import Wake

_log = logging.getLogger(__name__)

# A woken consumer that has not claimed by then is held up, and another one is woken.
_COMES_WITHIN_S: Final = 0.1
# How long a woken consumer lets other processes go first, at least and at most: longer than an undisturbed claim takes.
_LATE_S: Final = 0.002
_LATEST_S: Final = 0.016
_SHORTER: Final = 0.98  # the factor of that time after a wait that was long enough
_BUSY: Final = 2.5  # the factor of that time for a line with consumers at work: idle ones go first
# How long no other process is assumed to be idle, after one was found not to be.
_ALONE_S: Final = 1.0


@dataclass(slots=True)
class Line:
    """Consumers of one queue that would claim the same messages."""

    queue_id: Callable[[], int]
    waiting: dict[Waiter, None] = field(default_factory=dict)
    # Waiters that were woken, and waiters that are claiming or looking: since when.
    coming: dict[Waiter, float] = field(default_factory=dict)
    looking: dict[Waiter, float] = field(default_factory=dict)
    members: int = 0
    is_late: bool = False  # whether the last waiter that a commit woke found nothing
    late_s: float = _LATE_S  # how long a late line waits, at least
    alone_until: float = 0.0  # until when no other process is assumed to be idle

    def delay_s(self) -> float | None:
        """Return how long a waiter that a commit wakes lets other processes go first; None: it claims at once."""
        if self.is_late:
            return self.late_s * random.uniform(1, 2)
        at_work = self.members - len(self.waiting) - len(self.looking) - len(self.coming)
        return self.late_s * _BUSY if at_work and time.monotonic() >= self.alone_until else None

    def take_for_commit(self) -> Waiter | None:
        """Take the waiter to wake for a commit; it may have to let other processes go first."""
        delay_s = self.delay_s()
        waiter = self.take()
        if waiter is not None:
            waiter.is_for_commit, waiter.delay_s = True, delay_s
        return waiter

    def take_in_turn(self) -> Waiter | None:
        """Take the waiter to wake after another one has found messages; it looks before it claims."""
        waiter = self.take()
        if waiter is not None:
            waiter.delay_s = 0.0
        return waiter

    def take(self) -> Waiter | None:
        """Take the waiter to wake next; None while a woken one is coming: its claim begins later, and sees all commits until now.

        A waiter that has just begun to claim comes first: it claims once more, or leaves and wakes the next. If there is none,
        the waiter that began to wait last is taken.
        """
        recent = time.monotonic() - _COMES_WITHIN_S
        if any(since > recent for since in self.coming.values()):
            return None
        waiter = next((each for each, since in self.looking.items() if since > recent), None)
        if waiter is None:
            waiter = next(reversed(self.waiting), None) or next(iter(self.looking), None)
        if waiter is None or waiter.is_called:
            return None
        if self.waiting.pop(waiter, self) is None:
            self.coming[waiter] = time.monotonic()
        waiter.is_called = True
        return waiter

    def remove(self, waiter: Waiter) -> None:
        """Remove a waiter from those that wait, look or come."""
        for each in (self.waiting, self.coming, self.looking):
            each.pop(waiter, None)

    def take_for_due_time(self) -> Waiter | None:
        """Return the waiter that is to look up when the next message falls due; it goes on waiting."""
        return next(reversed(self.waiting), None) or self.take()


class Wakers:
    """The registered callbacks. Safe to use from several threads."""

    def __init__(self) -> None:
        self._wakes: dict[Registration, Wake] = {}
        self._lines: dict[Hashable, Line] = {}
        self._lock = threading.Lock()
        self._awaited = threading.Event()  # set when a consumer begins to wait for a commit

    def add(self, wake: Wake) -> Registration:
        """Register `wake`, which is called after commits until the registration is closed."""
        registration = Registration(self)
        with self._lock:
            self._wakes[registration] = wake
        self.resume()
        return registration

    def remove(self, registration: Registration) -> None:
        with self._lock:
            self._wakes.pop(registration, None)

    def join(
        self, line: Hashable, queue_id: Callable[[], int], wake: Callable[[], object]
    ) -> Waiter:
        """Join a line, and return the waiter: `wake` is called when its turn comes, until it is closed."""
        with self._lock:
            joined = self._lines.setdefault(line, Line(queue_id))
            joined.members += 1
            return Waiter(self, line, joined, wake)

    def are_awaited(self) -> bool:
        """Whether any consumer waits for a commit. One that claims does not wait; it begins to wait when it finds nothing."""
        with self._lock:
            return bool(self._wakes) or any(line.waiting for line in self._lines.values())

    def rest(self, ends: Callable[[], bool]) -> bool:
        """Pause until a consumer waits for a commit, or until `resume` is called; do not pause, and return False, if one waits
        already or `ends()` is true."""
        self._awaited.clear()
        if ends() or self.are_awaited():
            return False
        self._awaited.wait()
        return True

    def resume(self) -> None:
        """End the pause of `rest`."""
        self._awaited.set()

    def queues(self) -> set[int]:
        """Return the ids of the queues that the lines are for."""
        with self._lock:
            lines = list(self._lines.values())
        return {line.queue_id() for line in lines}

    def wake(self, queues: frozenset[int] | None) -> None:
        """Call all registered callbacks, and wake one waiter of each line for these queues, or with None of every line."""
        if not self._wakes and not self._lines:
            return
        with self._lock:
            wakes, lines = list(self._wakes.values()), list(self._lines.values())
        for wake in wakes:
            try:
                wake(queues)
            except Exception:  # the others must be called
                _log.warning("a waiting consumer could not be woken", exc_info=True)
        for line in lines:
            if queues is None or line.queue_id() in queues:
                self._wake_one(line, Line.take_for_commit)

    def set_due_time(self, queues: frozenset[int]) -> None:
        """Let one waiter of each line for these queues look up again when the next message falls due."""
        with self._lock:
            lines = list(self._lines.values())
        for line in lines:
            if line.queue_id() in queues:
                self._wake_one(line, Line.take_for_due_time)

    def _wake_one(self, line: Line, take: Callable[[Line], Waiter | None]) -> None:
        """Wake the next waiter of the line; remove those that cannot be woken."""
        while True:
            with self._lock:
                waiter = take(line)
            if waiter is None:
                return
            try:
                if waiter.wake() is not False:
                    return
            except Exception:
                _log.warning("a waiting consumer could not be woken", exc_info=True)
            with self._lock:
                line.remove(waiter)


class Registration:
    """One registered callback."""

    def __init__(self, wakers: Wakers) -> None:
        self._wakers = wakers

    def close(self) -> None:
        self._wakers.remove(self)


class Waiter:
    """A consumer in a line. It can be woken from `look` on, until it leaves or is closed."""

    def __init__(
        self, wakers: Wakers, key: Hashable, line: Line, wake: Callable[[], object]
    ) -> None:
        self._wakers, self._key, self._line, self.wake = wakers, key, line, wake
        self.is_called = self.is_for_commit = self._is_closed = False
        self._is_urgent = self._has_seen = False
        # Seconds to wait before looking whether there is something to claim; None: claim without looking.
        self.delay_s: float | None = None

    def look(self) -> None:
        """Note that a claim begins: a wake-up from now on makes the consumer claim once more."""
        with self._wakers._lock:
            self._is_urgent = False
            self._look()

    def look_later(self) -> bool:
        """Note after the delay that a look begins; return False if the consumer must claim without looking."""
        with self._wakers._lock:
            if self._is_urgent or self._is_closed:
                return False
            self._look()
            return True

    def _look(self) -> None:
        self.is_called, self.delay_s = False, None
        self._line.remove(self)
        self._line.looking[self] = time.monotonic()

    def note_left(self) -> None:
        """Note that there still was something to claim after the delay: no other process was idle, or its claim goes on."""
        with self._wakers._lock:
            self._has_seen = True

    def note_taken(self) -> None:
        """Note that there was nothing left to claim after the delay: another process was faster."""
        with self._wakers._lock:
            self._line.late_s = max(self._line.late_s * _SHORTER, _LATE_S)

    def wait(self) -> bool:
        """Note that a claim found nothing, and that the consumer will wait; return False if it was woken since `look`."""
        with self._wakers._lock:
            if self.is_for_commit:
                self._line.is_late, self.is_for_commit = True, False
            if self._has_seen:
                self._line.late_s, self._has_seen = min(self._line.late_s * 2, _LATEST_S), False
            if not self.is_called and not self._is_closed:
                self._line.looking.pop(self, None)
                self._line.waiting[self] = None
                self._wakers.resume()
            return not self.is_called

    def leave(self) -> None:
        """Leave the line after a claim that found something, and wake the next waiter, for there may be more."""
        with self._wakers._lock:
            if self._has_seen:
                self._line.alone_until = time.monotonic() + _ALONE_S
            self._line.is_late = self.is_for_commit = self._has_seen = False
            self._line.remove(self)
        self._wakers._wake_one(self._line, Line.take_in_turn)

    def call(self) -> None:
        """Wake this waiter out of turn; it claims without looking."""
        with self._wakers._lock:
            self.is_called = self._is_urgent = True
            self._line.waiting.pop(self, None)
        self.wake()

    def is_line_looking(self) -> bool:
        """Whether another waiter of the line is claiming or looking."""
        return bool(self._line.looking)

    def close(self) -> None:
        """Leave for good, and wake the next waiter: this one may have been woken, or was waiting for a due message."""
        with self._wakers._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._line.members -= 1
            if not self._line.members:
                self._wakers._lines.pop(self._key, None)
        self.leave()
