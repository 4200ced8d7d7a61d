"""What claims have scanned in vain, so that it is not scanned again.

A filter that no index answers, and that matches nothing or nearly nothing, has to scan the whole queue once. But
messages never change, and in a queue every new one has a higher id. So scanned deliveries need not be scanned again,
whatever their state: it is enough to keep the ids of the few that match, and how far the scan came. In a subscription
older messages may arrive later; there, nothing is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from headgate.filters import Filter
from headgate.queues.engine import Operation, QueueInfo, SqlValue, Statement
from headgate.queues.sql.dialect import QueueDialect
from headgate.queues.sql.search import Candidate, Candidates, Search, join_of, keep

_SCANNED_AT_ONCE: Final = 20_000  # deliveries read by one statement
_MOST_KEPT: Final = 100  # matches; with more, reading the queue in its order soon meets some


class ScanRecord(NamedTuple):
    """Of the deliveries up to message `upto`, in whatever state, only `matches` match."""

    upto: int = 0
    matches: tuple[int, ...] = ()
    # Where transactions overlap: the last message seen, and the transaction before which all must have ended until no
    # earlier message can appear any more.
    seen: int = 0
    ending: int = 0


class RecordScan(Protocol):
    def __call__(
        self, before: ScanRecord, last: int, matches: Sequence[int]
    ) -> Operation[ScanRecord]:
        """The record after a scan that came as far as message `last`."""
        ...


def record_in_order(before: ScanRecord, last: int, matches: Sequence[int]) -> Operation[ScanRecord]:
    """The record where ids become visible in their order: where one transaction writes at a time."""
    return ScanRecord(last, tuple(matches))
    yield


class ScanMemory:
    """Finds candidates as Candidates does, without a second scan of what did not match."""

    def __init__(self, dialect: QueueDialect, candidates: Candidates, record: RecordScan) -> None:
        self._dialect, self._candidates, self._record = dialect, candidates, record
        self._records: dict[tuple[int, Filter], ScanRecord] = {}

    def find(self, search: Search, limit: int) -> Operation[list[Candidate]]:
        """The first candidates in the order of the queue. All steps must see one snapshot."""
        queue, plan = search.queue, search.plan
        if not plan.keeps_scans or plan.filter is None:
            return (yield from self._candidates.find(search, limit))
        key = (queue.id, plan.filter)
        if key in self._records:
            matches = yield from self._scan(search, key)
            if matches is not None:
                return (yield from self._claimable(search, matches, limit))
        candidates = yield from self._candidates.find(search, limit)
        if not candidates:
            yield from self._scan(search, key)
        return candidates

    def record(self, queue: QueueInfo, filter: Filter) -> ScanRecord | None:
        """The record of the scans with this filter."""
        return self._records.get((queue.id, filter))

    def _scan(self, search: Search, key: tuple[int, Filter]) -> Operation[list[int] | None]:
        """Scan the deliveries that are new since the last scan; all matches, or None when they are too many."""
        before = self._records.get(key, ScanRecord())
        last, matches = before.upto, list(before.matches)
        while len(matches) <= _MOST_KEPT:
            [(count, end), *more] = yield self.page_statement(search, last)
            matches += [id for _, id in more]
            last = last if end is None else end
            if count < _SCANNED_AT_ONCE:
                break
        if len(matches) > _MOST_KEPT:
            self._records.pop(key, None)
            return None
        keep(self._records, key, (yield from self._record(before, last, matches)))
        return matches

    def page_statement(self, search: Search, after: int) -> Statement:
        """The next deliveries by id: their number and the last of them, then those that match."""
        [condition] = search.plan.conditions
        where = self._dialect.shifted(condition.where, 1)
        text = self._dialect.text(
            "scan_page",
            where=where.text,
            join=join_of(self._dialect, condition),
            most=str(_MOST_KEPT + 1),
        )
        return Statement(text, (search.queue.id, _SCANNED_AT_ONCE, after, *where.params))

    def _claimable(
        self, search: Search, matches: Sequence[int], limit: int
    ) -> Operation[list[Candidate]]:
        """Those of the matches that are candidates, in the order of the queue."""
        ids: list[SqlValue] = [id for id in matches if id not in search.skip]
        if not ids:
            return []
        rows = yield self._dialect.statement("claimable_among", search.queue.id, limit, ids)
        return [Candidate(*row) for row in rows]
