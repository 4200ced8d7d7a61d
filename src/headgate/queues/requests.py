"""What callers ask for that takes more than one operation, composed once: the sync face runs it, the asyncio face
awaits it. Names not found raise QueueNotFound; arguments that cannot be used are refused before anything is done.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Final, Protocol

from headgate.errors import QueueNotFound, QueueOptionsError
from headgate.filters import FilterLike
from headgate.queues import arguments
from headgate.queues.engine import (
    ClaimedMessage,
    Operation,
    Operations,
    Outcome,
    QueueInfo,
    QueueOptions,
    Receipt,
    Start,
)

STARTS: Final = ("next", "first")


class Settleable(Protocol):
    """A delivery of the sync or the asyncio face."""

    settled: str | None

    @property
    def receipt(self) -> Receipt: ...


def declare(
    operations: Operations,
    name: str,
    filter_headers: Iterable[str] | None,
    max_attempts: int | None,
    dedup_window: timedelta | None,
    archive: bool | None,
) -> Operation[QueueInfo]:
    """The queue of that name, created when there is none; options given change it, the others stay."""
    known = yield from _options_of(operations, name)
    options = arguments.queue_options(
        filter_headers, max_attempts, dedup_window, archive, otherwise=known
    )
    return (yield from operations.declare(name, options))


def add_filter_header(operations: Operations, name: str, header: str) -> Operation[QueueInfo]:
    """One more filter header for a queue or subscription that exists."""
    known = (yield from operations.find(name)).options
    options = arguments.queue_options((*known.filter_headers, header), otherwise=known)
    return (yield from operations.declare(name, options))


def subscription(
    operations: Operations,
    name: str,
    filter: FilterLike | None,
    pattern: str | None,
    *,
    queue: str | None,
    start: Start,
    filter_headers: Iterable[str] | None,
    max_attempts: int | None,
    archive: bool | None,
) -> Operation[QueueInfo]:
    """A subscription to what matches; one of that name gets the new filter in place. With neither filter nor pattern:
    the one that exists."""
    if filter is None and pattern is None:
        return (yield from _find_subscription(operations, name))
    tree = arguments.subscription_filter(filter, pattern)
    if start not in STARTS:
        raise QueueOptionsError(f"a subscription starts at {' or '.join(STARTS)}, not at {start!r}")
    known = yield from _options_of(operations, name)
    options = arguments.queue_options(filter_headers, max_attempts, None, archive, otherwise=known)
    return (yield from operations.subscribe(name, tree, source=queue, options=options, start=start))


def _find_subscription(operations: Operations, name: str) -> Operation[QueueInfo]:
    info = yield from operations.find(name)
    if info.kind == "queue":
        raise QueueOptionsError(
            f"{name!r} is a queue, not a subscription; have it with find(), or name a subscription"
        )
    return info


def set_filter(
    operations: Operations, info: QueueInfo, filter: FilterLike | None, pattern: str | None
) -> Operation[QueueInfo]:
    """Another filter for a subscription, which goes on taking from the same queue."""
    tree = arguments.subscription_filter(filter, pattern)
    infos = yield from operations.queues()
    known = next((each for each in infos if each.name == info.name), None)
    if known is None:
        raise QueueNotFound(info.name)
    # When its source was dropped there is no name for it, and the operation refuses.
    source = next((each.name for each in infos if each.id == known.source), None)
    return (yield from operations.subscribe(info.name, tree, source=source))


def ack_and_claim(
    operations: Operations,
    info: QueueInfo,
    done: Iterable[Settleable],
    limit: int,
    lease: timedelta,
    filter: FilterLike | None,
    skip: Iterable[int],
) -> Operation[list[ClaimedMessage]]:
    """Ack those and claim the next, in one transaction; when one was stale, what was claimed is given back."""
    acked = [delivery for delivery in done if delivery.settled != "acked"]
    receipts = [delivery.receipt for delivery in acked]
    claimed, outcomes = yield from operations.claim(
        info,
        arguments.check_limit(limit),
        arguments.lease_us(lease),
        filter=arguments.optional_filter(filter),
        skip=frozenset(arguments.message_ids(skip)),
        acks=receipts,
    )
    for delivery, outcome in zip(acked, outcomes, strict=True):
        delivery.settled = "acked" if outcome is Outcome.DONE else None
    if any(outcome is not Outcome.DONE for outcome in outcomes):
        yield from operations.release(info, [one.receipt for one in claimed])
        arguments.check_settled(info.name, receipts, outcomes, "ack")
    return claimed


def _options_of(operations: Operations, name: str) -> Operation[QueueOptions]:
    infos = yield from operations.queues()
    known = {info.name: info.options for info in infos}
    return known.get(name, QueueOptions())
