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


class Pending:
    """A queue that needs no lock: any thread adds at the end, one at a time takes out at the front.

    Each of these is one step of the interpreter on a list, which no other thread comes between. An entry is a plain
    message, or a pair of any message and its mark. `add_plain` is called once a message, so everything in it is
    counted in nanoseconds.
    """

    __slots__ = ("_entries", "_most_bytes", "_most_messages", "_nbytes", "_noticed", "_since")

    def __init__(self, most_messages: int, most_bytes: int) -> None:
        """Full with so many messages, or so many bytes of payload."""
        self._most_messages, self._most_bytes = most_messages, most_bytes
        self._entries: list[Message | tuple[Message, Mark | None]] = []
        # Threads may add at once and lose a few: it only says about when to commit.
        self._nbytes = 0
        self._noticed = False
        self._since = 0.0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def full(self) -> bool:
        return self._nbytes >= self._most_bytes or len(self._entries) >= self._most_messages

    def add_plain(self, message: Message) -> bool:
        """Take it in; whether it is time to commit, or to tell the committer."""
        entries = self._entries
        entries.append(message)
        self._nbytes = nbytes = self._nbytes + len(message.payload)
        return (
            not self._noticed or len(entries) >= self._most_messages or nbytes >= self._most_bytes
        )

    def add(self, message: Message, mark: Mark | None) -> bool:
        """The same for any message."""
        self._entries.append((message, mark))
        self._nbytes += len(message.payload)
        return not self._noticed or self.full

    def notice(self) -> bool:
        """Whether the committer has to be told that messages wait; asked by whoever added some."""
        if self._noticed:
            return False
        self._since, self._noticed = time.monotonic(), True
        return True

    def waiting_since(self) -> float | None:
        """When messages began to wait, by the monotonic clock; for the committer alone to ask."""
        # In this order: whoever adds after the look finds that nobody has noticed.
        self._noticed = False
        if not self._entries:
            return None
        self._noticed = True
        return self._since

    def drain(self) -> Drained:
        """Take out all that is there now."""
        entries, number = self._entries, len(self._entries)
        self._nbytes = 0
        taken = entries[:number]
        del entries[:number]
        self._since = time.monotonic()
        if tuple not in set(map(type, taken)):
            return Drained(cast(list[Message], taken), (), plain=True)
        pairs = [entry if type(entry) is tuple else (entry, None) for entry in taken]
        return Drained([pair[0] for pair in pairs], [pair[1] for pair in pairs])  # type: ignore[misc]

    def put_back(self, drained: Drained) -> None:
        """They come first again."""
        messages, marks, plain = drained
        marked = zip(messages, marks or repeat(None), strict=False)
        self._entries[:0] = messages if plain else marked
        self._nbytes += sum(len(message.payload) for message in drained.messages)


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
