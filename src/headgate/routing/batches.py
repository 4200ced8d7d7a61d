"""Routing a batch of messages at once: rows that look alike to an exchange are asked about once."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence, Set

import numpy as np
import pyarrow as pa

from headgate.columns import BatchColumns
from headgate.matching import (
    Asked,
    Bools,
    Checked,
    Ints,
    Matcher,
    Rows,
    Selections,
    by_code,
    checked_rows,
)
from headgate.routing.answers import Answer, Pending, told_apart
from headgate.routing.bindings import Target
from headgate.routing.exchanges import Index


class RoutedBatch:
    """For each queue the rows it gets, in order, each once."""

    def __init__(self, selections: Selections[str], combinations: int) -> None:
        self._selections = selections
        self.combinations = combinations  # how many different questions the rows came down to

    @property
    def num_rows(self) -> int:
        return self._selections.num_rows

    @property
    def queues(self) -> frozenset[str]:
        """Every queue that gets something."""
        return frozenset(self._selections)

    def rows_of(self, queue: str) -> Rows:
        return self._selections.rows_of(queue)

    def selections(self) -> dict[str, Rows]:
        """The rows of every queue that gets something."""
        return self._selections.all()

    @property
    def unroutable(self) -> Rows:
        """The rows no queue gets."""
        return np.flatnonzero(~self._selections.reached)


def route_rows(indexes: Mapping[str, Index], start: Index, batch: pa.RecordBatch) -> RoutedBatch:
    """Where each row goes, from the start through whatever other exchanges it reaches."""
    journey = _Journey(indexes, batch)
    journey.send(start.exchange.name, np.arange(batch.num_rows))
    return journey.travel()


class _Journey:
    """Rows on their way from exchange to exchange; each passes each exchange once."""

    def __init__(self, indexes: Mapping[str, Index], batch: pa.RecordBatch) -> None:
        self._indexes = indexes
        self._columns = BatchColumns(batch)
        self._asked = Asked(self._columns)
        self._selections: Selections[str] = Selections(batch.num_rows)
        self._seen: dict[str, Bools] = {}
        self._work: deque[tuple[str, Rows]] = deque()
        self._combinations = 0

    def send(self, exchange: str, rows: Rows) -> None:
        if len(rows) and exchange in self._indexes:
            self._work.append((exchange, rows))

    def travel(self) -> RoutedBatch:
        while self._work:
            name, rows = self._work.popleft()
            seen = self._seen.setdefault(name, np.zeros(self._selections.num_rows, np.bool_))
            fresh = rows[~seen[rows]]
            seen[fresh] = True
            if len(fresh):
                self._pass(self._indexes[name], fresh)
        return RoutedBatch(self._selections, self._combinations)

    def _pass(self, index: Index, rows: Rows) -> None:
        codes, answers = index.find_rows(self._columns, rows)
        self._combinations += len(answers)
        self._selections.add(rows, codes, [answer.queues for answer in answers])
        pending = {code: a for code, a in enumerate(answers) if isinstance(a, Pending)}
        if not pending:
            return
        somebody = np.fromiter(map(_certain, answers), np.bool_, len(answers))
        reached = np.zeros(self._selections.num_rows, np.bool_)
        reached[rows[somebody[codes]]] = True
        grouped = by_code(rows, codes, len(answers))
        for code, answer in pending.items():
            for name in answer.exchanges:
                self.send(name, grouped[code])
        checks = [a.checked if isinstance(a, Pending) else () for a in answers]
        self._ask(checks, rows, codes, reached)
        for gate, waiting in _rows_by_gate(pending, grouped):
            self._enter(gate, waiting, reached)
        if index.exchange.alternate is not None:
            self.send(index.exchange.alternate, rows[~reached[rows]])

    def _enter(self, gate: Matcher[Target], rows: Rows, reached: Bools) -> None:
        codes, found = gate.match_rows(self._columns, rows)
        grouped = by_code(rows, codes, len(found))
        for (members, _), alike in zip(found, grouped, strict=True):
            self._deliver(members, alike, reached)
        self._ask([checked for _, checked in found], rows, codes, reached)

    def _ask(self, checks: Sequence[Checked], rows: Rows, codes: Ints, reached: Bools) -> None:
        for members, passed in checked_rows(self._asked, rows, codes, checks):
            self._deliver(members, passed, reached)

    def _deliver(self, members: Set[Target], rows: Rows, reached: Bools) -> None:
        if not members or not len(rows):
            return
        reached[rows] = True
        queues, exchanges, _ = told_apart(members)
        self._selections.add_rows(queues, rows)
        for name in exchanges:
            self.send(name, rows)


def _certain(answer: Answer) -> bool:
    return bool(answer.queues) or (isinstance(answer, Pending) and bool(answer.exchanges))


def _rows_by_gate(
    pending: Mapping[int, Pending], grouped: Sequence[Rows]
) -> list[tuple[Matcher[Target], Rows]]:
    waiting: dict[int, tuple[Matcher[Target], list[Rows]]] = {}
    for code, answer in pending.items():
        for gate in answer.gates:
            waiting.setdefault(id(gate), (gate, []))[1].append(grouped[code])
    return [(gate, np.concatenate(parts)) for gate, parts in waiting.values()]
