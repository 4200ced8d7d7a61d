"""What was sent to a client, and how it looks there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from headgate.amqp.content import Content
from headgate.broker import BrokerQueue, PreconditionFailed, QueueEntry

if TYPE_CHECKING:
    from headgate.amqp.channel import Channel
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


def count_off(channel: Channel, sent: Unacked) -> None:
    """Count a delivery no more: it is settled."""
    if sent.consumer is not None:
        sent.consumer.unacked -= 1
    else:
        channel.got -= 1


def settled(
    unacked: Mapping[int, Unacked], tag: int, multiple: bool
) -> Sequence[tuple[int, Unacked]]:
    """The deliveries that an ack, nack or reject with this tag settles."""
    if tag == 0 and multiple:
        return list(unacked.items())
    if tag not in unacked:
        raise PreconditionFailed(f"unknown delivery tag {tag}")
    if not multiple:
        return ((tag, unacked[tag]),)
    # Requeued entries get new tags, so the tags are in order.
    return list(takewhile(lambda sent: sent[0] <= tag, unacked.items()))
