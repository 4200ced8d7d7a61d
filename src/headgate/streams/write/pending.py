"""Pending messages: accepted, and not yet in the log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from itertools import count, repeat
from threading import RLock
from typing import Final, TypeAlias, cast, overload

from headgate.columns import OPTIONAL_FIELDS
from headgate.errors import InvalidMessage
from headgate.message import Message, validate
from headgate.streams.write.publishing_ids import ProducerTable

# A message of a named producer as (name, publishing id, message). The first two are its mark.
Marked: TypeAlias = tuple[str, int, Message]
Item: TypeAlias = Message | Marked

_END: Final = sys.maxsize  # of any list


class Consecutive(Sequence[Marked]):
    """Messages of one producer whose publishing ids follow one another; a marked tuple is made when an item is read."""

    __slots__ = ("first", "messages", "name")

    def __init__(self, name: str, first: int, messages: Sequence[Message]) -> None:
        """`first` is the publishing id of the first message."""
        self.name, self.first, self.messages = name, first, messages

    def __len__(self) -> int:
        return len(self.messages)

    @overload
    def __getitem__(self, at: int) -> Marked: ...
    @overload
    def __getitem__(self, at: slice) -> Consecutive: ...
    def __getitem__(self, at: int | slice) -> Marked | Consecutive:
        ids = range(self.first, self.first + len(self.messages))
        if isinstance(at, slice):
            return Consecutive(self.name, ids[at].start, self.messages[at])
        return self.name, ids[at], self.messages[at]

    def __iter__(self) -> Iterator[Marked]:
        return zip(repeat(self.name), count(self.first), self.messages, strict=False)

    @property
    def last(self) -> int:
        """The publishing id of the last message."""
        return self.first + len(self.messages) - 1


def messages_of(items: Sequence[Item]) -> Sequence[Message]:
    """Return the messages of these items; the items themselves when no message has a mark."""
    if isinstance(items, Consecutive):
        return items.messages
    if tuple not in map(type, items):
        return cast(Sequence[Message], items)
    return [item[2] if type(item) is tuple else item for item in items]  # type: ignore[misc]


def last_ids(marks: Sequence[object]) -> dict[str, int]:
    """Return the highest publishing id of each producer among tuples that begin with a mark; other items are ignored."""
    if isinstance(marks, Consecutive):
        return {marks.name: marks.last} if marks else {}
    last = dict[str, int]()
    for mark in marks:
        if type(mark) is tuple and mark[1] > last.get(mark[0], -1):
            last[mark[0]] = mark[1]
    return last


def valid_items(items: Sequence[Item]) -> list[Item]:
    """Return the items with valid messages: the headers of a message may have been changed after it was published."""
    pairs = zip(items, messages_of(items), strict=True)
    return [item for item, message in pairs if _is_valid(message)]


class PendingMessages:
    """A queue: any thread adds at the end without a lock, one thread at a time takes out at the front.

    Appending a message and taking out all are one step of the interpreter on a list each, so no other thread can come
    between. A producer appends to `items` itself, without a call, because this runs once a message. When there are then
    `attend_at` items, or the payload is longer than `small`, it asks `count_payload` whether the writer has to commit, or to
    wake the committer.

    Only producers of one name, the first that is given to `claim_unmarked`, may append messages without a mark. Such a
    message gets the next publishing id when it is taken out, or earlier, before another id of that name is accepted or read.
    `numbering` is held while ids are accepted, and while messages are added that have one.
    """

    __slots__ = (
        "_claimed",
        "_max_bytes",
        "_max_messages",
        "_name",
        "_nbytes",
        "_numbered",
        "_producers",
        "_since",
        "attend_at",
        "items",
        "numbering",
        "small",
        "taken",
        "used",
    )

    def __init__(self, max_messages: int, max_bytes: int, producers: ProducerTable) -> None:
        """Make a queue that is full at this number of messages, or of bytes of payload."""
        self._max_messages, self._max_bytes = max_messages, max_bytes
        # Always this list: producers refer to it. Once a named producer has claimed the messages without a mark, those of
        # unnamed producers are stored as tuples of one.
        self.items: list[Item | tuple[Message]] = []
        self._producers, self.numbering = producers, RLock()
        # The producer whose messages have no mark, None for the unnamed ones; it is claimed once and never changes again.
        self._claimed, self._name = False, cast(str | None, None)
        self._numbered = 0  # the number of items at the front that are known to have their ids
        # The optional fields that a message has had so far: noted before it is added, and never taken back.
        self.used: set[str] = set()
        # The number of items that makes it full; 0 while the next message has to wake the committer.
        self.attend_at = 0
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

    def claim_unmarked(self, name: str | None) -> bool:
        """Let producers of this name (None: unnamed ones) append without a mark; False when another name has claimed that."""
        with self.numbering:
            if not self._claimed:
                self._claimed, self._name = True, name
            return self._name == name

    def add(self, message: Message, name: str | None, publishing_id: int | None) -> bool:
        """Add a message under its publishing id, or the next one; False when the id was seen. Needs `numbering`."""
        if name is None:
            self.items.extend(self._mark_unnamed([message]))
            return True
        if name == self._name:
            self._number(name)
        accepted = self._producers.accepted
        last = accepted.get(name, -1)
        if publishing_id is None:
            publishing_id = last + 1
        elif publishing_id <= last:
            return False
        accepted[name] = publishing_id
        self.items.append((name, publishing_id, message))
        return True

    def select_new(
        self, messages: Sequence[Message], name: str | None, first: int | None
    ) -> Sequence[Item]:
        """Return the messages that are new, with consecutive publishing ids from `first` on, None: from the next id."""
        if name is None:
            return messages
        following = self.last_id(name) + 1
        first = following if first is None else first
        repeated = min(max(following - first, 0), len(messages))
        return Consecutive(name, first + repeated, messages[repeated:])

    def add_many(self, items: Sequence[Item]) -> None:
        """Add messages that `select_new` returned, and accept their publishing ids; count their payloads."""
        self.used.update(OPTIONAL_FIELDS)
        if isinstance(items, Consecutive) and items:
            marked, accepted, last = list(items), self._producers.accepted, items.last
            # In one step: an interruption finds all messages added and their ids accepted, or neither.
            self.items[_END:], accepted[items.name] = marked, last
        else:
            self.items.extend(self._mark_unnamed(items))
        self._nbytes += _payload_bytes(items)

    def take(self, items: Sequence[Item]) -> None:
        """Accept messages that `select_new` returned and that are written at once; they are in `taken` until then."""
        if isinstance(items, Consecutive):
            accepted, last = self._producers.accepted, items.last
            self.taken, accepted[items.name] = items, last  # in one step
        else:
            self.taken = items

    def last_id(self, name: str) -> int:
        """Return the last accepted id of a producer; -1 before the first."""
        with self.numbering:
            if name == self._name:
                self._number(name)
            return self._producers.last(name)

    def has_ids_of(self, name: str | None) -> bool:
        """Whether a message is pending that has a publishing id of this name."""
        return name is not None and any(
            type(item) is tuple and item[0] == name for item in self.items
        )

    def _number(self, name: str) -> None:
        """Give publishing ids to the messages without a mark, which are this producer's."""
        items, accepted, number = self.items, self._producers.accepted, len(self.items)
        for place in range(self._numbered, number):
            message = items[place]
            if not isinstance(message, tuple):
                next_id = self._producers.last(name) + 1
                items[place], accepted[name] = (name, next_id, message), next_id
        self._numbered = number

    def _mark_unnamed(self, items: Sequence[Item]) -> Sequence[Item | tuple[Message]]:
        """Return items as the queue stores them: an unnamed message as a tuple of one where a named producer has the claim."""
        if isinstance(items, Consecutive) or self.claim_unmarked(None):
            return items
        return [item if isinstance(item, tuple) else (item,) for item in items]

    def start_waiting(self) -> bool:
        """Start to measure how long messages wait; return whether the committer must be woken: it saw an empty queue last."""
        if self.attend_at:
            return False
        self._since, self.attend_at = time.monotonic(), self._max_messages
        return True

    def waiting_since(self) -> float | None:
        """Return since when messages wait, by the monotonic clock; None for an empty queue. Only for the committer."""
        # In this order: a thread that adds a message after the check finds attend_at = 0, and wakes the committer.
        self.attend_at = 0
        if not self.items:
            return None
        self.attend_at = self._max_messages
        return self._since

    def drain(self) -> Sequence[Item]:
        """Take out all messages; they are in `taken` until they are stored or put back."""
        with self.numbering:
            items, name = self.items, self._name
            self._nbytes = 0
            self._since = time.monotonic()
            if name is not None and items and tuple not in map(type, items):
                return self._take_unmarked(name)
            front = cast(list[Item], items[:]) if name is None else self._marked(name)
            # In one step, without a call: an interruption finds the messages in one of the two lists.
            taken, number = front or None, len(front)
            self.taken, items[:number], self._numbered = taken, (), 0
        return front

    def _marked(self, name: str) -> list[Item]:
        """Number the messages of this producer; return all items as they are outside the queue, without tuples of one."""
        self._number(name)
        front = cast(list[Marked | tuple[Message]], self.items[: self._numbered])
        return [item[0] if len(item) == 1 else item for item in front]

    def _take_unmarked(self, name: str) -> Consecutive:
        """Take out all messages, which are this producer's and have no ids yet; give them consecutive publishing ids."""
        items, accepted = self.items, self._producers.accepted
        messages = cast(list[Message], items[:])
        front = Consecutive(name, self._producers.last(name) + 1, messages)
        number, last = len(messages), front.last
        self.taken, items[:number], accepted[name] = front, (), last
        return front

    def put_back(self, items: Sequence[Item]) -> None:
        """Put messages back at the front; `taken` then holds none."""
        with self.numbering:
            self._nbytes += _payload_bytes(items)
            stored = self._mark_unnamed(items)
            self.items[:0], self.taken, self._numbered = stored, None, 0

    def leave_to_parent(self) -> None:
        """In a forked child: forget the messages, and the lock that a thread of the parent may hold."""
        self.numbering = RLock()
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
