"""A million topic patterns, and the few that match one topic.

Patterns without a wildcard are a dictionary. The others share their beginnings in a tree; a topic walks it
once, word by word, with every place it may stand at. A `#` is a place one never leaves, so it is entered
once and kept. The work is bounded by the places that are reached, not by the number of patterns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Set
from typing import Any, Final, Generic, TypeVar

from headgate.filters import MANY, ONE, canonical, words_of
from headgate.matching.groups import Group, Slot, exclude, gathered, include, size

Answer = TypeVar("Answer")

REMEMBERED: Final = 1 << 17  # topics whose answer is kept


class _Place:
    """A beginning that patterns share, and who is at its end."""

    __slots__ = ("many", "one", "slot", "words")

    def __init__(self) -> None:
        self.words: dict[str, _Place] = {}
        self.one: _Place | None = None
        self.many: _Place | None = None
        self.slot: Slot = None

    def step(self, word: str) -> _Place | None:
        if word == ONE:
            return self.one
        return self.many if word == MANY else self.words.get(word)

    def grow(self, word: str) -> _Place:
        place = self.step(word)
        if place is None:
            place = _Place()
            self._set(word, place)
        return place

    def prune(self, word: str) -> None:
        if word in (ONE, MANY):
            self._set(word, None)
        else:
            del self.words[word]

    def _set(self, word: str, place: _Place | None) -> None:
        if word == ONE:
            self.one = place
        elif word == MANY:
            self.many = place
        elif place is not None:
            self.words[word] = place

    @property
    def empty(self) -> bool:
        return not (self.words or self.one or self.many or self.slot is not None)


class TopicTrie(Generic[Answer]):
    """Members under topic patterns. `match` answers with `finish(members)`, and remembers it.

    `settled` is what is remembered, by topic, for callers to whom one call more matters. Answers of the
    type `open` are not among them: whoever finds one there has nothing more to ask about it.
    """

    def __init__(
        self, finish: Callable[[Set[Any]], Answer], open: type[Answer] | None = None
    ) -> None:
        self._finish = finish
        self._open_type = open
        self._exact: dict[str, Slot] = {}
        self._root = _Place()
        self.settled: dict[str, Answer] = {}
        self._open: dict[str, Answer] = {}

    def add(self, pattern: str, member: Hashable) -> None:
        words = canonical(pattern)
        if ONE not in words and MANY not in words:
            self._exact[pattern] = include(self._exact.get(pattern), member)
            self._forget_one(pattern)
            return
        place = self._root
        for word in words:
            place = place.grow(word)
        place.slot = include(place.slot, member)
        self.forget()

    def remove(self, pattern: str, member: Hashable) -> bool:
        """Take the member from under the pattern; whether it was there."""
        words = canonical(pattern)
        if ONE not in words and MANY not in words:
            return self._remove_exact(pattern, member)
        path = [self._root]
        for word in words:
            place = path[-1].step(word)
            if place is None:
                return False
            path.append(place)
        path[-1].slot, found = exclude(path[-1].slot, member)
        for place, word in zip(reversed(path[:-1]), reversed(words), strict=True):
            if not (child := place.step(word)) or not child.empty:
                break
            place.prune(word)
        self.forget()
        return found

    def match(self, topic: str) -> Answer:
        """The answer for everyone whose pattern matches the topic."""
        answer = self.settled.get(topic)
        return self._recall_or_learn(topic) if answer is None else answer

    def forget(self) -> None:
        """Drop the remembered answers: what `finish` makes of the members has changed."""
        self.settled.clear()
        self._open.clear()

    @property
    def leading_many(self) -> int:
        """How many begin with `#` and go on: every word of every topic is looked up among them."""
        many = self._root.many
        return 0 if many is None else sum(size(place.slot) for place in _below(many))

    def _recall_or_learn(self, topic: str) -> Answer:
        answer = self._open.get(topic)
        if answer is not None:
            return answer
        answer = self._finish(self._members(topic))
        if len(self.settled) + len(self._open) >= REMEMBERED:
            self.forget()
        memory = self._open if type(answer) is self._open_type else self.settled
        memory[topic] = answer
        return answer

    def _forget_one(self, topic: str) -> None:
        self.settled.pop(topic, None)
        self._open.pop(topic, None)

    def _members(self, topic: str) -> Set[Any]:
        singles: list[Any] = []
        parts: list[frozenset[Any]] = []
        for slot in self._slots(topic):
            if isinstance(slot, Group):
                parts.append(slot.members)
            else:
                singles.append(slot)
        return gathered(singles, parts)

    def _slots(self, topic: str) -> Iterator[Slot]:
        if (slot := self._exact.get(topic)) is not None:
            yield slot
        standing = [self._root]
        kept: list[_Place] = []  # below a `#`: stands at every word from there on
        entered: set[_Place] = set()
        for word in (*words_of(topic), None):
            for place in standing:
                many = place.many
                if many is not None and many not in entered:
                    entered.add(many)
                    if many.slot is not None:
                        yield many.slot
                    if many.words:
                        kept.append(many)
            if word is None:
                break
            following = [n for place in kept if (n := place.words.get(word)) is not None]
            for place in standing:
                if (child := place.words.get(word)) is not None:
                    following.append(child)
                if place.one is not None:
                    following.append(place.one)
            standing = following
        for place in standing:
            if place.slot is not None:
                yield place.slot

    def _remove_exact(self, pattern: str, member: Hashable) -> bool:
        slot, found = exclude(self._exact.get(pattern), member)
        if slot is None:
            self._exact.pop(pattern, None)
        self._forget_one(pattern)
        return found


def _below(place: _Place) -> Iterator[_Place]:
    stack = list(place.words.values())
    while stack:
        place = stack.pop()
        yield place
        stack.extend(place.words.values())
        stack.extend(child for child in (place.one, place.many) if child is not None)
