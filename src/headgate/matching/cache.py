"""A cache of answers that is used only while questions repeat.

Keeping an answer costs more than it seems: the question is kept as well, with every value in it. So the cache begins
small. It grows while questions repeat; if none did until it was full, it rests and tries again later. Every eighth
time it tries at full size, for questions that repeat rarely. To free tens of thousands of answers takes tens of
milliseconds, so forgotten answers are freed a few at a time, with every answer that is kept.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

Answer = TypeVar("Answer")

FIRST: Final = 1 << 10  # answers at first
MOST: Final = 1 << 15  # answers at most
MAX_WEIGHT: Final = 1 << 21  # members in all answers, at most
MIN_HIT_RATIO: Final = 1 / 16  # hits for each kept answer; with fewer, the cache pauses
PAUSE_FACTOR: Final = 16  # a pause lasts this many times the questions that the cache had room for
FULL_SIZE_EVERY: Final = 8  # after every eighth pause, it begins at full size
FREED: Final = 64  # forgotten answers freed at a time


class AnswerCache(Generic[Answer]):
    """Answers by question. Ask `resting` first, then `known.get`, and `keep` the answer to a new question."""

    __slots__ = ("_forgotten", "_room", "_tries", "_weight", "hits", "known", "resting")

    def __init__(self) -> None:
        self.known: dict[Any, Answer] = {}
        self._forgotten: list[dict[Any, Answer]] = []  # not freed yet
        self.hits = 0  # counted by the caller: a method would cost as much as the lookup
        # The number of questions for which nothing is looked up or kept; counted down by the caller.
        self.resting = 0
        self._weight = 0
        self._room = FIRST
        self._tries = 0

    def keep(self, question: Any, answer: Answer, weight: int) -> None:
        """Keep an answer; `weight` is how many members it holds for itself."""
        if self._forgotten:
            self._free_some()
        self._weight += weight + 1
        if len(self.known) >= self._room or self._weight > MAX_WEIGHT:
            self._make_room()
        self.known[question] = answer

    def forget(self) -> None:
        """Forget all answers: they are no longer true."""
        if self.known:
            self._forgotten.append(self.known)
            self.known = {}  # another one: a reader without a lock may hold the old one
            self.hits = self._weight = 0

    def _free_some(self) -> None:
        last = self._forgotten[-1]
        for _ in range(min(FREED, len(last))):
            last.popitem()
        if not last:
            self._forgotten.pop()

    def _make_room(self) -> None:
        helped = self.hits >= MIN_HIT_RATIO * len(self.known)
        if helped and self._room < MOST and self._weight <= MAX_WEIGHT:
            self._room = min(self._room * 4, MOST)
            return
        if not helped:
            self.resting = PAUSE_FACTOR * self._room
            self._tries += 1
            self._room = FIRST if self._tries % FULL_SIZE_EVERY else MOST
        self.forget()
