"""Remembering answers while that helps, and only then.

Remembering costs more than it looks: the question is kept, and with it every value it was asked with. So a
memory begins small. It grows while questions come back; when none did by the time it was full, it rests, and
tries again later. Every eighth time it tries as large as it may be, for questions that come back rarely. To free
tens of thousands of answers takes tens of milliseconds, so what is forgotten is freed a little with every answer kept.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

Answer = TypeVar("Answer")

FIRST: Final = 1 << 10  # answers to begin with
MOST: Final = 1 << 15  # answers at most
HEAVY: Final = 1 << 21  # members all the answers hold, at most
HELPS: Final = 16  # one question in so many must have come back
REST: Final = 16  # how much longer than trying resting takes
THOROUGH: Final = 8  # every so many times it tries as large as it may be
FREED: Final = 64  # forgotten answers that are freed at a time


class Memory(Generic[Answer]):
    """Answers by question. Ask `resting` first, then `known.get`, and `keep` what had to be found out."""

    __slots__ = ("_forgotten", "_room", "_tries", "_weight", "hits", "known", "resting")

    def __init__(self) -> None:
        self.known: dict[Any, Answer] = {}
        self._forgotten: list[dict[Any, Answer]] = []  # and not freed yet
        self.hits = 0  # counted by who asks: a call would cost as much as the question
        # Questions for which nothing is looked up or kept; counted down by who asks.
        self.resting = 0
        self._weight = 0
        self._room = FIRST
        self._tries = 0

    def keep(self, question: Any, answer: Answer, weight: int) -> None:
        """Remember the answer; `weight` is how many members it holds for itself."""
        if self._forgotten:
            self._free_some()
        self._weight += weight + 1
        if len(self.known) >= self._room or self._weight > HEAVY:
            self._make_room()
        self.known[question] = answer

    def forget(self) -> None:
        """The answers are no longer true."""
        if self.known:
            self._forgotten.append(self.known)
            self.known = {}  # another one: who asks without a lock may hold the old one
            self.hits = self._weight = 0

    def _free_some(self) -> None:
        last = self._forgotten[-1]
        for _ in range(min(FREED, len(last))):
            last.popitem()
        if not last:
            self._forgotten.pop()

    def _make_room(self) -> None:
        helped = self.hits * HELPS >= len(self.known)
        if helped and self._room < MOST and self._weight <= HEAVY:
            self._room = min(self._room * 4, MOST)
            return
        if not helped:
            self.resting = REST * self._room
            self._tries += 1
            self._room = FIRST if self._tries % THOROUGH else MOST
        self.forget()
