"""Routing a batch of messages at once: an exchange answers once for all rows that it cannot tell apart."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence, Set

import numpy as np
import pyarrow as pa

from headgate.columns import BatchColumns
from headgate.filters import Flags
from headgate.matching import (
    BatchChecks,
    Ints,
    Matcher,
    OpenChecks,
    RowNumbers,
    Selections,
    passing_rows,
    rows_by_code,
)
from headgate.routing.answers import RouteAnswer, Unresolved, split_members
from headgate.routing.bindings import Target
from headgate.routing.exchanges import ExchangeIndex


class RoutedBatch:
    """For each queue the rows it gets, in order, each once."""

    def __init__(self, selections: Selections[str], combinations: int) -> None:
        self._selections = selections
        self.combinations = combinations  # how many different questions were asked for all rows

    @property
    def num_rows(self) -> int:
        return self._selections.num_rows

    @property
    def queues(self) -> frozenset[str]:
        """Every queue that gets a row."""
        return frozenset(self._selections)

    def rows_of(self, queue: str) -> RowNumbers:
        return self._selections.rows_of(queue)

    def selections(self) -> dict[str, RowNumbers]:
        """The rows of every queue that gets one."""
        return self._selections.all()

    @property
    def unroutable(self) -> RowNumbers:
        """The rows that reach no queue."""
        return np.flatnonzero(~self._selections.reached)


def route_rows(
    indexes: Mapping[str, ExchangeIndex], start: ExchangeIndex, batch: pa.RecordBatch
) -> RoutedBatch:
    """Where each row goes, from the start through all other exchanges it reaches."""
    walk = _BatchWalk(indexes, batch)
    walk.send(start.exchange.name, np.arange(batch.num_rows))
    return walk.run()


class _BatchWalk:
    """Rows on their way from exchange to exchange; each row passes each exchange once."""

    def __init__(self, indexes: Mapping[str, ExchangeIndex], batch: pa.RecordBatch) -> None:
        self._indexes = indexes
        self._columns = BatchColumns(batch)
        self._checks = BatchChecks(self._columns)
        self._selections: Selections[str] = Selections(batch.num_rows)
        self._seen: dict[str, Flags] = {}
        self._work: deque[tuple[str, RowNumbers]] = deque()
        self._combinations = 0

    def send(self, exchange: str, rows: RowNumbers) -> None:
        if len(rows) and exchange in self._indexes:
            self._work.append((exchange, rows))

    def run(self) -> RoutedBatch:
        while self._work:
            name, rows = self._work.popleft()
            seen = self._seen.setdefault(name, np.zeros(self._selections.num_rows, np.bool_))
            fresh = rows[~seen[rows]]
            seen[fresh] = True
            if len(fresh):
                self._pass(self._indexes[name], fresh)
        return RoutedBatch(self._selections, self._combinations)

    def _pass(self, index: ExchangeIndex, rows: RowNumbers) -> None:
        codes, answers = index.find_rows(self._columns, rows)
        self._combinations += len(answers)
        self._selections.add(rows, codes, [answer.queues for answer in answers])
        unresolved = {code: a for code, a in enumerate(answers) if isinstance(a, Unresolved)}
        if not unresolved:
            return
        certain = np.fromiter(map(_reaches_any, answers), np.bool_, len(answers))
        reached = np.zeros(self._selections.num_rows, np.bool_)
        reached[rows[certain[codes]]] = True
        grouped = rows_by_code(rows, codes, len(answers))
        for code, answer in unresolved.items():
            for name in answer.exchanges:
                self.send(name, grouped[code])
        checks = [a.checks if isinstance(a, Unresolved) else () for a in answers]
        self._ask(checks, rows, codes, reached)
        for gate, rows_there in _rows_by_gate(unresolved, grouped):
            self._enter(gate, rows_there, reached)
        if index.exchange.alternate is not None:
            self.send(index.exchange.alternate, rows[~reached[rows]])

    def _enter(self, gate: Matcher[Target], rows: RowNumbers, reached: Flags) -> None:
        codes, found = gate.match_rows(self._columns, rows)
        grouped = rows_by_code(rows, codes, len(found))
        for (members, _), together in zip(found, grouped, strict=True):
            self._deliver(members, together, reached)
        self._ask([open_checks for _, open_checks in found], rows, codes, reached)

    def _ask(
        self, checks: Sequence[OpenChecks], rows: RowNumbers, codes: Ints, reached: Flags
    ) -> None:
        for members, passed in passing_rows(self._checks, rows, codes, checks):
            self._deliver(members, passed, reached)

    def _deliver(self, members: Set[Target], rows: RowNumbers, reached: Flags) -> None:
        if not members or not len(rows):
            return
        reached[rows] = True
        queues, exchanges, _ = split_members(members)
        self._selections.add_rows(queues, rows)
        for name in exchanges:
            self.send(name, rows)


def _reaches_any(answer: RouteAnswer) -> bool:
    return bool(answer.queues) or (isinstance(answer, Unresolved) and bool(answer.exchanges))


def _rows_by_gate(
    unresolved: Mapping[int, Unresolved], grouped: Sequence[RowNumbers]
) -> list[tuple[Matcher[Target], RowNumbers]]:
    waiting: dict[int, tuple[Matcher[Target], list[RowNumbers]]] = {}
    for code, answer in unresolved.items():
        for gate in answer.gates:
            waiting.setdefault(id(gate), (gate, []))[1].append(grouped[code])
    return [(gate, np.concatenate(parts)) for gate, parts in waiting.values()]
