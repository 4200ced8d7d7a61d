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
from typing import Any, Final, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from headgate.filters.branches import NONE, Node, PairId, Split, insert, remove_below
from headgate.filters.groups import gathered, weight
from headgate.filters.listings import Check, Conditional, Few, Listing
from headgate.filters.memory import Memory
from headgate.filters.pairs import PRESENT, Pairs, Wanted
from headgate.filters.readers import compile_readers

Answer = TypeVar("Answer")
Checked: TypeAlias = tuple[Listing | Few, ...]  # who matches if a check says so

WIDE: Final = 64  # from here on a message is read by its own headers, not by the tree's columns


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
        self.pairs = Pairs()
        self._root = Split()  # under no pair at all; the pairs themselves are its branches
        self._split: set[PairId] = set()  # the pairs whose entries were too many for a leaf
        self._conditions = self._everyone = 0  # members with a check, members without a pair
        self._wide = False
        self._presence: Mapping[Any, PairId] = {}
        self._memory: Memory[Answer] = Memory()
        self._rows: Memory[Answer] = Memory()

    # ---- binding

    def add(self, wanted: Iterable[Wanted], member: Hashable, check: Check = None) -> None:
        """Put the member under the pairs, all of which must hold; no pairs: under everything."""
        pairs = self.pairs.take(wanted)
        if check is not None:
            member = Conditional(check, member)
            self._conditions += 1
        if pairs:
            pairs.sort(key=self.pairs.counts.__getitem__)
            node = self.pairs.nodes[pairs[0]]
            insert(node, tuple(pairs[1:]), member, self.pairs.counts)
            if node.split is not None:
                self._split.add(pairs[0])
        else:
            self._root.settle(member)
            self._everyone += 1
        self.forget()

    def remove(self, wanted: Iterable[Wanted], member: Hashable, check: Check = None) -> bool:
        """Take the member from under the pairs; whether it was there."""
        pairs = self.pairs.find(wanted)
        if check is not None:
            member = Conditional(check, member)
        if pairs is None or not self._remove(frozenset(pairs), member):
            return False
        for pair in pairs:
            self.pairs.release(pair)
        self._conditions -= check is not None
        self._everyone -= not pairs
        self.forget()
        return True

    # ---- matching

    def match(self, headers: Mapping[Any, Any]) -> Answer:
        """The answer for everyone whose pairs the headers hold; a value None is absent."""
        if self.pairs.stale:
            self._refresh()
        if self._wide:
            return self._match_by_header(headers)
        memory = self._memory
        try:
            if memory.resting:
                memory.resting -= 1
                held = self._look_up(headers)
                if self._presence:
                    self._add_presence(held, headers)
                members, checked = self.find(held)
                return self._finish(members, checked)
            values = self._read(headers)
            answer = memory.known.get(values)
        except TypeError:  # a list or a table where only text is asked for
            return self._finish(*self.find(self._held_by_header(headers)))
        if answer is not None:
            memory.hits += 1
            return answer
        held = self._look_up(headers)
        self._add_presence(held, headers)
        return self._learn(memory, values, held)

    def find(self, held: set[PairId]) -> tuple[Set[Any], Checked]:
        """Everyone under these pairs, NONE among them: for certain, and if a check says so."""
        covers, nodes = held.issuperset, self.pairs.nodes
        singles: list[Any] = []
        for pair in held:
            for entry in nodes[
                pair
            ].entries:  # not unpacked: who does not match is not even touched
                if entry[0] in held and (not entry[1] or covers(entry[1])):
                    singles.append(entry[2])
        split = held & self._split
        if not (split or self._conditions or self._everyone):
            return frozenset(singles), ()
        parts: list[frozenset[Any]] = []
        checked: list[Listing | Few] = []
        if split:
            self._find_deeper(held, [nodes[pair] for pair in split], singles, parts, checked)
        if self._everyone:
            self._root.collect(singles, parts, checked)
        if self._conditions and Conditional in map(type, singles):
            checked.append(Few([member for member in singles if type(member) is Conditional]))
            singles = [member for member in singles if type(member) is not Conditional]
        return (gathered(singles, parts) if parts else frozenset(singles)), tuple(checked)

    def _find_deeper(
        self,
        held: set[PairId],
        nodes: list[Node],
        singles: list[Any],
        parts: list[frozenset[Any]],
        checked: list[Listing | Few],
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
                        if entry[0] in held and (not entry[1] or covers(entry[1])):
                            singles.append(entry[2])
                    if child.split is not None:
                        nodes.append(child)

    def match_ids(self, rows: npt.NDArray[np.int32]) -> list[Answer]:
        """The answer to each row of pairs, or NONE; a pair says its column too, so any order will do."""
        if self.pairs.stale:
            self._refresh()
        raw, width = rows.tobytes(), rows.shape[1] * rows.itemsize
        cuts = range(0, len(raw), width) if width else ()
        keys = [raw[at : at + width] for at in cuts] if width else [b""] * len(rows)
        answers = list(map(self._rows.known.get, keys))
        for at, answer in enumerate(answers):
            if answer is None:
                held = self._with_presence({NONE, *rows[at].tolist()})
                answers[at] = self._learn(self._rows, keys[at], held)
        self._rows.hits += len(answers)  # rows were found to be alike before: that is what helps
        return answers  # type: ignore[return-value]

    def forget(self) -> None:
        """Drop the remembered answers: what `finish` makes of them has changed."""
        self._memory.forget()
        self._rows.forget()

    def key_of(self, value: Any) -> Hashable:
        """What the value is compared by."""
        return value if type(value) in self._plain else self._key(value)

    @property
    def scanned(self) -> int:
        """How many checks hang under no pair at all, and are asked of every message."""
        return self._root.waiting

    # ---- inside

    def _remove(self, pairs: frozenset[PairId], member: Any) -> bool:
        if not pairs:
            return self._root.unsettle(member)
        for pair in pairs:
            node = self.pairs.nodes[pair]
            if remove_below(node, pairs - {pair}, member):
                if node.split is not None and node.split.empty:
                    node.split = None
                    self._split.discard(pair)
                return True
        return False

    def _refresh(self) -> None:
        columns = self.pairs.columns
        self._wide = len(columns) > WIDE
        self._presence = self.pairs.presence()
        if not self._wide:
            keyed = [self.pairs.compared_by_key(column) for column in columns]
            tables = tuple(columns.values())
            self._read, self._look_up = compile_readers(
                tuple(columns), tables, keyed, self._plain, self._key, NONE
            )
        self.pairs.stale = False

    def _add_presence(self, held: set[PairId], headers: Mapping[Any, Any]) -> None:
        for name, pair in self._presence.items():
            if headers.get(name) is not None:
                held.add(pair)

    def _held_by_header(self, headers: Mapping[Any, Any]) -> set[PairId]:
        held = {NONE}
        for name, value in headers.items():
            table = self.pairs.columns.get(name)
            if table is not None and value is not None:
                held.update(p for k in (self.key_of(value), PRESENT) if (p := table.get(k)))
        return held

    def _with_presence(self, held: set[PairId]) -> set[PairId]:
        if self._presence:
            columns = {self.pairs.column_of(pair) for pair in held}
            held |= {pair for column, pair in self._presence.items() if column in columns}
        return held

    def _match_by_header(self, headers: Mapping[Any, Any]) -> Answer:
        held = self._held_by_header(headers)
        combination = frozenset(held)
        answer = self._memory.known.get(combination)
        return self._learn(self._memory, combination, held) if answer is None else answer

    def _learn(self, memory: Memory[Answer], question: Hashable, held: set[PairId]) -> Answer:
        members, checked = self.find(held)
        answer = self._finish(members, checked)
        memory.keep(question, answer, weight(members))
        return answer
