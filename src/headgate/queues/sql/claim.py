"""Claims that scan: search in a read transaction, which blocks no writer, then lease the candidates.

Messages never change, so a match stays a match. Candidates that were claimed or locked meanwhile are skipped: another
transaction may hold them for long.

A filter that no index answers, and that matches nothing or nearly nothing, has to scan the whole queue once. But in a queue
every new message has a higher id. So scanned deliveries need not be scanned again, whatever their state: ScanMemory keeps
the ids of the few that match, and how far the scan came. In a subscription older messages may arrive later; there, nothing
is kept.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple, Protocol

from headgate.filters import Filter
from headgate.queues.engine import (
    ClaimedMessage,
    ClaimRequest,
    Claims,
    Operation,
    Outcome,
    QueueInfo,
    Receipt,
    SqlValue,
    Statement,
    Transaction,
    TransactionMode,
)
from headgate.queues.sql.dialect import QueueDialect
from headgate.queues.sql.lease import Acks, Leases
from headgate.queues.sql.search import (
    Candidate,
    Candidates,
    Search,
    choose,
    join_of,
    keep,
    looked_at,
)

_SCANNED_AT_ONCE: Final = 20_000  # deliveries read by one statement
_FURTHER: Final = 8  # times as many candidates are searched next
_READ_AT_ONCE: Final = 500  # READY deliveries, at first
_FIRST_RANK: Final = -256  # below that of any priority
_MOST_REJECTED: Final = 20_000  # messages that are known not to match, for one filter
_MOST_WITH_REJECTED: Final = 16  # filters
_MOST_KEPT: Final = 100  # matches that are kept; where there are more, reading the queue in its order soon finds some


class ScanClaims:
    """Claims whose filter no index answers."""

    def __init__(
        self, dialect: QueueDialect, leases: Leases, acks: Acks, candidates: ScanMemory
    ) -> None:
        self._dialect, self._leases, self._acks = dialect, leases, acks
        self._candidates = candidates

    def claim(
        self, search: Search, request: ClaimRequest, acks: Sequence[Receipt]
    ) -> Operation[Claims]:
        """Ack and claim. Repeated while candidates were found and none of them could be leased.

        If the first member of a group could not be leased, another claim has it, and the other members must come after it.
        They may be many, so the next search is for more candidates.
        """
        claimed: list[ClaimedMessage] = []
        outcomes: list[Outcome] = []
        reach = 1
        promoted = yield from self._leases.promote_due(search.queue)
        while not claimed:
            candidates = yield from self._find(search, request.limit * reach)
            others = [each for each in candidates if each.group not in search.tried_groups]
            chosen = choose(others, together=request.together)[: request.limit]
            reach, acked = 1 if chosen else reach * _FURTHER, acks
            if chosen or acks:
                lease = self._lease(search.queue, chosen, request, acks)
                claimed, more = yield from lease
                outcomes, acks = outcomes + more, ()
            if candidates:
                search = search.without(chosen, candidates)
            elif acked:
                continue  # they may have freed a group
            elif promoted:
                promoted = yield from self._leases.promote_due(search.queue)
            else:
                break
        return claimed, outcomes

    def looks_first(self, search: Search) -> bool:
        """Whether the search begins with a look at the first READY deliveries."""
        if self._candidates.looks_first(search):
            return True
        [condition, *others] = search.plan.conditions
        ranged = condition.ranged
        by_key = condition.scans and ranged is not None and ranged.keys is not None
        return by_key and not others and not condition.residual and isinstance(search.skip, tuple)

    def _find(self, search: Search, limit: int) -> Operation[list[Candidate]]:
        """The first candidates; none if the queue is paused."""

        def find() -> Operation[list[Candidate]]:
            paused, *_ = yield from claim_state(self._dialect, search.queue)
            return [] if paused else (yield from self._candidates.find(search, limit))

        candidates: list[Candidate] = yield Transaction(TransactionMode.READ, find)
        return candidates

    def _lease(
        self,
        queue: QueueInfo,
        chosen: Sequence[Candidate],
        request: ClaimRequest,
        acks: Sequence[Receipt],
    ) -> Operation[Claims]:
        def lease() -> Operation[Claims]:
            outcomes = yield from self._acks.ack_within(queue, acks)
            ids = [candidate.id for candidate in chosen]
            if not ids:
                return [], outcomes
            now = self._dialect.now_us()
            return (yield from self._leases.grant(queue, ids, request, now)), outcomes

        result: Claims = yield Transaction(claim_mode(acks), lease)
        return result


def claim_mode(acks: Sequence[Receipt]) -> TransactionMode:
    """WRITE if the claim acks too: an ack must survive a power failure. Losing a lease only repeats a delivery."""
    return TransactionMode.WRITE if acks else TransactionMode.LEASE


def claim_state(dialect: QueueDialect, queue: QueueInfo) -> Operation[tuple[bool, bool, int]]:
    """Whether the queue is paused, whether a delivery is due, and the catalog version; -1 if the queue was deleted."""
    rows = yield dialect.statement("claim_state", queue.id, dialect.now_us())
    return rows[0] if rows else (False, False, -1)


# ---- scans that are not repeated -----------------------------------------------------------------------


class ScanRecord(NamedTuple):
    """The record of a scan: of the deliveries up to message `upto`, in any state, only `matches` match the filter."""

    upto: int = 0
    matches: tuple[int, ...] = ()
    # Where transactions overlap: the last message seen, and a transaction. When all transactions before that one have
    # ended, no message can appear any more before the last one seen.
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


@dataclass(slots=True)
class SeenMessages:
    """What claims with one filter have found among the READY deliveries."""

    rejected: set[int] = field(default_factory=set)  # messages that do not match
    # How far the last claim had to read; by whether the deliveries are set aside.
    reach: Counter[str] = field(default_factory=Counter)


class ScanMemory:
    """Finds the candidates of a search, without scanning again what did not match in an earlier one."""

    def __init__(self, dialect: QueueDialect, candidates: Candidates, record: RecordScan) -> None:
        self._dialect, self._candidates, self._record = dialect, candidates, record
        # None: there are too many matches to keep.
        self._records: dict[tuple[int, Filter], ScanRecord | None] = {}
        self._seen: dict[tuple[int, Filter], SeenMessages] = {}

    def find(self, search: Search, limit: int) -> Operation[list[Candidate]]:
        """The first candidates in the order of the queue. All steps must see one snapshot.

        The first READY deliveries are looked at before anything is scanned: often enough of them match.
        """
        queue, plan = search.queue, search.plan
        if not plan.keeps_scans or plan.filter is None:
            return (yield from self._candidates.find(search, limit))
        key = (queue.id, plan.filter)
        if self.looks_first(search) and not search.has_looked:
            candidates = yield from self._look(search, key, limit)
            if len(candidates) >= limit:
                return candidates
        if self._records.get(key, ScanRecord()) is not None:
            matches = yield from self._scan(search, key)
            if matches is not None:
                return (yield from self._claimable(search, matches, limit))
        if self._reads_messages(search):
            candidates = yield from self._read(search, key, limit)
        else:
            candidates = yield from self._candidates.find(search, limit)
        if not candidates:
            self._records.pop(key, None)  # all matches are leased, delayed or gone
        return candidates

    def looks_first(self, search: Search) -> bool:
        """Whether the first READY deliveries are to be looked at before a scan: until one has shown how many match."""
        queue, plan = search.queue, search.plan
        if not isinstance(search.skip, tuple) or plan.filter is None:
            return False
        return plan.keeps_scans and (queue.id, plan.filter) not in self._records

    def record(self, queue: QueueInfo, filter: Filter) -> ScanRecord | None:
        """The record of the scans with this filter."""
        return self._records.get((queue.id, filter))

    def _look(
        self, search: Search, key: tuple[int, Filter], limit: int
    ) -> Operation[list[Candidate]]:
        if self._reads_messages(search):
            return (yield from self._read(search, key, limit, looked_at(limit)))
        return (yield from self._candidates.look(search, limit))

    def _reads_messages(self, search: Search) -> bool:
        """Whether READY deliveries are read without their messages, and of these only the ones that may match."""
        [condition] = search.plan.conditions
        is_named = isinstance(search.skip, tuple)
        return is_named and condition.needs_message and self._dialect.has("matching_among")

    def _read(
        self, search: Search, key: tuple[int, Filter], limit: int, most: int | None = None
    ) -> Operation[list[Candidate]]:
        """The first candidates, among the first `most` READY deliveries.

        Messages that did not match are not read again: in a queue with priorities, nearly each is on another page.
        """
        seen = self._seen.get(key)
        if seen is None:
            if len(self._seen) >= _MOST_WITH_REJECTED:
                self._seen.clear()
            seen = self._seen[key] = SeenMessages()
        met: list[list[int]] = []
        candidates: list[Candidate] = []
        for part in ("not_aside", "aside"):
            candidates += yield from self._read_part(search, limit, most, part, seen, met)
        if len(seen.rejected) >= _MOST_REJECTED:
            seen.rejected.intersection_update(
                chain(*met)
            )  # the others were consumed, or come later
        return sorted(candidates, key=lambda each: (each.rank, each.id))[:limit]

    def _read_part(
        self,
        search: Search,
        limit: int,
        most: int | None,
        part: str,
        seen: SeenMessages,
        met: list[list[int]],
    ) -> Operation[list[Candidate]]:
        candidates: list[Candidate] = []
        text = self._dialect.text("ready_page", part=self._dialect.text(part))
        rank, last, read = _FIRST_RANK, 0, 0
        size = min(seen.reach[part] + _READ_AT_ONCE, _SCANNED_AT_ONCE)
        while len(candidates) < limit and (most is None or read < most):
            [(document, rank)] = yield Statement(text, (search.queue.id, size, rank, last))
            ids: list[int] = json.loads(document)
            met.append(ids)
            unknown = [id for id in ids if id not in seen.rejected]
            if unknown:
                found = yield self._matching_statement(search, unknown)
                matches = [id for (id,) in found]
                if len(seen.rejected) < _MOST_REJECTED:
                    seen.rejected.update(set(unknown).difference(matches))
                candidates += yield from self._claimable(search, matches, limit)
            if len(candidates) >= limit:
                seen.reach[part] = read + ids.index(candidates[limit - 1].id)
            if len(ids) < size:
                break
            read += size
            last, size = ids[-1], min(size * 2, _SCANNED_AT_ONCE)
        return candidates

    def _matching_statement(self, search: Search, ids: Sequence[int]) -> Statement:
        [condition] = search.plan.conditions
        text = self._dialect.text(
            "matching_among", where=condition.where.text, join=join_of(self._dialect, condition)
        )
        return Statement(text, (search.queue.id, list(ids), *condition.where.params))

    def _scan(self, search: Search, key: tuple[int, Filter]) -> Operation[list[int] | None]:
        """Scan the deliveries that are new since the last scan; all matches, or None when they are too many."""
        before = self._records.get(key) or ScanRecord()
        last, matches, count = before.upto, list(before.matches), _SCANNED_AT_ONCE
        while count == _SCANNED_AT_ONCE:
            [(count, end), *more] = yield self.page_statement(search, last)
            matches += [id for _, id in more]
            last = max(last, end or 0)
            if len(matches) > _MOST_KEPT:
                matches = yield from self._existing(search.queue, matches)
            if len(matches) > _MOST_KEPT:
                keep(self._records, key, None)
                return None
        keep(self._records, key, (yield from self._record(before, last, matches)))
        return matches

    def _existing(self, queue: QueueInfo, matches: Sequence[int]) -> Operation[list[int]]:
        """The matches that were not consumed meanwhile."""
        rows = yield self._dialect.statement("existing_ids", queue.id, list(matches))
        existing = {id for (id,) in rows}
        return [id for id in matches if id in existing]

    def page_statement(self, search: Search, after: int) -> Statement:
        """The statement that finds the next deliveries by id: their number and the last of them, then those that match."""
        [condition] = search.plan.conditions
        where = self._dialect.shifted(condition.where, 1)
        reads_messages = condition.needs_message and self._dialect.has("scan_messages")
        text = self._dialect.text(
            "scan_messages" if reads_messages else "scan_page",
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
