"""Many filters against one message: which of them match?

A filter is filed under what a message must hold for it to match (`paths`), so a message meets only the few filters it
may match. The rest of a filter is a compiled test; filters with equal rests share one test.

Threads may share a matcher. Its index keeps answers, so every question holds the lock, as every change does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Set
from threading import RLock
from typing import Any, Final, Generic, TypeVar

import numpy as np
import pyarrow as pa

from headgate.clock import now_us
from headgate.columns import BatchColumns
from headgate.filters import Columns, Filter
from headgate.forks import keep_across_forks
from headgate.matching.batch import (
    BatchChecks,
    CodedAnswers,
    RowNumbers,
    Selections,
    combine_codes,
    match_rows,
    match_topics,
    passing_rows,
)
from headgate.matching.groups import merge
from headgate.matching.index import Conjunction, EqualityIndex
from headgate.matching.paths import key_of, paths
from headgate.matching.residuals import (
    Check,
    CheckedEntries,
    Checks,
    ConditionalSlot,
    Entry,
    OpenChecks,
    add_passing,
)
from headgate.matching.tree import Found, IndexColumn
from headgate.matching.trie import TopicTrie
from headgate.message import OPAQUE, Message

Handle = TypeVar("Handle", bound=Hashable)

_PLAIN: Final = (str, int, float)
_NOBODY: Final[frozenset[Any]] = frozenset()


class _Filing:
    """How often a filter was added for a handle, and where it is filed."""

    __slots__ = ("entries", "patterns", "times")

    def __init__(self) -> None:
        self.times = 0
        self.entries: list[Entry] = []
        self.patterns: list[tuple[str, Any]] = []


class Matcher(Generic[Handle]):
    """Handles with their filters; a handle may have several, and matches when one of them does."""

    def __init__(
        self,
        entries: Iterable[tuple[Handle, Filter]] = (),
        clock: Callable[[], int] = now_us,
    ) -> None:
        self._lock = keep_across_forks(RLock())
        self._filings: dict[tuple[Handle, Filter], _Filing] = {}
        self._checks = Checks(clock)
        self.equalities: EqualityIndex[Found] = EqualityIndex(_pair_with_checks, _key, _PLAIN, read)
        self.trie: TopicTrie[Found] = TopicTrie(_split_conditional)
        self._patterns = 0
        self._only: tuple[frozenset[Handle], Check] | None = None  # while it holds one filter
        self._tests: list[tuple[Handle, Callable[[Message], bool]]] | None = None
        self.add_all(entries)

    def __len__(self) -> int:
        """How many different (handle, filter) there are."""
        return len(self._filings)

    def __iter__(self) -> Iterator[tuple[Handle, Filter]]:
        with self._lock:
            filings = list(self._filings.items())
        return (added for added, filing in filings for _ in range(filing.times))

    def __reduce__(self) -> tuple[Any, ...]:
        # Compiled tests cannot be pickled, and a list of filters is smaller than its index.
        return type(self), (tuple(self), self._checks.clock)

    def add(self, handle: Handle, tree: Filter) -> None:
        """Add a filter for a handle; one that was added twice must be removed twice."""
        self.add_all([(handle, tree)])

    def add_all(self, entries: Iterable[tuple[Handle, Filter]]) -> None:
        """Add many filters at once, each with its handle, which makes a faster index."""
        with self._lock:
            filings: list[_Filing] = []
            conjunctions: list[Conjunction] = []
            for handle, tree in entries:
                filing = self._filings.get((handle, tree))
                if filing is None:
                    filing = self._filings[handle, tree] = _Filing()
                    conjunctions += self._file(handle, tree, filing)
                    filings += [filing] * (len(conjunctions) - len(filings))
                filing.times += 1
            made = self.equalities.make_entries(conjunctions)
            for filing, entry in zip(filings, made, strict=True):
                filing.entries.append(entry)
            self.equalities.insert(made)
            self._look_for_only()

    def _file(self, handle: Handle, tree: Filter, filing: _Filing) -> Iterator[Conjunction]:
        """Add the handle under the topic patterns of the filter, and return the conjunctions of its other paths."""
        for path in paths(tree):
            check = self._checks.take(path.rest)
            if path.pattern is None:
                yield path.flat, handle, check
            else:
                filing.patterns.append((path.pattern, _member(handle, check)))
                self.trie.add(*filing.patterns[-1])
                self._patterns += 1

    def remove(self, handle: Handle, tree: Filter) -> bool:
        """Remove a filter of a handle; whether it was there."""
        with self._lock:
            filing = self._filings.get((handle, tree))
            if filing is None:
                return False
            filing.times -= 1
            if filing.times:
                return True
            del self._filings[handle, tree]
            for entry in filing.entries:
                self.equalities.remove(entry)
                self._checks.release(entry[1])
            for pattern, member in filing.patterns:
                self.trie.remove(pattern, member)
                self._checks.release(member.check if type(member) is ConditionalSlot else None)
            self._patterns -= len(filing.patterns)
            self._look_for_only()
            return True

    def _look_for_only(self) -> None:
        """A filter that is alone is asked without an index."""
        self._only = self._tests = None
        if len(self._filings) == 1:
            [(handle, tree)] = self._filings
            self._only = frozenset((handle,)), Check(tree, self._checks.clock)

    def tests(self) -> Sequence[tuple[Handle, Callable[[Message], bool]]]:
        """Every handle with each of its filters as a test, for an owner that asks a few of them without the index."""
        with self._lock:
            if self._tests is None:
                clock = self._checks.clock
                self._tests = [(h, Check(tree, clock).compile()) for h, tree in self._filings]
            return self._tests

    def match(self, message: Message) -> Set[Handle]:
        """The handles that have a filter which matches the message."""
        with self._lock:
            return self.find(message)

    def find(self, message: Message) -> Set[Handle]:
        """What `match` answers, for an owner whose own lock is held by every change and every question."""
        if self._only is not None:
            only, check = self._only
            return only if check.test(message) else _NOBODY
        members, checks = self.equalities.match(message)
        if self._patterns:
            members, checks = _merge_found((members, checks), self.trie.match(message.topic))
        return add_passing(members, checks, message) if checks else members

    def recall(self, message: Message) -> Set[Handle] | None:
        """What `find` answers, without a lock, or None; see `EqualityIndex.recall`."""
        found = self.equalities.recall(message)
        if found is None:
            return None
        members, checks = found
        if self._patterns:
            known = self.trie.final.get(message.topic)
            if known is None:
                return None
            members, checks = _merge_found(found, known)
        return add_passing(members, checks, message) if checks else members

    def match_batch(self, batch: pa.RecordBatch) -> Selections[Handle]:
        """The rows of the batch that each handle gets."""
        columns, rows = BatchColumns(batch), np.arange(batch.num_rows)
        with self._lock:
            codes, found = self.match_rows(columns, rows)
            selections: Selections[Handle] = Selections(batch.num_rows)
            selections.add(rows, codes, [members for members, _ in found])
            checks = BatchChecks(columns)
            for members, passed in passing_rows(checks, rows, codes, [c for _, c in found]):
                selections.add_rows(members, passed)
            return selections

    def match_rows(self, columns: Columns, rows: RowNumbers) -> CodedAnswers[Found]:
        """For each of the rows the handles that match for certain, and those that have a check left."""
        with self._lock:
            alike = match_rows(self.equalities, columns, rows)
            if not self._patterns:
                return alike
            topics = match_topics(self.trie.match, columns, rows)
            codes, first = combine_codes([alike.codes, topics.codes], len(rows))
            pairs = zip(alike.codes[first].tolist(), topics.codes[first].tolist(), strict=True)
            return CodedAnswers(
                codes, [_merge_found(alike.answers[a], topics.answers[t]) for a, t in pairs]
            )


def _member(handle: Any, check: Check | None) -> Any:
    return handle if check is None else ConditionalSlot(check, handle)


def read(column: IndexColumn, message: Message) -> Any:
    """The message's value in a column."""
    if not isinstance(column, tuple):
        return message.headers.get(column)  # type: ignore[call-overload]
    scope, name = column
    return message.properties.get(name) if scope == "property" else getattr(message, name)


def _pair_with_checks(members: Set[Any], checks: OpenChecks) -> Found:
    return members, checks


def _merge_found(left: Found, right: Found) -> Found:
    return merge(left[0], right[0]), (*left[1], *right[1])


def _split_conditional(members: Set[Any]) -> Found:
    conditional = [(m.slot, m.check) for m in members if type(m) is ConditionalSlot]
    if not conditional:
        return members, ()
    certain = frozenset(m for m in members if type(m) is not ConditionalSlot)
    return certain, (CheckedEntries(conditional),)


def _key(value: Any) -> Hashable:
    """The key of a value that is neither text nor number: a bool, or one that no filter can compare."""
    return key_of(value) if type(value) is bool else OPAQUE
