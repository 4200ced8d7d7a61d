"""Messages of a running broker's queues to look at; in the thread of the broker, so each look is short."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from headgate.clock import now_us
from headgate.filters import FilterLike, as_filter
from headgate.filters.compile import compile_predicate
from headgate.insights.messages import PAGE, MessagePage, Sighting
from headgate.message import PROPERTY_NAMES, Message

if TYPE_CHECKING:
    from headgate.broker import BrokerQueue, QueueEntry

BUDGET_S: Final = 0.03  # other clients wait meanwhile


def newest_in_broker_queue(
    queue: BrokerQueue,
    filter: FilterLike | None = None,
    *,
    before: int | None = None,
    limit: int = PAGE,
    budget_s: float = BUDGET_S,
) -> MessagePage:
    """The newest ready messages of a queue that match, the newest first; `before` a position. Takes none."""
    from headgate.broker import latest_entries

    until = time.monotonic() + budget_s
    matches = None if filter is None else compile_predicate(as_filter(filter), now_us)
    found: list[Sighting] = []
    for number, entry in enumerate(latest_entries(queue, before), 1):
        seen = sight_entry(queue, entry)
        if matches is None or matches(seen.message):
            found.append(seen)
            if len(found) >= limit:
                return MessagePage(tuple(found), entry.position)
        if number % limit == 0 and time.monotonic() > until:
            return MessagePage(tuple(found), entry.position, complete=False)
    return MessagePage(tuple(found), None)


def message_in_broker_queue(queue: BrokerQueue, position: int) -> Sighting:
    """The ready message at a position."""
    from headgate.broker import find_entry

    return sight_entry(queue, find_entry(queue, position))


def sight_entry(queue: BrokerQueue, entry: QueueEntry) -> Sighting:
    """The sighting of an entry of a queue."""
    full = queue.vhost.broker.codec.to_stream(entry.message)
    properties = {name: value for name, value in full.properties.items() if name in PROPERTY_NAMES}
    message = Message(
        full.payload,
        full.topic,
        full.headers,
        full.priority,
        full.timestamp,
        full.id,
        properties=properties,
    )
    died = entry.message.headers.get("x-first-death-queue")
    reason = entry.message.headers.get("x-first-death-reason")
    why = f"{reason} in {died}" if died else None
    return Sighting(
        entry.position, message, "dead" if died else "ready", entry.deliveries, reason=why
    )
