"""Members under conjunctions of equalities, found by what a message holds.

    tenant ── zeta ── q1 (region = US), q2
    region ── EU ─┬─ type ─┬─ created ── {q7, q9}
                  │        └─ updated ── q3 (plan = free)
                  └─ plan ─── paid ── q4 (currency = EUR)

A pair is a column and the key its value must have. Each conjunction is filed under the pair that fewest others ask
for; where a place gets crowded, its entries are filed one step further, each under its next rarest pair. A message
looks up its own values and walks only what they open, so the work follows what may match and not what exists. A few
entries are not filed at all but scanned. What no equality decides is a check, asked of the message last.

An index is changed, and asked, under its owner's lock. Only `recall` needs no lock, where the owner can tell
afterwards whether anything was changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from operator import itemgetter
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from headgate.matching.cache import AnswerCache
from headgate.matching.groups import weight
from headgate.matching.residuals import Check, Entry, OpenChecks
from headgate.matching.tree import (
    FIRST_PAIR,
    NOTHING,
    Found,
    IndexColumn,
    TreeNode,
    Values,
    collect,
    holds,
    keys_of,
)

Answer = TypeVar("Answer")
Pairs: TypeAlias = Sequence[Any]  # column, key, column, key, …; a key may be an AnyOf
Conjunction: TypeAlias = tuple[Pairs, Hashable, Check | None]  # of a member

FEW: Final = 8  # entries; up to here all of them are scanned
WIDE: Final = 64  # columns; in more than these the headers of the message are looked up instead
PRESENT: Final = object()  # the key of a `Presence`


class Presence(NamedTuple):
    """The column that says whether there is any value in another column."""

    column: IndexColumn


class HasHeaders(Protocol):
    """A message, or an AMQP envelope."""

    @property
    def headers(self) -> Mapping[Any, Any]: ...


class PairCount(NamedTuple):
    """One value of one column, how many entries ask for it, and how many of them have only a check left."""

    column: IndexColumn
    key: Hashable
    asked: int
    waiting: int


class EqualityIndex(Generic[Answer]):
    """Members under conjunctions of pairs. `match` answers with `finish(members, checked)`, and remembers it.

    Two values are equal when their keys are; `key` makes the key of a value whose type is not in `plain`. `read`
    reads the value of any column from a message; headers that are asked only for text are read without it.
    """

    def __init__(
        self,
        finish: Callable[[Set[Any], OpenChecks], Answer],
        key: Callable[[Any], Hashable],
        plain: Iterable[type],
        read: Callable[[IndexColumn, Any], Any] = lambda column, message: message.headers.get(
            column
        ),
    ) -> None:
        self._finish = finish
        self._nothing = finish(*NOTHING)
        self._key = key
        self._plain = frozenset(plain)
        self._read = read
        self._few: list[Entry] = []  # all that have a pair, until there are more than FEW
        self._root = TreeNode(FIRST_PAIR)
        # The number of entries that ask for each key of a column.
        self._counts: dict[IndexColumn, dict[Hashable, int]] = {}
        # The columns that no header holds as they are, and how many keys each has.
        self._derived: dict[IndexColumn, int] = {}
        self._wide = False
        # The tables of the root by column: every message goes through them, and a list is faster.
        self._probes: list[tuple[IndexColumn, dict[Hashable, Any]]] = []
        self._remembers = False  # whether answers are kept: not while looking for them is cheaper
        self._cache: AnswerCache[Answer] = AnswerCache()
        self._row_cache: AnswerCache[Answer] = AnswerCache()
        self._row_columns: tuple[IndexColumn, ...] = ()

    # ---- changing

    def make_entries(self, conjunctions: Sequence[Conjunction]) -> list[Entry]:
        """Make the entries of members, to be inserted; one without pairs matches every message.

        Of conjunctions that are given together, it is known which of their pairs are rare.
        """
        counts = self._counts
        for pairs, _, _ in conjunctions:
            flat = iter(pairs)
            for column, key in zip(flat, flat, strict=True):
                try:
                    counts[column][key] += 1
                except KeyError:  # a new key, or several
                    self._count_keys(column, key)
        return [self._make_entry(*conjunction) for conjunction in conjunctions]

    def insert(self, entries: Sequence[Entry]) -> None:
        """File entries that were made."""
        if not self._root.tables:
            with_pairs = [entry for entry in entries if len(entry) > FIRST_PAIR]
            if len(self._few) + len(with_pairs) <= FEW:
                self._few += with_pairs
                entries = [entry for entry in entries if len(entry) == FIRST_PAIR]
            else:
                entries, self._few = [*self._few, *entries], []
        self._root.insert(entries)
        self._forget()

    def remove(self, entry: Entry) -> bool:
        """Remove an entry that was made; whether it was inserted."""
        if entry in self._few:
            self._few.remove(entry)
            removed = True
        else:
            removed = self._root.remove(entry)
        for column, key in zip(entry[2::2], entry[3::2], strict=True):
            self._release(column, key)
        self._forget()
        return removed

    # ---- matching

    def recall(self, message: HasHeaders) -> Answer | None:
        """What `match` answers, or None where the answer has to be remembered, for which the lock is needed.

        Called without the lock, it may answer or raise anything if the index is changed meanwhile.
        """
        values = self._project(message, self._derived) if self._derived else message.headers
        cache = self._cache
        try:
            if cache.resting:
                cache.resting -= 1
            elif self._remembers:
                answer = cache.known.get(tuple(map(values.get, self._counts)))
                if answer is not None:
                    cache.hits += 1
                return answer
            found = self._find(values)
        except TypeError:  # a list or a table where only text is asked for
            found = self._find(self._project(message, self._counts))
        return self._nothing if found is NOTHING else self._finish(*found)

    def match(self, message: HasHeaders) -> Answer:
        """The answer for all members whose pairs the message holds; a value None is absent."""
        answer = self.recall(message)
        if answer is None:
            values = self._project(message, self._derived)
            question = tuple(map(values.get, self._counts))
            answer = self._learn(self._cache, question, values)
        return answer

    def match_rows(
        self, columns: tuple[IndexColumn, ...], rows: Iterable[tuple[Any, ...]]
    ) -> list[Answer]:
        """The answer to each row of keys; a key is None where the row has none that is asked for."""
        cache = self._row_cache
        if columns != self._row_columns:
            cache.forget()
            self._row_columns = columns
        answers: list[Answer] = []
        for row in rows:
            answer = cache.known.get(row)
            if answer is None:
                answer = self._learn(cache, row, dict(zip(columns, row, strict=True)))
            answers.append(answer)
        cache.hits += len(answers)  # equal rows were merge before: that is what helps
        return answers

    def key_of(self, value: Any) -> Hashable:
        """What the value is compared by."""
        return value if type(value) in self._plain else self._key(value)

    # ---- looking

    @property
    def columns(self) -> tuple[IndexColumn, ...]:
        """Every column an entry asks for."""
        return tuple(self._counts)

    def keys_asked_for(self, column: IndexColumn) -> Set[Hashable]:
        """The keys entries ask for in the column."""
        return self._counts[column].keys()

    @property
    def scanned(self) -> int:
        """How many members have a check and no pair, and are tested against every message."""
        return len(self._root.residuals or ())

    def count_pairs(self) -> Iterator[PairCount]:
        """Count the entries of every pair that is asked for."""
        for column, counts in self._counts.items():
            table = self._root.tables.get(column, {})
            for key, asked in counts.items():
                there = table.get(key)
                waiting = len(there.residuals or ()) if type(there) is TreeNode else 0
                yield PairCount(column, key, asked, waiting)

    # ---- inside

    def _project(self, message: HasHeaders, columns: Iterable[IndexColumn]) -> Values:
        """The headers of the message, and the keys of its values in these columns."""
        values = dict(message.headers)
        for column in columns:
            if type(column) is Presence:
                value = None if self._read(column.column, message) is None else PRESENT
            else:
                value = self._read(column, message)
                if value is not None and type(value) not in self._plain:
                    value = self._key(value)
            values[column] = value
        return values

    def _find(self, values: Values) -> Found:
        """The members whose pairs the values hold: for certain, and those that have a check left."""
        get, root, found = values.get, self._root, []
        if self._few:
            for entry in self._few:
                if get(entry[2]) == entry[3] and (len(entry) == 4 or holds(entry, 4, get)):
                    found.append(entry)
            if not found and root.slot is None and root.residuals is None:
                return NOTHING
        settled: list[TreeNode] = []
        nodes = [root.narrow(values) if self._wide else root]
        for node in nodes:  # which grows
            if node.slot is not None or node.residuals is not None:
                settled.append(node)
            at = node.at + 2
            for column, table in self._probes if node is root else node.tables.items():
                there = table.get(get(column))
                if there is None:
                    continue
                if type(there) is tuple:
                    # The next pair is compared here, as most fail by it.
                    if len(there) == at or (
                        get(there[at]) == there[at + 1] and holds(there, at + 2, get)
                    ):
                        found.append(there)
                elif type(there) is list:
                    for entry in there:
                        if len(entry) == at or (
                            get(entry[at]) == entry[at + 1] and holds(entry, at + 2, get)
                        ):
                            found.append(entry)
                else:
                    nodes.append(there)
        return collect(found, settled) if found or settled else NOTHING

    def _learn(self, cache: AnswerCache[Answer], question: Hashable, values: Values) -> Answer:
        members, checked = self._find(values)
        answer = self._finish(members, checked)
        if cache.resting:
            cache.resting -= 1
        else:
            cache.keep(question, answer, weight(members))
        return answer

    def _count_keys(self, column: IndexColumn, key: Any) -> None:
        counts = self._counts.setdefault(column, {})
        for one in keys_of(key):
            counts[one] = counts.get(one, 0) + 1
            if counts[one] == 1 and (type(one) is not str or type(column) is not str):
                self._derived[column] = self._derived.get(column, 0) + 1

    def _release(self, column: IndexColumn, key: Any) -> None:
        counts = self._counts[column]
        for one in keys_of(key):
            counts[one] -= 1
            if not counts[one]:
                del counts[one]
                if column in self._derived and (type(one) is not str or type(column) is not str):
                    self._derived[column] -= 1
        if not counts:
            del self._counts[column]
        if not self._derived.get(column, 1):
            del self._derived[column]

    def _make_entry(self, pairs: Pairs, member: Any, check: Check | None) -> Entry:
        if len(pairs) == 2:
            return (member, check, *pairs)
        counts, flat = self._counts, iter(pairs)
        try:
            ranked = [(counts[c][key], c, key) for c, key in zip(flat, flat, strict=True)]
        except KeyError:  # the count of several keys is that of all of them
            by_two = zip(pairs[::2], pairs[1::2], strict=True)
            ranked = [(sum(counts[c][one] for one in keys_of(key)), c, key) for c, key in by_two]
        ranked.sort(key=_first)
        entry = [member, check]
        for _, column, key in ranked:
            entry += column, key
        return tuple(entry)

    def _forget(self) -> None:
        """Forget the answers, which are no longer true."""
        self._wide = len(self._root.tables) > WIDE
        self._probes = list(self._root.tables.items())
        self._remembers = bool(self._root.tables) and len(self._counts) <= WIDE
        self._cache.forget()
        self._row_cache.forget()


_first: Final = itemgetter(0)
