"""Looking at the messages of a queue without taking them, and taking one from anywhere, as operators do."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from headgate.broker.dead_letters import DEATHS
from headgate.broker.message import HOLE, BrokerMessage, QueueEntry
from headgate.broker.refusals import PreconditionFailed

if TYPE_CHECKING:
    from headgate.broker.contract import BrokerQueue
    from headgate.broker.lane import QueueLane

WINDOW: Final = 64  # positions that are read from the store at once
_DEATH_HEADERS: Final = (
    DEATHS,
    *(
        f"x-{when}-death-{what}"
        for when in ("first", "last")
        for what in ("exchange", "queue", "reason")
    ),
)


def latest_entries(queue: BrokerQueue, before: int | None = None) -> Iterator[QueueEntry]:
    """Yield the ready entries of a queue before a position, the latest first; one reads as few as one needs."""
    lanes = [_latest_of(lane, before) for lane in queue.lanes]
    waiting = [(entry, lane) for lane in lanes if (entry := next(lane, None)) is not None]
    while waiting:
        entry, lane = max(waiting, key=lambda pair: pair[0].position)
        waiting.remove((entry, lane))
        yield entry
        if (following := next(lane, None)) is not None:
            waiting.append((following, lane))


def _latest_of(lane: QueueLane, before: int | None) -> Iterator[QueueEntry]:
    """The entries of a lane: those in memory that came last, those on disk, those in memory that are next."""
    parts = (
        reversed(lane.tail),
        lane.read_back(WINDOW),
        sorted([*lane.head, *lane.returned], reverse=True),
    )
    for part in parts:
        for entry in part:
            if entry.place != HOLE and (before is None or entry.position < before):
                yield entry


def find_entry(queue: BrokerQueue, position: int) -> QueueEntry:
    """The ready entry at a position."""
    for entry in islice(latest_entries(queue, position + 1), 1):
        if entry.position == position:
            return entry
    raise PreconditionFailed(
        f"message {position} is not ready in queue '{queue.name}' any more: it was delivered, or is gone"
    )


def delete_entry(queue: BrokerQueue, position: int) -> QueueEntry:
    """Take the ready entry at a position out of its queue for good."""
    entry = find_entry(queue, position)
    lane = next(lane for lane in queue.lanes if lane.priority == entry.lane)
    lane.take_out(entry)
    queue.ready_bytes -= entry.message.body_size
    queue.unacked += 1  # as if it had been delivered; the next line settles it
    queue.acked(entry)
    return entry


def requeue_dead_letter(queue: BrokerQueue, position: int) -> str:
    """Move a dead letter back to the queue that it died in first; return the name of that queue."""
    message = find_entry(queue, position).message
    origin = message.headers.get("x-first-death-queue")
    target = queue.vhost.queues.get(origin) if isinstance(origin, str) else None
    if target is None:
        raise PreconditionFailed(
            f"message {position} has no x-first-death-queue that exists: publish it anew instead"
        )
    revived = revive(message)
    delete_entry(queue, position)
    target.publish(revived)
    queue.vhost.broker.dirty.add(target)
    return target.name


def revive(message: BrokerMessage) -> BrokerMessage:
    """The message without the history of its deaths, as it was published first."""
    deaths = message.headers.get(DEATHS)
    first = deaths[-1] if isinstance(deaths, list) and deaths else {}
    known = first if isinstance(first, dict) else {}
    keys, exchange = known.get("routing-keys"), known.get("exchange")
    return message.republished(
        exchange if isinstance(exchange, str) else message.exchange,
        keys[0] if isinstance(keys, list) and keys else message.routing_key,
        {},
        removed=_DEATH_HEADERS,
    )
