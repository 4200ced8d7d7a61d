"""What everybody should get, by the reference predicate, from the orders as they were made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from headgate.cli.demo.cast import Subscriber
from headgate.columns import header_of, is_header_column
from headgate.filters import matches_filter, parse
from headgate.message import Message

Payloads = list[bytes]


def messages_of(batches: Iterable[pa.RecordBatch]) -> list[Message]:
    """The orders as messages, made from the columns without any stream in between."""
    return [
        Message(
            row["payload"],
            topic=row["topic"],
            timestamp=row["timestamp"],
            headers={
                header_of(name): value
                for name, value in row.items()
                if is_header_column(name) and value is not None
            },
        )
        for batch in batches
        for row in batch.to_pylist()
    ]


def expected(
    messages: Sequence[Message], subscriber: Subscriber, advance: Callable[[], object]
) -> Payloads:
    """The payloads of the messages that match, in order."""
    wanted = parse(subscriber.filter)
    found = [message.payload for message in messages if matches_filter(wanted, message)]
    advance()
    return found


def left_over(messages: Sequence[Message], routed: Iterable[Payloads]) -> Payloads:
    """What none of them got."""
    taken = {payload for payloads in routed for payload in payloads}
    return [message.payload for message in messages if message.payload not in taken]
