"""Many filters against one message: who wants it?

Filters are found by what a message must hold to have a chance (`paths`), so a message meets only the few it
may match; what remains of those is a compiled test. Equal remainders share one test.

Threads may share a matcher. Its index learns while it answers, so every question holds the lock, as every change.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from threading import RLock
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from headgate.filters.access import AccessTree, Checked
from headgate.filters.batches import (
    Alike,
    Asked,
    Rows,
    checked_rows,
    combined,
    match_rows,
    match_topics,
)
from headgate.filters.checks import Check, Checks, passing
from headgate.filters.columns import BatchColumns, Columns
from headgate.filters.groups import merged
from headgate.filters.listings import Conditional, Listing
from headgate.filters.nodes import Filter
from headgate.filters.pairs import Column
from headgate.filters.paths import Path, key_of, paths
from headgate.filters.selections import Selections
from headgate.filters.targets.python import now_us
from headgate.filters.trie import TopicTrie
from headgate.forks import keep_across_forks
from headgate.message import OPAQUE, Message

Handle = TypeVar("Handle", bound=Hashable)
Found: TypeAlias = tuple[Set[Any], Checked]

_PLAIN: Final = (str, int, float)


class _Entry(NamedTuple):
    times: int
    paths: tuple[Path, ...]


class _Seen(NamedTuple):
    """The headers of a message and, beside them, what else is asked for."""

    headers: Mapping[Any, Any]


class Matcher(Generic[Handle]):
    """Handles with their filters; a handle may have several, and is found when one matches."""

    def __init__(
        self,
        entries: Iterable[tuple[Handle, Filter]] = (),
        clock: Callable[[], int] = now_us,
    ) -> None:
        self._lock = keep_across_forks(RLock())
        self._entries: dict[tuple[Handle, Filter], _Entry] = {}
        self._checks = Checks(clock)
        self.tree: AccessTree[Found] = AccessTree(_as_found, _key, _PLAIN)
        self.trie: TopicTrie[Found] = TopicTrie(_conditions_apart)
        self._patterns = 0
        self._outside: dict[Column, int] = {}  # columns that are no headers
        with self.gathering():
            for handle, tree in entries:
                self.add(handle, tree)

    def __len__(self) -> int:
        """How many different (handle, filter) there are."""
        return len(self._entries)

    def __iter__(self) -> Iterator[tuple[Handle, Filter]]:
        with self._lock:
            entries = list(self._entries.items())
        return (said for said, entry in entries for _ in range(entry.times))

    def __reduce__(self) -> tuple[Any, ...]:
        # Compiled tests cannot travel, and a list of filters is smaller than its index.
        return type(self), (tuple(self), self._checks.clock)

    def add(self, handle: Handle, tree: Filter) -> None:
        """The handle wants what the filter matches; said twice, it must be taken back twice."""
        with self._lock:
            entry = self._entries.get((handle, tree))
            if entry is not None:
                self._entries[handle, tree] = entry._replace(times=entry.times + 1)
                return
            entry = self._entries[handle, tree] = _Entry(1, paths(tree))
            for path in entry.paths:
                check = self._checks.take(path.rest)
                if path.pattern is None:
                    self.tree.add(path.flat, handle, check)
                    self._count_outside(path, 1)
                else:
                    self.trie.add(path.pattern, _member(handle, check))
                    self._patterns += 1

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Who is added meanwhile is found only afterwards, and faster; until then nothing may be asked or removed."""
        with self._lock, self.tree.gathering():
            yield

    def remove(self, handle: Handle, tree: Filter) -> bool:
        """The handle no longer wants it; whether it did."""
        with self._lock:
            entry = self._entries.get((handle, tree))
            if entry is None:
                return False
            if entry.times > 1:
                self._entries[handle, tree] = entry._replace(times=entry.times - 1)
                return True
            del self._entries[handle, tree]
            for path in entry.paths:
                check = self._checks.find(path.rest)
                if path.pattern is None:
                    self.tree.remove(path.flat, handle, check)
                    self._count_outside(path, -1)
                else:
                    self.trie.remove(path.pattern, _member(handle, check))
                    self._patterns -= 1
                self._checks.release(path.rest)
            return True

    def match(self, message: Message) -> Set[Handle]:
        """Everyone one of whose filters matches the message."""
        with self._lock:
            return self.find(message)

    def find(self, message: Message) -> Set[Handle]:
        """What `match` answers, for who has a lock of their own that every change holds."""
        members, checked = self.tree.match(self._seen(message) if self._outside else message)
        if self._patterns:
            members, checked = _both((members, checked), self.trie.match(message.topic))
        return passing(members, checked, message) if checked else members

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
            alike = match_rows(self.tree, columns, rows)
            if not self._patterns:
                return alike
            topics = match_topics(self.trie.match, columns, rows)
            codes, first = combined([alike.codes, topics.codes], len(rows))
            pairs = zip(alike.codes[first].tolist(), topics.codes[first].tolist(), strict=True)
            return Alike(codes, [_both(alike.answers[a], topics.answers[t]) for a, t in pairs])

    def _seen(self, message: Message) -> _Seen:
        seen: dict[Any, Any] = dict(message.headers)
        for column in self._outside:
            seen[column] = read(column, message)
        return _Seen(seen)

    def _count_outside(self, path: Path, by: int) -> None:
        for column, _ in path.wanted:
            if isinstance(column, tuple):
                left = self._outside.get(column, 0) + by
                self._outside[column] = left
                if not left:
                    del self._outside[column]


def _member(handle: Any, check: Check | None) -> Any:
    return handle if check is None else Conditional(check, handle)


def read(column: Column, message: Message) -> Any:
    """The message's value in a column that is no header."""
    assert isinstance(column, tuple)
    scope, name = column
    return message.properties.get(name) if scope == "property" else getattr(message, name)


def _as_found(members: Set[Any], checked: Checked) -> Found:
    return members, checked


def _both(left: Found, right: Found) -> Found:
    return merged(left[0], right[0]), (*left[1], *right[1])


def _conditions_apart(members: Set[Any]) -> Found:
    conditions = tuple(m for m in members if type(m) is Conditional)
    if not conditions:
        return members, ()
    return frozenset(m for m in members if type(m) is not Conditional), (Listing(conditions),)


def _key(value: Any) -> Hashable:
    """The key of what is neither text nor number: a bool, or something no filter can compare."""
    return key_of(value) if type(value) is bool else OPAQUE
