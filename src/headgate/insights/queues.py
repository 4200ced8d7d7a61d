"""Facts about queues and durable subscriptions on SQL: their options, their messages by state, and counts of consumers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from headgate.queues import Database, QueueStats, RateLimit, Usage

# The least and the most time between two readings that make a rate; consumers report every 5 seconds.
BETWEEN_S: Final = (10.0, 600.0)
MOST_SAMPLED: Final = 1_000  # queues


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """A queue, or a durable subscription, which has a filter with a version."""

    name: str
    kind: str
    paused: bool
    filter: str | None
    version: int | None
    filter_headers: tuple[str, ...]
    max_attempts: int
    dedup_window_s: float
    archive: bool
    rate_limit: str | None  # messages per time, such as 100/1s
    ready: int
    delayed: int
    leased: int
    dead: int
    oldest_ready_s: float | None  # age of the oldest message that is ready
    consumers: Mapping[str, Usage]  # by consumer name


def queue_facts(database: Database, name: str) -> QueueFacts:
    """Count the messages of one queue or subscription by state."""
    found = database.find(name)
    return _facts(found.stats(), found.rate_limit())


def list_queues(database: Database) -> list[QueueFacts]:
    """All queues and subscriptions of a database."""
    return [queue_facts(database, info.name) for info in database.queues()]


def list_subscriptions(database: Database) -> list[QueueFacts]:
    """The durable subscriptions of a database."""
    found = [info for info in database.queues() if info.kind == "subscription"]
    return [queue_facts(database, info.name) for info in found]


def _facts(stats: QueueStats, limit: RateLimit | None) -> QueueFacts:
    info, options = stats.info, stats.info.options
    subscribed = info.kind == "subscription"
    age = stats.oldest_ready_us
    return QueueFacts(
        name=info.name,
        kind=info.kind,
        paused=info.paused,
        filter=info.filter if subscribed else None,
        version=info.version if subscribed else None,
        filter_headers=tuple(options.filter_headers),
        max_attempts=options.max_attempts,
        dedup_window_s=options.dedup_window_us / 1e6,
        archive=options.archive,
        rate_limit=None if limit is None else f"{limit.count}/{limit.period_us / 1e6:g}s",
        ready=stats.ready,
        delayed=stats.delayed,
        leased=stats.leased,
        dead=stats.dead,
        oldest_ready_s=None if age is None else age / 1e6,
        consumers=stats.usage,
    )


class QueueRates(NamedTuple):
    """What the consumers of a queue did per second."""

    claimed: float
    acked: float


class _Sample(NamedTuple):
    at_s: float
    claimed: int
    acked: int
    rates: QueueRates | None  # that were known then


class QueueSamples:
    """The counts of consumers when they were last read, by queue. A rate is the difference of two readings."""

    def __init__(self) -> None:
        self._last: dict[str, _Sample] = {}

    def rates(self, queue: QueueFacts, now_s: float) -> QueueRates | None:
        """The rates since this queue was last read; None if that was never or too long ago."""
        claimed = sum(usage.rows for usage in queue.consumers.values())
        acked = sum(usage.acked for usage in queue.consumers.values())
        least_s, most_s = BETWEEN_S
        last, rates = self._last.get(queue.name), None
        if last is not None and last.at_s <= now_s <= last.at_s + most_s and last.acked <= acked:
            passed = now_s - last.at_s
            if passed < least_s:
                return last.rates
            rates = QueueRates((claimed - last.claimed) / passed, (acked - last.acked) / passed)
        if len(self._last) >= MOST_SAMPLED:
            self._last.clear()
        self._last[queue.name] = _Sample(now_s, claimed, acked, rates)
        return rates
