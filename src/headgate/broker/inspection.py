"""What operators do with the messages of a queue: look without taking, delete one, send a dead letter back."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Final

from headgate.broker.dead_letters import DEATHS
from headgate.broker.filter_argument import read_filter
from headgate.broker.message import HOLE, BrokerMessage, QueueEntry
from headgate.broker.refusals import PreconditionFailed
from headgate.filters import compile_filter

if TYPE_CHECKING:
    from headgate.broker.contract import BrokerQueue
    from headgate.broker.lane import QueueLane

MOST_EXAMINED: Final = 1_000  # entries examined for each one that was asked for
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
    """Yield the ready entries of a queue before a position, the latest first, reading only as far as the caller iterates."""
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
        lane.read_back(WINDOW, before),
        sorted([*lane.head, *lane.returned], reverse=True),
    )
    for part in parts:
        for entry in part:
            if entry.place != HOLE and (before is None or entry.position < before):
                yield entry


def browse_entries(
    queue: BrokerQueue, text: str | None = None, after: int = 0, limit: int = 100
) -> list[QueueEntry]:
    """Ready entries behind a position that a filter matches, in the order of positions; nothing is taken.

    At most `limit` are returned, and at most a thousand times as many examined.
    """
    wish = None if text is None else read_filter(text, f"to browse queue '{queue.name}'")
    test = None if wish is None else compile_filter(wish.tree)
    lanes = [_ready_behind(lane, after) for lane in queue.lanes]
    found: list[QueueEntry] = []
    for entry in islice(merge(*lanes), limit * MOST_EXAMINED):
        if test is None or test(entry.message.seen_by_filters()):
            found.append(entry)
            if len(found) == limit:
                break
    return found


def _ready_behind(lane: QueueLane, after: int) -> Iterator[QueueEntry]:
    """The ready entries of a lane behind a position, in order; those in the store are read in pages."""
    returned = sorted(e for e in lane.returned if e.position > after and e.place != HOLE)
    yield from merge(returned, _in_order(lane, after))


def _in_order(lane: QueueLane, after: int) -> Iterator[QueueEntry]:
    for entry in lane.head:
        if entry.position > after and entry.place != HOLE:
            yield entry
    yield from lane.read_on(after)
    for entry in lane.tail:
        if entry.position > after and entry.place != HOLE:
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
    queue.ack(entry)
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
