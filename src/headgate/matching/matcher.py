"""Many filters against one message: who wants it?

Filters are found by what a message must hold to have a chance (`paths`), so a message meets only the few it
may match; what remains of those is a compiled test. Equal remainders share one test.

Threads may share a matcher. Its index learns while it answers, so every question holds the lock, as every change.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Set
from threading import RLock
from typing import Any, Final, Generic, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from headgate.clock import now_us
from headgate.columns import BatchColumns
from headgate.filters import Columns, Filter
from headgate.forks import keep_across_forks
from headgate.matching.batch import (
    Alike,
    Asked,
    Rows,
    checked_rows,
    combined,
    match_rows,
    match_topics,
)
from headgate.matching.groups import merged
from headgate.matching.index import Conjunction, EqualityIndex
from headgate.matching.paths import key_of, paths
from headgate.matching.residuals import Check, Checked, Checks, Entry, Few, Waiting, add_passing
from headgate.matching.selections import Selections
from headgate.matching.tree import Column
from headgate.matching.trie import TopicTrie
from headgate.message import OPAQUE, Message

Handle = TypeVar("Handle", bound=Hashable)
Found: TypeAlias = tuple[Set[Any], Checked]

_PLAIN: Final = (str, int, float)


class _Placed:
    """How often a filter was added for a handle, and where it was filed."""

    __slots__ = ("entries", "patterns", "times")

    def __init__(self) -> None:
        self.times = 0
        self.entries: list[Entry] = []
        self.patterns: list[tuple[str, Any]] = []


class Matcher(Generic[Handle]):
    """Handles with their filters; a handle may have several, and is found when one matches."""

    def __init__(
        self,
        entries: Iterable[tuple[Handle, Filter]] = (),
        clock: Callable[[], int] = now_us,
    ) -> None:
        self._lock = keep_across_forks(RLock())
        self._placed: dict[tuple[Handle, Filter], _Placed] = {}
        self._checks = Checks(clock)
        self.equalities: EqualityIndex[Found] = EqualityIndex(_as_found, _key, _PLAIN, read)
        self.trie: TopicTrie[Found] = TopicTrie(_conditions_apart)
        self._patterns = 0
        self.add_all(entries)

    def __len__(self) -> int:
        """How many different (handle, filter) there are."""
        return len(self._placed)

    def __iter__(self) -> Iterator[tuple[Handle, Filter]]:
        with self._lock:
            placed = list(self._placed.items())
        return (said for said, place in placed for _ in range(place.times))

    def __reduce__(self) -> tuple[Any, ...]:
        # Compiled tests cannot travel, and a list of filters is smaller than its index.
        return type(self), (tuple(self), self._checks.clock)

    def add(self, handle: Handle, tree: Filter) -> None:
        """The handle wants what the filter matches; said twice, it must be taken back twice."""
        self.add_all([(handle, tree)])

    def add_all(self, entries: Iterable[tuple[Handle, Filter]]) -> None:
        """Add many filters at once, each with its handle: the index that results is faster."""
        with self._lock:
            places: list[_Placed] = []
            conjunctions: list[Conjunction] = []
            for handle, tree in entries:
                place = self._placed.get((handle, tree))
                if place is None:
                    place = self._placed[handle, tree] = _Placed()
                    conjunctions += self._place(handle, tree, place)
                    places += [place] * (len(conjunctions) - len(places))
                place.times += 1
            made = self.equalities.make_entries(conjunctions)
            for place, entry in zip(places, made, strict=True):
                place.entries.append(entry)
            self.equalities.insert(made)

    def _place(self, handle: Handle, tree: Filter, place: _Placed) -> Iterator[Conjunction]:
        """Add the handle under the topic patterns of the filter; the ways into it by equalities are returned."""
        for path in paths(tree):
            check = self._checks.take(path.rest)
            if path.pattern is None:
                yield path.flat, handle, check
            else:
                place.patterns.append((path.pattern, _member(handle, check)))
                self.trie.add(*place.patterns[-1])
                self._patterns += 1

    def remove(self, handle: Handle, tree: Filter) -> bool:
        """The handle no longer wants it; whether it did."""
        with self._lock:
            place = self._placed.get((handle, tree))
            if place is None:
                return False
            place.times -= 1
            if place.times:
                return True
            del self._placed[handle, tree]
            for entry in place.entries:
                self.equalities.remove(entry)
                self._checks.release(entry[1])
            for pattern, member in place.patterns:
                self.trie.remove(pattern, member)
                self._checks.release(member.check if type(member) is Waiting else None)
            self._patterns -= len(place.patterns)
            return True

    def match(self, message: Message) -> Set[Handle]:
        """Everyone one of whose filters matches the message."""
        with self._lock:
            return self.find(message)

    def find(self, message: Message) -> Set[Handle]:
        """What `match` answers, for who has a lock of their own that every change holds."""
        members, checked = self.equalities.match(message)
        if self._patterns:
            members, checked = _both((members, checked), self.trie.match(message.topic))
        return add_passing(members, checked, message) if checked else members

    def match_batch(self, batch: pa.RecordBatch) -> Selections[Handle]:
        """Which rows of the batch each handle gets."""
        columns, rows = BatchColumns(batch), np.arange(batch.num_rows)
        with self._lock:
            codes, found = self.match_rows(columns, rows)
            selections: Selections[Handle] = Selections(batch.num_rows)
            selections.add(rows, codes, [members for members, _ in found])
            for members, passed in checked_rows(Asked(columns), rows, codes, [c for _, c in found]):
                selections.add_rows(members, passed)
            return selections

    def match_rows(self, columns: Columns, rows: Rows) -> Alike[Found]:
        """For each of the rows who matches for certain, and who does if its check says so."""
        with self._lock:
            alike = match_rows(self.equalities, columns, rows)
            if not self._patterns:
                return alike
            topics = match_topics(self.trie.match, columns, rows)
            codes, first = combined([alike.codes, topics.codes], len(rows))
            pairs = zip(alike.codes[first].tolist(), topics.codes[first].tolist(), strict=True)
            return Alike(codes, [_both(alike.answers[a], topics.answers[t]) for a, t in pairs])


def _member(handle: Any, check: Check | None) -> Any:
    return handle if check is None else Waiting(check, handle)


def read(column: Column, message: Message) -> Any:
    """The message's value in a column."""
    if not isinstance(column, tuple):
        return message.headers.get(column)  # type: ignore[call-overload]
    scope, name = column
    return message.properties.get(name) if scope == "property" else getattr(message, name)


def _as_found(members: Set[Any], checked: Checked) -> Found:
    return members, checked


def _both(left: Found, right: Found) -> Found:
    return merged(left[0], right[0]), (*left[1], *right[1])


def _conditions_apart(members: Set[Any]) -> Found:
    waiting = [(member.slot, member.check) for member in members if type(member) is Waiting]
    if not waiting:
        return members, ()
    return frozenset(m for m in members if type(m) is not Waiting), (Few(waiting),)


def _key(value: Any) -> Hashable:
    """The key of what is neither text nor number: a bool, or something no filter can compare."""
    return key_of(value) if type(value) is bool else OPAQUE
