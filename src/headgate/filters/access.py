"""Conjunctions of equalities, found by the rarest of them.

    tenant = 'zeta' ── region = 'US', type = 'created' → q1
    region = 'EU' ─┬─ type = 'created' ── {q7, q9}
                   └─ type = 'updated' ─┬─ plan = 'free' → q3
                                        └─ plan = 'paid', currency = 'EUR' → q4

Each conjunction hangs under one of its pairs, the one fewest others ask for, then under the next rarest, as far
as it takes to be alone; the pairs that are left are compared. A message looks up its own pairs and walks only
what they open, so the work follows what may match and not what exists. What no equality decides is carried
along as a check, to be asked last.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from headgate.filters.branches import NONE, Node, collected, insert, remove_below
from headgate.filters.gathering import Gathered
from headgate.filters.groups import weight
from headgate.filters.listings import Check, Entry, Few, Listing, PairId
from headgate.filters.memory import Memory
from headgate.filters.pairs import PRESENT, Pairs, Wanted
from headgate.filters.planes import Plane
from headgate.filters.readers import compile_readers

Answer = TypeVar("Answer")
Checked: TypeAlias = tuple[Listing | Few, ...]  # who matches if a check says so

PATIENCE: Final = 1  # walks for each conjunction before a plane pays
WIDE: Final = 64  # from here on a message is read by its own headers, not by the tree's columns


class HasHeaders(Protocol):
    """A message, or whatever else is asked for its headers."""

    @property
    def headers(self) -> Mapping[Any, Any]: ...


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
        self._count_of = self.pairs.counts.__getitem__
        self._settled: set[PairId] = set()  # the pairs under which someone asks for no other
        self._wide = False
        self._presence: Mapping[Any, PairId] = {}
        self._size = 0
        self._gathered: Gathered | None = None
        self._plane: Plane | None = None
        self._laid = False  # whether it was considered
        self._walked = 0  # how often, since the last change
        self._memory: Memory[Answer] = Memory()
        # Reads the values of headers, and what is remembered by them: replaced as one, by who has the lock.
        self._recall: tuple[Callable[[Mapping[Any, Any]], Any], dict[Any, Answer]] | None = None
        self._together: Memory[Answer] = Memory()  # by the bits: who is found is often the same
        self._rows: Memory[Answer] = Memory()

    # ---- binding

    def add(self, wanted: Wanted, member: Hashable, check: Check = None) -> None:
        """Put the member under the pairs, all of which must hold; no pairs: under everything."""
        if self._gathered is not None:
            self._gathered.add(wanted, member, check)
            return
        pairs = self.pairs.take(wanted)
        if len(pairs) > 1:
            pairs.sort(key=self._count_of)
        else:
            pairs = pairs or [NONE]
            self._settled.add(pairs[0])
        first = pairs[0]
        insert(self.pairs.nodes[first] or self.pairs.node(first), tuple(pairs[1:]), member, check)
        self._size += 1
        if self._walked:  # when a million are bound, nobody asks in between
            self._change()

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """What is added meanwhile is hung in the end, all at once; until then nothing may be asked or removed."""
        gathered = self._gathered = Gathered(self.pairs)
        try:
            yield
        finally:
            self._gathered = None
            gathered.hang()
            self._settled |= gathered.settled
            self._size += gathered.hung
            self._change()

    def remove(self, wanted: Wanted, member: Hashable, check: Check = None) -> bool:
        """Take the member from under the pairs; whether it was there."""
        pairs = self.pairs.find(wanted)
        if pairs is None or not self._remove(frozenset(pairs), member, check):
            return False
        for pair in pairs:
            self.pairs.release(pair)
        self._size -= 1
        if self._walked:
            self._change()
        return True

    # ---- matching

    def recall(self, asked: HasHeaders) -> Answer | None:
        """What `match` remembers for such headers, if anything: the one question that needs no lock."""
        recall = self._recall
        if recall is None:
            return None
        read, known = recall
        try:
            answer = known.get(read(asked.headers))
        except TypeError:  # a list or a table where only text is asked for
            return None
        if answer is not None:
            self._memory.hits += 1
        return answer

    def match(self, asked: HasHeaders) -> Answer:
        """The answer for everyone whose pairs the headers hold; a value None is absent."""
        headers = asked.headers
        if self.pairs.stale:
            self._refresh()
        if self._wide:
            return self._match_by_header(headers)
        memory = self._memory
        try:
            if memory.resting:
                memory.resting -= 1
                plane = self._plane
                if plane is None:
                    return self._finish(*self._found(headers))
                memory = self._together
                bits = plane.bits(headers)
                answer = memory.known.get(bits)
                if answer is None:
                    return self._learn(memory, bits, plane.found(bits))
            else:
                values = self._read(headers)
                answer = memory.known.get(values)
                if answer is None:
                    answer = self._learn(memory, values, self._found(headers))
                    self._recall = None if memory.resting else (self._read, memory.known)
                    return answer
        except TypeError:  # a list or a table where only text is asked for
            return self._finish(*self.find(self._held_by_header(headers)))
        memory.hits += 1
        return answer

    def find(self, held: set[PairId]) -> tuple[Set[Any], Checked]:
        """Everyone under these pairs, NONE among them: for certain, and if a check says so."""
        covers, apart = held.issuperset, held.isdisjoint
        nexts_of, after_of = self.pairs.nexts, self.pairs.after
        singles: list[Any] = []
        few: list[Entry] = []
        nodes: list[Node] = []
        self._walked += 1
        for pair in held:
            nexts = nexts_of[pair]
            if nexts and not apart(nexts):
                after = after_of[pair]
                for second in held & nexts:
                    below = after[second]
                    if type(below) is Node:
                        nodes.append(below)
                    # Not unpacked: that would touch everyone, and most do not match.
                    elif not below[0] or covers(below[0]):
                        if below[2] is None:
                            singles.append(below[1])
                        else:
                            few.append(below)
        if nodes:
            _find_deeper(held, nodes, singles, few)
        if not apart(self._settled):
            nodes += map(self.pairs.node, held & self._settled)
        if not nodes:
            return frozenset(singles), ((Few(few),) if few else ())
        return collected(nodes, singles, few, [])

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
                answers[at] = self._learn(self._rows, keys[at], self.find(held))
        self._rows.hits += len(answers)  # rows were found to be alike before: that is what helps
        return answers  # type: ignore[return-value]

    def key_of(self, value: Any) -> Hashable:
        """What the value is compared by."""
        return value if type(value) in self._plain else self._key(value)

    @property
    def scanned(self) -> int:
        """How many checks hang under no pair at all, and are asked of every message."""
        return self.pairs.waiting(NONE)

    # ---- inside

    def _change(self) -> None:
        """What was remembered and made of the tree no longer holds."""
        self._recall = None
        self._plane, self._laid, self._walked = None, False, 0
        for memory in (self._memory, self._together, self._rows):
            memory.forget()

    def _found(self, headers: Mapping[Any, Any]) -> tuple[Set[Any], Checked]:
        if self._plane is not None:
            return self._plane.found(self._plane.bits(headers))
        if self._walked >= PATIENCE * self._size and not self._laid:
            self._lay_flat()
        held = self._look_up(headers)
        if self._presence:
            self._add_presence(held, headers)
        return self.find(held)

    def _lay_flat(self) -> None:
        """A tree that was walked as often as it is large pays for a plane, if that would not be too large."""
        self._laid = True
        if Plane.fits(self.pairs, self._size):
            self._plane = Plane(self.pairs, self._plain, self._key)

    def _remove(self, pairs: frozenset[PairId], member: Any, check: Check) -> bool:
        for pair in pairs or (NONE,):
            node = self.pairs.nodes[pair]
            if node is not None and remove_below(node, pairs - {pair}, member, check):
                if not node.settled:
                    self._settled.discard(pair)
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
        held, memory = self._held_by_header(headers), self._memory
        combination = frozenset(held)
        answer = memory.known.get(combination)
        if answer is None:
            return self._learn(memory, combination, self.find(held))
        memory.hits += 1
        return answer

    def _learn(
        self, memory: Memory[Answer], question: Hashable, found: tuple[Set[Any], Checked]
    ) -> Answer:
        members, checked = found
        answer = self._finish(members, checked)
        if memory.resting:
            memory.resting -= 1
        else:
            memory.keep(question, answer, weight(members))
        return answer


def _find_deeper(
    held: set[PairId], nodes: list[Node], singles: list[Any], few: list[Entry]
) -> None:
    """Adds the nodes below, and who is alone there: what `find` does, one step further down."""
    covers, apart = held.issuperset, held.isdisjoint
    for node in nodes:
        nexts = node.nexts
        if nexts and not apart(nexts):
            after = node.after
            for pair in held & nexts:
                below = after[pair]
                if type(below) is Node:
                    nodes.append(below)
                elif not below[0] or covers(below[0]):
                    if below[2] is None:
                        singles.append(below[1])
                    else:
                        few.append(below)
