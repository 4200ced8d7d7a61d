"""What was sent to a client, and how it looks there."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headgate.amqp.content import Content
from headgate.broker import BrokerQueue, QueueEntry

if TYPE_CHECKING:
    from headgate.amqp.consumer import ChannelConsumer


class Unacked(NamedTuple):
    """An entry that was sent and not acknowledged; the consumer is None where it was asked for by basic.get."""

    entry: QueueEntry
    consumer: ChannelConsumer | None
    queue: BrokerQueue


def sent_content(entry: QueueEntry, queue: BrokerQueue) -> Content:
    """The message of an entry as a consumer gets it: one of a quorum queue says how often it came back."""
    content = entry.message
    assert isinstance(content, Content)
    if entry.deliveries and queue.definition.type == "quorum":
        return content.with_headers({"x-delivery-count": entry.deliveries})
    return content
