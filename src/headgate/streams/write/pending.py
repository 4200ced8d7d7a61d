"""Pending messages: accepted, and not yet in the log."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TypeAlias, cast

from headgate.columns import OPTIONAL_FIELDS
from headgate.errors import InvalidMessage
from headgate.message import Message, validate

# A message of a named producer behind its mark: one tuple, because one is made for each message.
Marked: TypeAlias = tuple[str, int, Message]
Item: TypeAlias = Message | Marked


def messages_of(items: Sequence[Item]) -> Sequence[Message]:
    """Return the messages of these items; the items themselves when no message has a mark."""
    if tuple not in map(type, items):
        return cast(Sequence[Message], items)
    return [item[2] if type(item) is tuple else item for item in items]  # type: ignore[misc]


def valid_items(items: Sequence[Item]) -> list[Item]:
    """Return the items with valid messages: the headers of a message may have been changed after it was published."""
    pairs = zip(items, messages_of(items), strict=True)
    return [item for item, message in pairs if _is_valid(message)]


class PendingMessages:
    """A queue without a lock: any thread adds at the end, one thread at a time takes out at the front.

    Each of these is one step of the interpreter on a list, so no other thread can come between. A producer appends a
    message to `items` itself, without a call, because this runs once a message. When there are then `attend_at` items,
    or the payload is longer than `small`, it asks `count_payload` whether the writer has to commit, or to wake the committer.
    """

    __slots__ = (
        "_max_bytes",
        "_max_messages",
        "_nbytes",
        "_since",
        "attend_at",
        "items",
        "small",
        "taken",
        "used",
    )

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        """Make a queue that is full at this number of messages, or of bytes of payload."""
        self._max_messages, self._max_bytes = max_messages, max_bytes
        self.items: list[Item] = []  # this list for ever
        # The optional fields that a message has had so far: noted before it is added, and never taken back.
        self.used: set[str] = set()
        self.attend_at = 0  # the number that makes it full; 0 while the committer has to be woken
        # Messages that were taken out and may not be stored yet: an interrupted commit does not lose them.
        self.taken: Sequence[Item] | None = None
        # Payloads this short fill the queue by their number before they do by their bytes: they are not counted.
        self.small = max_bytes // max_messages
        # Threads that add at once may lose a few bytes: it is only a hint when to commit.
        self._nbytes = 0
        self._since = 0.0

    def __len__(self) -> int:
        return len(self.items)

    @property
    def full(self) -> bool:
        return self._nbytes >= self._max_bytes or len(self.items) >= self._max_messages

    def count_payload(self, message: Message) -> bool:
        """Count the payload of an added message; return whether to commit, or to wake the committer."""
        self._nbytes += len(message.payload)
        return not self.attend_at or self.full

    def add_many(self, items: Sequence[Item]) -> None:
        """Add messages, and count their payloads."""
        self.used.update(OPTIONAL_FIELDS)
        self.items.extend(items)
        self._nbytes += _payload_bytes(items)

    def start_waiting(self) -> bool:
        """Start to measure how long messages wait; return whether the committer must be woken: it saw an empty queue last."""
        if self.attend_at:
            return False
        self._since, self.attend_at = time.monotonic(), self._max_messages
        return True

    def waiting_since(self) -> float | None:
        """Return when the first message was added, by the monotonic clock. Only the committer may ask."""
        # In this order: a thread that adds a message after the check finds attend_at = 0, and wakes the committer.
        self.attend_at = 0
        if not self.items:
            return None
        self.attend_at = self._max_messages
        return self._since

    def drain(self) -> list[Item]:
        """Take out all messages; they are in `taken` until they are stored or put back."""
        items, number = self.items, len(self.items)
        self._nbytes = 0
        self._since = time.monotonic()
        front = items[:number]
        # In one step: an interruption finds the messages in one of the two lists.
        self.taken, items[:number] = front or None, ()
        return front

    def put_back(self, items: Sequence[Item]) -> None:
        """Put messages back at the front, instead of those that were taken out."""
        self._nbytes += _payload_bytes(items)
        self.items[:0], self.taken = items, None

    def clear(self) -> None:
        self.items.clear()
        self.taken = None


def _payload_bytes(items: Sequence[Item]) -> int:
    return sum(len(message.payload) for message in messages_of(items))


def _is_valid(message: Message) -> bool:
    try:
        validate(message)
    except InvalidMessage:
        return False
    return True
