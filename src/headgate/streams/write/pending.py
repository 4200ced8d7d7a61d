"""Messages that were accepted and are not yet in the log."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple, TypeAlias, cast

from headgate.errors import InvalidMessage
from headgate.message import Message, validate

# Which named producer sent a message, and under which publishing id. A plain tuple: one is made per message.
Mark: TypeAlias = tuple[str, int]


class Drained(NamedTuple):
    """Messages taken out together. Plain ones have nothing but topic, headers and payload, and no marks."""

    messages: list[Message]
    marks: Sequence[Mark | None]
    plain: bool = False

    def after(self, done: int) -> Drained:
        """Without the first `done` messages."""
        return Drained(self.messages[done:], self.marks[done:], self.plain)

    def valid(self) -> Drained:
        """Those that can be published: a message whose headers were changed after it was sent may not be."""
        kept = [i for i, message in enumerate(self.messages) if _is_valid(message)]
        marks = [self.marks[i] for i in kept] if self.marks else ()
        return Drained([self.messages[i] for i in kept], marks, self.plain)


class PendingMessages:
    """A queue that needs no lock: any thread adds at the end, one at a time takes out at the front.

    Each of these is one step of the interpreter on a list, which no other thread comes between. An entry is a plain
    message, or a pair of any message and its mark. A plain message is simply appended to `entries`, without a call:
    this is done once a message, so everything in it is counted in nanoseconds. Then, if there are `attend_at` of
    them or its payload is longer than `small`, `weigh` says whether there is something to be seen to.
    """

    __slots__ = (
        "_most_bytes",
        "_most_messages",
        "_nbytes",
        "_since",
        "attend_at",
        "entries",
        "small",
        "taken",
    )

    def __init__(self, most_messages: int, most_bytes: int) -> None:
        """Full with so many messages, or so many bytes of payload."""
        self._most_messages, self._most_bytes = most_messages, most_bytes
        self.entries: list[Message | tuple[Message, Mark | None]] = []  # always the same list
        self.attend_at = 0  # the number that makes it full; 0 while the committer has to be told
        # What was taken out and is not known to be stored: whatever interrupts its writing, it is not lost.
        self.taken: Drained | None = None
        # Payloads this short never fill it by their bytes before they do by their number: they need no counting.
        self.small = most_bytes // most_messages
        # Threads may add at once and lose a few: it only says about when to commit.
        self._nbytes = 0
        self._since = 0.0

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def full(self) -> bool:
        return self._nbytes >= self._most_bytes or len(self.entries) >= self._most_messages

    def weigh(self, message: Message) -> bool:
        """Count an appended message's payload; whether it is time to commit, or to tell the committer."""
        self._nbytes += len(message.payload)
        return not self.attend_at or self.full

    def add(self, message: Message, mark: Mark | None) -> bool:
        """Take in any message; the same answer."""
        self.entries.append((message, mark))
        return self.weigh(message)

    def notice(self) -> bool:
        """Whether the committer has to be told that messages wait; asked by whoever added some."""
        if self.attend_at:
            return False
        self._since, self.attend_at = time.monotonic(), self._most_messages
        return True

    def waiting_since(self) -> float | None:
        """When messages began to wait, by the monotonic clock; for the committer alone to ask."""
        # In this order: whoever adds after the look finds that nobody has noticed.
        self.attend_at = 0
        if not self.entries:
            return None
        self.attend_at = self._most_messages
        return self._since

    def drain(self) -> Drained:
        """Take out all that is there now; it is in `taken` until it is stored, or put back."""
        entries, number = self.entries, len(self.entries)
        self._nbytes = 0
        self._since = time.monotonic()
        taken = entries[:number]
        if tuple not in map(type, taken):
            drained = Drained(cast(list[Message], taken), (), plain=True)
        else:
            pairs = [entry if type(entry) is tuple else (entry, None) for entry in taken]
            drained = Drained([pair[0] for pair in pairs], [pair[1] for pair in pairs])  # type: ignore[misc]
        # In one step: an interruption finds the messages in one of the two places.
        self.taken, entries[:number] = drained if number else None, ()
        return drained

    def put_back(self, drained: Drained) -> None:
        """They come first again, in the place of what was taken out."""
        messages, marks, plain = drained
        entries = messages if plain else list(zip(messages, marks or repeat(None), strict=False))
        self._nbytes += sum(len(message.payload) for message in messages)
        self.entries[:0], self.taken = entries, None

    def clear(self) -> None:
        self.entries.clear()
        self.taken = None


def _is_valid(message: Message) -> bool:
    try:
        validate(message)
    except InvalidMessage:
        return False
    return True


def last_ids(marks: Sequence[Mark | None]) -> dict[str, int]:
    """The last publishing id of each producer among these."""
    if not any(marks):
        return {}
    return dict(mark for mark in marks if mark is not None)
