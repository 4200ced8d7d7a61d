"""Topic patterns, of which a topic finds those that match among a million.

Patterns without a wildcard are in a dictionary. The others share their first words in a tree; a topic walks it once,
word by word, through all nodes it can be at. A topic never leaves a `#`, so its node is entered once and kept. The
work is bounded by the nodes that are reached, not by the number of patterns.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Set
from typing import Any, Final, Generic, TypeVar

from headgate.filters import MANY, ONE, canonical, words_of
from headgate.matching.groups import MemberGroup, Slot, exclude, include, size, unite

Answer = TypeVar("Answer")

REMEMBERED: Final = 1 << 17  # topics whose answer is kept


class _TrieNode:
    """The first words that patterns share, and the members of the pattern that ends here."""

    __slots__ = ("many", "one", "slot", "words")

    def __init__(self) -> None:
        self.words: dict[str, _TrieNode] = {}
        self.one: _TrieNode | None = None
        self.many: _TrieNode | None = None
        self.slot: Slot = None

    def step(self, word: str) -> _TrieNode | None:
        if word == ONE:
            return self.one
        return self.many if word == MANY else self.words.get(word)

    def grow(self, word: str) -> _TrieNode:
        place = self.step(word)
        if place is None:
            place = _TrieNode()
            self._set(word, place)
        return place

    def prune(self, word: str) -> None:
        if word in (ONE, MANY):
            self._set(word, None)
        else:
            del self.words[word]

    def _set(self, word: str, place: _TrieNode | None) -> None:
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

    `final` holds the remembered answers by topic, for callers that save a call. Answers of the type `provisional`, which
    still need conditions to be tested, are remembered apart from them.
    """

    def __init__(
        self, finish: Callable[[Set[Any]], Answer], provisional: type[Answer] | None = None
    ) -> None:
        self._finish = finish
        self._provisional_type = provisional
        self._exact: dict[str, Slot] = {}
        self._root = _TrieNode()
        self.final: dict[str, Answer] = {}
        self._provisional: dict[str, Answer] = {}

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
        """Remove the member of the pattern; whether it was there."""
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
        """The answer for all members whose pattern matches the topic."""
        answer = self.final.get(topic)
        return self._recall_or_learn(topic) if answer is None else answer

    def forget(self) -> None:
        """Forget the remembered answers, which are no longer true."""
        self.final.clear()
        self._provisional.clear()

    @property
    def leading_many(self) -> int:
        """How many patterns begin with `#` and go on: every word of every topic is looked up among them."""
        many = self._root.many
        return 0 if many is None else sum(size(place.slot) for place in _below(many))

    def _recall_or_learn(self, topic: str) -> Answer:
        answer = self._provisional.get(topic)
        if answer is not None:
            return answer
        answer = self._finish(self._members(topic))
        if len(self.final) + len(self._provisional) >= REMEMBERED:
            self.forget()
        memory = self._provisional if type(answer) is self._provisional_type else self.final
        memory[topic] = answer
        return answer

    def _forget_one(self, topic: str) -> None:
        self.final.pop(topic, None)
        self._provisional.pop(topic, None)

    def _members(self, topic: str) -> Set[Any]:
        singles: list[Any] = []
        parts: list[frozenset[Any]] = []
        for slot in self._slots(topic):
            if isinstance(slot, MemberGroup):
                parts.append(slot.members)
            else:
                singles.append(slot)
        return unite(singles, parts)

    def _slots(self, topic: str) -> Iterator[Slot]:
        if (slot := self._exact.get(topic)) is not None:
            yield slot
        standing = [self._root]
        kept: list[_TrieNode] = []  # below a `#`: stands at every word from there on
        entered: set[_TrieNode] = set()
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


def _below(place: _TrieNode) -> Iterator[_TrieNode]:
    stack = list(place.words.values())
    while stack:
        place = stack.pop()
        yield place
        stack.extend(place.words.values())
        stack.extend(child for child in (place.one, place.many) if child is not None)
