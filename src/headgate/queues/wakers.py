"""The callbacks in this process that an engine calls after commits.

Consumers that would claim the same messages stand in one line, and a commit wakes one of them. Nothing is missed, because
a consumer that leaves the line with messages, or for good, wakes the next; so does the end of a consumer that was woken and has not
claimed. One that finds nothing ends the chain: then there is nothing for the others either.

Only the first consumer of a chain claims at once. The next ones look, by a query that writes nothing, whether something is left.

Each process wakes a consumer of its own for the same commit. So that they do not all claim the one message, a consumer of a line
that came too late the last time waits a moment, and then looks; so does, a little longer, one of a line whose consumers are at work,
unless it is known that no other process takes the message meanwhile. A look sees all commits until it begins, as a claim does, and
who is woken while it looks looks again: so nothing is missed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final

from headgate.queues.engine import Wake

_log = logging.getLogger(__name__)

_COMES_WITHIN_S: Final = 0.1  # else its thread is held up, and another one is woken
_LATE_S: Final = 0.002  # longer than a claim takes
_BUSY_S: Final = 0.005  # longer than those wait that are late
_ALONE_S: Final = 1.0  # how long it is taken for granted that no other process is idle


@dataclass(slots=True)
class Line:
    """Consumers of one queue that would claim the same messages."""

    queue_id: Callable[[], int]
    waiting: dict[Waiter, None] = field(default_factory=dict)
    # Those that were woken or are claiming, and since when.
    coming: dict[Waiter, float] = field(default_factory=dict)
    looking: dict[Waiter, float] = field(default_factory=dict)
    members: int = 0
    is_late: bool = False  # whether the last one that a commit woke has found nothing
    alone_until: float = 0.0

    def delay_s(self) -> float | None:
        """How long one that a commit wakes lets other processes go first; None if it claims at once."""
        if self.is_late:
            return _LATE_S
        at_work = self.members - len(self.waiting) - len(self.looking) - len(self.coming)
        return _BUSY_S if at_work and time.monotonic() >= self.alone_until else None

    def take_for_commit(self) -> Waiter | None:
        """The waiter to wake for a commit, which may have to let other processes go first."""
        delay_s = self.delay_s()
        waiter = self.take()
        if waiter is not None:
            waiter.is_for_commit, waiter.delay_s = True, delay_s
        return waiter

    def take_in_turn(self) -> Waiter | None:
        """The waiter to wake after another one, which looks before it claims."""
        waiter = self.take()
        if waiter is not None:
            waiter.delay_s = 0.0
        return waiter

    def take(self) -> Waiter | None:
        """The waiter to wake next; None while one is coming, whose claim is still to begin and sees all commits until now.

        One that is claiming already looks once more, or leaves and wakes the next. If there is none, it is the turn of the
        one that came last.
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
        """Forget that it waits, looks or comes."""
        for each in (self.waiting, self.coming, self.looking):
            each.pop(waiter, None)

    def take_for_due_time(self) -> Waiter | None:
        """The waiter that is to look when the next message falls due; it goes on waiting."""
        return next(reversed(self.waiting), None) or self.take()


class Wakers:
    """The registered callbacks. Safe to use from several threads."""

    def __init__(self) -> None:
        self._wakes: dict[Registration, Wake] = {}
        self._lines: dict[Hashable, Line] = {}
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

    def join(
        self, line: Hashable, queue_id: Callable[[], int], wake: Callable[[], object]
    ) -> Waiter:
        """Call `wake` when it is its turn in the line, until the waiter is closed."""
        with self._lock:
            joined = self._lines.setdefault(line, Line(queue_id))
            joined.members += 1
            return Waiter(self, line, joined, wake)

    def queues(self) -> set[int]:
        """The queues that the lines are for."""
        with self._lock:
            lines = list(self._lines.values())
        return {line.queue_id() for line in lines}

    def wake(self, queues: frozenset[int] | None) -> None:
        """Call all callbacks, and one of each line for these queues, or with None of every line; they must not block."""
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
        """Let one of each line for these queues look up anew when the next message falls due."""
        with self._lock:
            lines = list(self._lines.values())
        for line in lines:
            if line.queue_id() in queues:
                self._wake_one(line, Line.take_for_due_time)

    def _wake_one(self, line: Line, take: Callable[[Line], Waiter | None]) -> None:
        """Wake the next of the line; one that cannot be woken is left out."""
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
    """A consumer in a line. It is woken from `look` on, until it leaves or is closed."""

    def __init__(
        self, wakers: Wakers, key: Hashable, line: Line, wake: Callable[[], object]
    ) -> None:
        self._wakers, self._key, self._line, self.wake = wakers, key, line, wake
        self.is_called = self.is_for_commit = self._is_closed = False
        self._is_urgent = False
        # How long to wait before it looks whether there is something to claim; None: it claims without a look.
        self.delay_s: float | None = None

    def look(self) -> None:
        """Call this before a claim: who wakes it from now on makes it claim once more."""
        with self._wakers._lock:
            self._is_urgent = False
            self._look()

    def look_later(self) -> bool:
        """Call this after the delay, before it looks whether there is something to claim; False if it must claim anyway."""
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
        """Call this when there still is something to claim after the delay: no other process was idle."""
        with self._wakers._lock:
            self._line.alone_until = time.monotonic() + _ALONE_S

    def wait(self) -> bool:
        """Call this before waiting, after a claim that found nothing; False if it was woken since `look`."""
        with self._wakers._lock:
            if self.is_for_commit:
                self._line.is_late, self.is_for_commit = True, False
            if not self.is_called and not self._is_closed:
                self._line.looking.pop(self, None)
                self._line.waiting[self] = None
            return not self.is_called

    def leave(self) -> None:
        """Call this after a claim that found something: the next one is woken, for there may be more."""
        with self._wakers._lock:
            self._line.is_late = self.is_for_commit = False
            self._line.remove(self)
        self._wakers._wake_one(self._line, Line.take_in_turn)

    def call(self) -> None:
        """Wake this one, out of turn."""
        with self._wakers._lock:
            self.is_called = self._is_urgent = True
            self._line.waiting.pop(self, None)
        self.wake()

    def is_line_looking(self) -> bool:
        """Whether another one of the line is claiming."""
        return bool(self._line.looking)

    def close(self) -> None:
        """Leave for good. The next one is woken: this one may have been, or was to wait for a message that falls due."""
        with self._wakers._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._line.members -= 1
            if not self._line.members:
                self._wakers._lines.pop(self._key, None)
        self.leave()
