"""What a consumer knows of its deliveries: which are leased, which are handled and not yet acked, which were rejected."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from threading import Lock
from typing import Final

from headgate.errors import QueueError, StaleLease
from headgate.filters import Filter, to_text
from headgate.queues import arguments
from headgate.queues.engine import ClaimedMessage, IndexAdvice, Outcome, Receipt, Usage
from headgate.queues.sql.search import RejectedIds, skip_of
from headgate.tally import QUEUES

_log = logging.getLogger(__name__)

RECONNECT_S: Final = (0.1, 5.0)  # first and longest pause after the database was out of reach
ACK_WITHIN_S: Final = 0.05  # after a handler has returned; the acks of that time are one statement
_REPORT_S: Final = 5.0  # between two reports of statistics
_COUNTED: Final = [field.name for field in fields(Usage) if field.name != "filter"]
_LONGEST_REASON: Final = 1000  # characters


def failure_reason(problem: BaseException) -> str:
    """Return why a handler failed, as text that is stored with the message."""
    return f"{type(problem).__name__}: {problem}"[:_LONGEST_REASON]


def warn_of_scans(queue: str, advice: IndexAdvice) -> None:
    """Warn when claims with this filter cannot use an index."""
    if advice.scans and advice.suggestions:
        _log.warning(
            "claims from %r with this filter read everything that is ready; declare %s as filter headers",
            queue,
            ", ".join(advice.suggestions),
        )


def warn_of_failure(queue: str, problem: BaseException) -> None:
    """Warn that a consumer retries after an error; one that is no QueueError is logged with its traceback."""
    expected = isinstance(problem, QueueError)
    _log.warning("consumer of %r: %s; retrying", queue, problem, exc_info=not expected)


class Ledger:
    """The deliveries and statistics of one consumer. Safe to use from several threads."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._lock = Lock()
        self._leased: dict[Receipt, None] = {}
        self._handled: list[Receipt] = []
        self._handled_since = 0.0
        self._rejected = RejectedIds()
        self._counts: Counter[str] = Counter()
        self._reported_at = time.monotonic()

    # -- leases --

    def add_claimed(self, claimed: Sequence[ClaimedMessage], spent_us: int) -> None:
        """Note the result of a claim that took that long. The deliveries count as leased until they are forgotten."""
        with self._lock:
            self._leased.update(dict.fromkeys(one.receipt for one in claimed))
        self.count(claims=1, empty_claims=int(not claimed), rows=len(claimed), claim_us=spent_us)

    def leased(self) -> list[Receipt]:
        """Return the deliveries whose leases are to be extended."""
        with self._lock:
            return list(self._leased)

    def forget(self, receipts: Iterable[Receipt]) -> None:
        """Stop extending these leases: the deliveries are settled, or their leases are left to end."""
        with self._lock:
            for receipt in receipts:
                self._leased.pop(receipt, None)

    # -- acks --

    def add_handled(self, receipt: Receipt) -> None:
        """Note that a handler has returned: the delivery is to be acked."""
        with self._lock:
            if not self._handled:
                self._handled_since = time.monotonic()
            self._handled.append(receipt)

    @contextmanager
    def acking(self) -> Iterator[list[Receipt]]:
        """Take all deliveries that are to be acked; the caller acks them in the block. If it raises, they are put back."""
        with self._lock:
            acks, self._handled = self._handled, []
        try:
            yield acks
        except BaseException:
            with self._lock:
                self._handled[:0] = acks
            raise

    def seconds_to_ack(self) -> float | None:
        """Return how long the next ack may still wait; None if nothing is to be acked."""
        with self._lock:
            if not self._handled:
                return None
            return max(self._handled_since + ACK_WITHIN_S - time.monotonic(), 0.0)

    def give_up_acks(self, problem: QueueError) -> None:
        """Drop the deliveries that are to be acked, and warn that they will be delivered again."""
        with self._lock:
            left, self._handled = len(self._handled), []
        _log.warning("%d messages of %r will be delivered again: %s", left, self._queue, problem)

    def add_acked(self, receipts: Sequence[Receipt], outcomes: Sequence[Outcome]) -> None:
        """Note the outcomes of acks; warn of those that came after the end of the lease."""
        self.forget(receipts)
        self.count(acked=sum(outcome is Outcome.DONE for outcome in outcomes))
        try:
            arguments.check_settled(self._queue, receipts, outcomes, "ack")
        except StaleLease as stale:
            _log.warning("%s", stale)

    # -- rejections --

    def reject(self, ids: Iterable[int]) -> None:
        """Note that no member accepts these messages: they are not claimed again."""
        with self._lock:
            new = {id for id in ids if id not in self._rejected}
            self._rejected.update(new)
        self.count(unmatched=len(new))

    def rejected(self) -> Collection[int]:
        """Return the ids that a claim is to skip."""
        with self._lock:
            return skip_of(self._rejected)

    # -- statistics --

    def count(self, **counts: int) -> None:
        with self._lock:
            self._counts.update(counts)
        QUEUES.add(**counts)

    def is_report_due(self) -> bool:
        return time.monotonic() - self._reported_at >= _REPORT_S

    def report(self, filter: Filter | None) -> Usage | None:
        """Return the counts since the last report, with the filter of the claims; None if nothing was counted."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
            self._reported_at = time.monotonic()
        if not any(counts.values()):
            return None
        counted = {name: counts[name] for name in _COUNTED}
        return Usage(**counted, filter=None if filter is None else to_text(filter))
