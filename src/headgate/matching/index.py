"""Members under conjunctions of equalities, found by what a message holds.

    tenant ── zeta ── q1 (region = US)
    region ── EU ─┬─ type ─┬─ created ── {q7, q9}
                  │        └─ updated ── q3 (plan = free)
                  └─ plan ─── paid ── q4 (currency = EUR)

A pair is a column and the key its value must have. Each conjunction is filed under the pair that fewest others ask
for; where a place gets crowded, its entries are filed one step further, each under its next rarest pair. A message
looks up its own values and walks only what they open, so the work follows what may match and not what exists. What
no equality decides is a check, asked of the message last.

An entry keeps its own order of pairs: where it is filed follows from that, now and when it is removed. An index is
changed, and asked, under its owner's lock; only `recall` needs none.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from operator import itemgetter
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from headgate.matching.cache import Memory
from headgate.matching.groups import weight
from headgate.matching.residuals import Check, Checked, Entry
from headgate.matching.tree import (
    FIRST_PAIR,
    NOTHING,
    Column,
    Node,
    Values,
    collect,
    holds,
    keys_of,
)

Answer = TypeVar("Answer")
Wanted: TypeAlias = Sequence[Any]  # column, key, column, key, …; a key may be an AnyOf
Conjunction: TypeAlias = tuple[Wanted, Hashable, Check | None]

WIDE: Final = 64  # columns; in more than these the headers of the message are looked up instead
PRESENT: Final = object()  # the key of a `Presence`


class Presence(NamedTuple):
    """The column that says whether there is any value in another column."""

    column: Column


class HasHeaders(Protocol):
    """A message, or an AMQP envelope."""

    @property
    def headers(self) -> Mapping[Any, Any]: ...


class PairCount(NamedTuple):
    """One value of one column, how many entries ask for it, and how many of them have only a check left."""

    column: Column
    key: Hashable
    asked: int
    waiting: int


class EqualityIndex(Generic[Answer]):
    """Members under conjunctions of pairs. `match` answers with `finish(members, checked)`, and remembers it.

    Two values are the same when their keys are; `key` makes the key of a value whose type is not in `plain`. `read`
    reads the value of any column from a message; headers that are asked only for text are read without it.
    """

    def __init__(
        self,
        finish: Callable[[Set[Any], Checked], Answer],
        key: Callable[[Any], Hashable],
        plain: Iterable[type],
        read: Callable[[Column, Any], Any] = lambda column, message: message.headers.get(column),
    ) -> None:
        self._finish = finish
        self._key = key
        self._plain = frozenset(plain)
        self._read = read
        self._root = Node(FIRST_PAIR)
        self._counts: dict[Column, dict[Hashable, int]] = {}  # how many entries ask for each key
        # The columns no header gives as they are, and how many keys each has.
        self._derived: dict[Column, int] = {}
        self._asked = False  # whether something may have been remembered since the last change
        self._memory: Memory[Answer] = Memory()
        self._rows: Memory[Answer] = Memory()
        self._row_columns: tuple[Column, ...] = ()
        # The columns, those of them that are derived, and the answers by their values: replaced as one.
        self._recalled: tuple[tuple[Column, ...], tuple[Column, ...], dict[Any, Answer]] | None
        self._recalled = None

    # ---- changing

    def make_entries(self, conjunctions: Sequence[Conjunction]) -> list[Entry]:
        """The entries of members under pairs all of which must hold, to be inserted; no pairs: under everything.

        Of many that are made at once, it is known which of their pairs are rare.
        """
        counts = self._counts
        for wanted, _, _ in conjunctions:
            flat = iter(wanted)
            for column, key in zip(flat, flat, strict=True):
                try:
                    counts[column][key] += 1
                except KeyError:  # a new key, or several
                    self._count_keys(column, key)
        return [self._make_entry(*conjunction) for conjunction in conjunctions]

    def insert(self, entries: Sequence[Entry]) -> None:
        """File entries that were made; of many at once, neighbours come to lie side by side in memory."""
        self._root.insert(entries)
        self._forget()

    def remove(self, entry: Entry) -> bool:
        """Let go of an entry that was made; whether it was filed."""
        removed = self._root.remove(entry)
        for column, key in zip(entry[2::2], entry[3::2], strict=True):
            self._release(column, key)
        self._forget()
        return removed

    # ---- matching

    def recall(self, message: HasHeaders) -> Answer | None:
        """What `match` remembers for such a message, if anything: the one question that needs no lock."""
        recalled = self._recalled
        if recalled is None:
            return None
        columns, derived, known = recalled
        values = self._project(message, derived) if derived else message.headers
        try:
            answer = known.get(tuple(map(values.get, columns)))
        except TypeError:  # a list or a table where only text is asked for
            return None
        if answer is not None:
            self._memory.hits += 1
        return answer

    def match(self, message: HasHeaders) -> Answer:
        """The answer for all members whose pairs the message holds; a value None is absent."""
        values = self._project(message, self._derived) if self._derived else message.headers
        memory = self._memory
        try:
            if not self._root.tables or len(self._counts) > WIDE:
                found = self._find(values)
            elif memory.resting:
                memory.resting -= 1
                found = self._find(values)
            else:
                self._asked = True
                return self._recall_or_learn(values)
        except TypeError:  # a list or a table where only text is asked for
            found = self._find(self._project(message, self._counts))
        return self._finish(*found)

    def match_rows(
        self, columns: tuple[Column, ...], rows: Iterable[tuple[Any, ...]]
    ) -> list[Answer]:
        """The answer to each row of keys, None where there is none that is asked for."""
        memory = self._rows
        if columns != self._row_columns:
            memory.forget()
            self._row_columns = columns
        self._asked = True
        answers: list[Answer] = []
        for row in rows:
            answer = memory.known.get(row)
            if answer is None:
                answer = self._learn(memory, row, dict(zip(columns, row, strict=True)))
            answers.append(answer)
        memory.hits += len(answers)  # rows were found to be alike before: that is what helps
        return answers

    def key_of(self, value: Any) -> Hashable:
        """What the value is compared by."""
        return value if type(value) in self._plain else self._key(value)

    # ---- looking

    @property
    def columns(self) -> tuple[Column, ...]:
        """Every column some entry asks for."""
        return tuple(self._counts)

    def keys_asked_for(self, column: Column) -> Set[Hashable]:
        """The keys some entry asks for there."""
        return self._counts[column].keys()

    @property
    def scanned(self) -> int:
        """How many members have a check and no pair, and are tested against every message."""
        return len(self._root.residuals or ())

    def count_pairs(self) -> Iterator[PairCount]:
        """Every pair that is asked for."""
        for column, counts in self._counts.items():
            table = self._root.tables.get(column, {})
            for key, asked in counts.items():
                there = table.get(key)
                waiting = len(there.residuals or ()) if type(there) is Node else 0
                yield PairCount(column, key, asked, waiting)

    # ---- inside

    def _project(self, message: HasHeaders, columns: Iterable[Column]) -> Values:
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

    def _recall_or_learn(self, values: Values) -> Answer:
        memory = self._memory
        question = tuple(map(values.get, self._counts))
        answer = memory.known.get(question)
        if answer is not None:
            memory.hits += 1
            return answer
        answer = self._learn(memory, question, values)
        if memory.resting:
            self._recalled = None
        elif self._recalled is None or self._recalled[2] is not memory.known:
            self._recalled = self.columns, tuple(self._derived), memory.known
        return answer

    def _learn(self, memory: Memory[Answer], question: Hashable, values: Values) -> Answer:
        members, checked = self._find(values)
        answer = self._finish(members, checked)
        if memory.resting:
            memory.resting -= 1
        else:
            memory.keep(question, answer, weight(members))
        return answer

    def _find(self, values: Values) -> tuple[Set[Any], Checked]:
        """The members whose pairs the values hold: for certain, and those that have a check left."""
        get, root = values.get, self._root
        nodes = [root if len(root.tables) <= WIDE else root.narrow(values)]
        found: list[Entry] = []
        settled: list[Node] = []
        for node in nodes:  # which grows
            at, below = node.at, node.at + 2
            for column, table in node.tables.items():
                there = table.get(get(column))
                if there is not None:
                    if type(there) is Node:
                        nodes.append(there)
                    # The next pair is compared here, as most fail by it.
                    elif len(there) == below or (
                        get(there[below]) == there[below + 1] and holds(there, below + 2, get)
                    ):
                        found.append(there)
            for entry in node.entries:
                if get(entry[at]) == entry[at + 1] and holds(entry, below, get):
                    found.append(entry)
            if node.slot is not None or node.residuals is not None:
                settled.append(node)
        return collect(found, settled) if found or settled else NOTHING

    def _count_keys(self, column: Column, key: Any) -> None:
        counts = self._counts.setdefault(column, {})
        for one in keys_of(key):
            counts[one] = counts.get(one, 0) + 1
            if counts[one] == 1 and (type(one) is not str or type(column) is not str):
                self._derived[column] = self._derived.get(column, 0) + 1

    def _release(self, column: Column, key: Any) -> None:
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

    def _make_entry(self, wanted: Wanted, member: Any, check: Check | None) -> Entry:
        if len(wanted) == 2:
            return (member, check, *wanted)
        counts, flat = self._counts, iter(wanted)
        try:
            ranked = [(counts[c][key], c, key) for c, key in zip(flat, flat, strict=True)]
        except KeyError:  # the count of several keys is that of all of them
            pairs = zip(wanted[::2], wanted[1::2], strict=True)
            ranked = [(sum(counts[c][one] for one in keys_of(key)), c, key) for c, key in pairs]
        ranked.sort(key=_first)
        entry = [member, check]
        for _, column, key in ranked:
            entry += column, key
        return tuple(entry)

    def _forget(self) -> None:
        """What was remembered is no longer true."""
        if self._asked:  # when a million are bound, nothing is asked in between
            self._asked, self._recalled = False, None
            self._memory.forget()
            self._rows.forget()


_first: Final = itemgetter(0)
