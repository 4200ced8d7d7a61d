"""Conjunctions of equalities, found by the rarest of them.

    tenant = 'zeta' ── region = 'US' → q1                 a leaf: few enough to compare one by one
    region = 'EU' ─┬─ type = 'created' ── {q7, q9}        split: by the next rarest pair
                   └─ type = 'updated' → q3

Each conjunction hangs under one of its pairs, the one fewest others ask for; a leaf that grows too large is
split by the next rarest pairs of what it holds. A message looks up its own pairs and walks only what they
open, so the work follows what may match and not what exists. What no equality decides is carried along as
a check, to be asked last.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Set
from itertools import count
from typing import Any, Final, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from headgate.filters.branches import (
    Column,
    Node,
    Pair,
    Split,
    by_count,
    insert,
    remove_below,
)
from headgate.filters.groups import gathered, weight
from headgate.filters.listings import Check, Conditional, Listing
from headgate.filters.readers import compile_readers

Answer = TypeVar("Answer")
Checked: TypeAlias = tuple[Listing, ...]  # who matches if a check says so

REMEMBERED: Final = 1 << 15  # combinations of values whose answer is kept
HEAVY: Final = 1 << 21  # members all of these answers hold
PAUSE: Final = 8 * REMEMBERED  # how long nothing is remembered when remembering did not help
WIDE: Final = 64  # from here on a message is read by its own headers, not by the tree's columns
PRESENT: Final = object()  # stands for "any value at all"
_NOTHING: Final[dict[Any, Any]] = {}


class AccessTree(Generic[Answer]):
    """Members under conjunctions of pairs of a column and the key its value must have.

    Two values are the same when their keys are; `key` makes the key of a value whose type is not in
    `plain`. `match` answers with `finish(members, checked)`, and remembers the answer by the values asked with.
    """

    def __init__(
        self,
        finish: Callable[[Set[Any], Checked], Answer],
        key: Callable[[Any], Hashable],
        plain: Iterable[type],
    ) -> None:
        self._finish = finish
        self._key = key
        self._plain = frozenset((*plain, type(None)))
        self._columns: dict[Column, dict[Hashable, Pair]] = {}
        self._not_text: dict[Column, int] = {}  # keys of a column that are no text
        self._readers = compile_readers((), (), (), self._plain, key)
        self._presence: tuple[tuple[Column, Pair], ...] = ()
        self._split: set[Pair] = set()  # the pairs whose entries were too many for a leaf
        self._conditions = self._everyone = 0  # members with a check, members without a pair
        self._wide = False
        self._stale = False
        self._root = Split()  # its branches are the pairs of the columns themselves
        self._ids = count(1)
        self._remembered: dict[Any, Answer] = {}
        self._remembered_ids: dict[bytes, Answer] = {}
        self._hits = self._weight = self._pause = 0

    # ---- binding

    def add(
        self, wanted: Iterable[tuple[Column, Hashable]], member: Hashable, check: Check = None
    ) -> None:
        """Put the member under the pairs, all of which must hold; no pairs: under everything."""
        pairs = []
        for column, key in wanted:
            pair = self._columns.get(column, _NOTHING).get(key) or self._pair(column, key)
            pair.count += 1
            pairs.append(pair)
        if len(pairs) > 1:
            pairs.sort(key=by_count)
        if check is not None:
            member = Conditional(check, member)
            self._conditions += 1
        if not pairs:
            self._root.settle(member)
            self._everyone += 1
        else:
            insert(pairs[0], tuple(pairs[1:]), member)
            if pairs[0].split is not None:
                self._split.add(pairs[0])
        self.forget()

    def remove(
        self, wanted: Iterable[tuple[Column, Hashable]], member: Hashable, check: Check = None
    ) -> bool:
        """Take the member from under the pairs; whether it was there."""
        pairs = []
        for column, key in wanted:
            pair = self._columns.get(column, _NOTHING).get(key)
            if pair is None:
                return False
            pairs.append(pair)
        if check is not None:
            member = Conditional(check, member)
        if not self._remove(frozenset(pairs), member):
            return False
        self._conditions -= check is not None
        self._everyone -= not pairs
        for pair in pairs:
            self._release(pair)
        self.forget()
        return True

    # ---- matching

    def match(self, headers: Mapping[Any, Any]) -> Answer:
        """The answer for everyone whose pairs the headers hold; a value None is absent."""
        if self._stale:
            self._refresh()
        if self._wide:
            return self._match_by_header(headers)
        if self._pause:
            self._pause -= 1
            return self._finish(*self.find(self._held(headers)))
        try:
            values = self._readers.values(headers)
            answer = self._remembered.get(values)
        except TypeError:  # a list or a table where only text is asked for
            return self._finish(*self.find(self._held(headers)))
        if answer is not None:
            self._hits += 1
            return answer
        return self._learn(self._remembered, values, self._held(headers))

    def find(self, held: set[Pair]) -> tuple[Set[Any], Checked]:
        """Everyone under these pairs: for certain, and if a check says so."""
        covers = held.issuperset
        singles: list[Any] = []
        for pair in held:
            for entry in pair.entries:
                if covers(entry[0]):  # not unpacked: who does not match is not even touched
                    singles.append(entry[1])
        split = held & self._split
        if not (split or self._conditions or self._everyone):
            return frozenset(singles), ()
        parts: list[frozenset[Any]] = []
        checked: list[Listing] = []
        if split:
            self._find_deeper(held, [*split], singles, parts, checked)
        if self._everyone:
            self._root.collect(singles, parts, checked)
        if self._conditions and Conditional in map(type, singles):
            checked.append(Listing(tuple(m for m in singles if type(m) is Conditional)))
            singles = [member for member in singles if type(member) is not Conditional]
        return (gathered(singles, parts) if parts else frozenset(singles)), tuple(checked)

    def _find_deeper(
        self,
        held: set[Pair],
        nodes: list[Node],
        singles: list[Any],
        parts: list[frozenset[Any]],
        checked: list[Listing],
    ) -> None:
        covers = held.issuperset
        for node in nodes:
            split = node.split
            assert split is not None
            if split.slot is not None or split.checked:
                split.collect(singles, parts, checked)
            branches = split.branches
            for pair in held:
                if pair in branches:
                    child = branches[pair]
                    for entry in child.entries:
                        if covers(entry[0]):
                            singles.append(entry[1])
                    if child.split is not None:
                        nodes.append(child)

    def match_ids(self, rows: npt.NDArray[np.int32], pairs: Mapping[int, Pair]) -> list[Answer]:
        """The answer to each row of pair ids, 0 for none; an id says its column too, so any order will do."""
        if self._stale:
            self._refresh()
        raw, width = rows.tobytes(), rows.shape[1] * rows.itemsize
        keys = (
            [raw[at : at + width] for at in range(0, len(raw), width)]
            if width
            else [b""] * len(rows)
        )
        answers = list(map(self._remembered_ids.get, keys))
        self._hits += len(answers) - answers.count(None)
        for at, answer in enumerate(answers):
            if answer is None:
                held = self._with_presence([pairs[id] for id in rows[at].tolist() if id])
                answers[at] = self._learn(self._remembered_ids, keys[at], held)
        return answers  # type: ignore[return-value]

    def forget(self) -> None:
        """Drop the remembered answers: what `finish` makes of them has changed."""
        if self._remembered or self._remembered_ids:
            self._remembered.clear()
            self._remembered_ids.clear()
            self._hits = self._weight = 0

    # ---- what it holds, for advice and for batches

    @property
    def columns(self) -> Mapping[Column, Mapping[Hashable, Pair]]:
        """Every column asked about, and its pairs by key; PRESENT is one of the keys."""
        return self._columns

    @property
    def scanned(self) -> int:
        """How many checks hang under no pair at all, and are asked of every message."""
        return self._root.waiting

    def key_of(self, value: Any) -> Hashable:
        """What the value is compared by."""
        return value if type(value) in self._plain else self._key(value)

    # ---- inside

    def _pair(self, column: Column, key: Hashable) -> Pair:
        """A pair nobody has asked for yet."""
        values = self._columns.get(column)
        if values is None:
            values = self._columns[column] = {}
            self._stale = True
        pair = values[key] = Pair(column, key, next(self._ids))
        if type(key) is not str:
            others = self._not_text[column] = self._not_text.get(column, 0) + 1
            self._stale = self._stale or others == 1 or key is PRESENT
        return pair

    def _remove(self, pairs: frozenset[Pair], member: Any) -> bool:
        if not pairs:
            return self._root.unsettle(member)
        for pair in pairs:
            if remove_below(pair, pairs - {pair}, member):
                if pair.split is not None and pair.split.empty:
                    pair.split = None
                    self._split.discard(pair)
                return True
        return False

    def _release(self, pair: Pair) -> None:
        pair.count -= 1
        if pair.count:
            return
        values = self._columns[pair.column]
        del values[pair.key]
        if type(pair.key) is not str:
            others = self._not_text[pair.column] = self._not_text[pair.column] - 1
            self._stale = self._stale or not others or pair.key is PRESENT
        if not values:
            del self._columns[pair.column]
            self._not_text.pop(pair.column, None)
            self._stale = True

    def _refresh(self) -> None:
        names, tables = tuple(self._columns), tuple(self._columns.values())
        self._wide = len(names) > WIDE
        if not self._wide:
            keyed = [bool(self._not_text.get(name)) for name in names]
            self._readers = compile_readers(names, tables, keyed, self._plain, self._key)
        self._presence = tuple(
            (name, table[PRESENT]) for name, table in self._columns.items() if PRESENT in table
        )
        self._stale = False

    def _held(self, headers: Mapping[Any, Any]) -> set[Pair]:
        """The pairs the headers hold, of those somebody asks for."""
        try:
            held = self._readers.found(headers)
        except TypeError:
            return self._held_by_header(headers)
        held.discard(None)
        for name, pair in self._presence:
            if headers.get(name) is not None:
                held.add(pair)
        return held

    def _held_by_header(self, headers: Mapping[Any, Any]) -> set[Pair]:
        held: set[Pair] = set()
        for name, value in headers.items():
            table = self._columns.get(name)
            if table is not None and value is not None:
                held.update(p for k in (self.key_of(value), PRESENT) if (p := table.get(k)))
        return held

    def _with_presence(self, pairs: list[Pair]) -> set[Pair]:
        held = set(pairs)
        if self._presence:
            tables = [self._columns[pair.column] for pair in pairs]
            held.update(table[PRESENT] for table in tables if PRESENT in table)
        return held

    def _match_by_header(self, headers: Mapping[Any, Any]) -> Answer:
        held = self._held_by_header(headers)
        combination = frozenset(held)
        answer = self._remembered.get(combination)
        if answer is None:
            answer = self._learn(self._remembered, combination, held)
        return answer

    def _learn(self, memory: dict[Any, Answer], key: Hashable, held: set[Pair]) -> Answer:
        members, checked = self.find(held)
        answer = self._finish(members, checked)
        self._weight += weight(members)
        if len(memory) >= REMEMBERED or self._weight > HEAVY:
            if self._hits < len(memory) // 4:
                self._pause = PAUSE
            self.forget()
        memory[key] = answer
        return answer
