"""Claims that scan: search in a read transaction, which blocks no writer, then lease the candidates.

Messages never change, so a match stays a match. Candidates that were claimed or locked meanwhile are skipped: another
transaction may hold them for long.
"""

from __future__ import annotations

from collections.abc import Sequence

from headgate.queues.engine import (
    ClaimedMessage,
    Operation,
    Outcome,
    QueueInfo,
    Receipt,
    Transaction,
    TransactionMode,
)
from headgate.queues.sql.dialect import QueueDialect
from headgate.queues.sql.lease import Acks, ClaimRequest, Leases
from headgate.queues.sql.scan_memory import ScanMemory
from headgate.queues.sql.search import Candidate, Search, choose

Claims = tuple[list[ClaimedMessage], list[Outcome]]


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
        """Ack and claim. Repeated while candidates were found and none of them could be leased."""
        claimed: list[ClaimedMessage] = []
        outcomes: list[Outcome] = []
        promoted = yield from self._leases.promote_due(search.queue)
        while not claimed:
            candidates = yield from self._find(search, request.limit)
            chosen = choose(candidates, together=request.together)
            if chosen or acks:
                lease = self._lease(search.queue, chosen, request, acks)
                claimed, more = yield from lease
                outcomes, acks = outcomes + more, ()
            if chosen:
                search = search.without(chosen, candidates)
            elif promoted:
                promoted = yield from self._leases.promote_due(search.queue)
            else:
                break
        return claimed, outcomes

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
    """Only acks must survive a power failure: it also ends the consumer that holds a lost lease."""
    return TransactionMode.WRITE if acks else TransactionMode.LEASE


def claim_state(dialect: QueueDialect, queue: QueueInfo) -> Operation[tuple[bool, bool, int]]:
    """Whether the queue is paused, whether a delivery is due, and the catalog version; -1 if the queue was deleted."""
    rows = yield dialect.statement("claim_state", queue.id, dialect.now_us())
    return rows[0] if rows else (False, False, -1)
