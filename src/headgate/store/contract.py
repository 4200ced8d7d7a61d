"""The interface of a store: rows by position, definitions, group commits.

A *lane* is a sequence of rows, numbered by the broker: a queue has one lane, or one for each priority. A row is a
*record*, opaque bytes that begin with the fields below, at a *position* of its lane. Changes are collected by the thread
of the broker and written together by another; `commit` says when they are durable. What is read is what was committed.

    record   prefix length   6 decimal digits, the length of everything in front of the body
             the rest of the prefix, of which the store knows nothing
             body            to the end; empty where the row names a shared one

A body that goes to several lanes is stored once (`share`), and deleted with the last row that names it.

What may have been delivered is known by a *mark* for each lane, a position, and by *notes* for single rows behind it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headgate.store.changes import Changes

PREFIX_DIGITS: Final = 6
ROW_BYTES: Final = 400  # of memory for a row that waits for its commit, besides its record
MAX_POSITION: Final = 1 << 36  # of a lane; their number is at most 1 << 27


class StoredRow(NamedTuple):
    """A row of a lane. `body` is the shared body, None where the record holds its own."""

    position: int
    record: bytes
    body: bytes | None = None
    body_id: int | None = None


class StoredHead(NamedTuple):
    """A row of a lane without its body: the prefix of its record."""

    position: int
    prefix: bytes


@dataclass(frozen=True, slots=True)
class LaneFacts:
    """How much a lane holds: rows, the bytes of their bodies, its first and last position."""

    rows: int
    body_bytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Contents:
    """Everything in a store but the rows themselves, as it is when the store is opened."""

    definitions: dict[tuple[str, str], bytes] = field(default_factory=dict)
    lanes: dict[int, LaneFacts] = field(default_factory=dict)
    marks: dict[int, int] = field(default_factory=dict)
    notes: dict[int, list[int]] = field(default_factory=dict)  # positions by lane
    delayed: int = 0


class Store(ABC):
    """Rows by position. Everything is called by one thread, the broker's."""

    def __init__(self, next_body: int = 1) -> None:
        self._changes = Changes()
        self._next_body = next_body
        # Called before changes are written: it may add some, and returns a function to call when all are durable.
        self.before_commit: Callable[[], Callable[[], None]] | None = None

    @property
    def waiting_bytes(self) -> int:
        """The bytes of changes that wait for the end of the commit under way."""
        return self._changes.size

    # ---- changes, durable after the next commit

    def append(self, lane: int, position: int, record: bytes, body_id: int | None = None) -> None:
        """Store a record at a position above all others of its lane."""
        self._changes.append(lane, position, record if body_id is None else (record, body_id))
        self._changes.size += len(record) + ROW_BYTES

    def share(self, body: bytes) -> int:
        """Store a body for several rows, which are appended before the next commit with the number returned."""
        number = self._next_body
        self._next_body += 1
        self._changes.bodies[number] = body
        self._changes.size += len(body)
        return number

    def replace(self, lane: int, position: int, record: bytes, body_id: int | None = None) -> None:
        """Store another record at the position of one that is there."""
        self._changes.replace(lane, position, record if body_id is None else (record, body_id))

    def delete(self, lane: int, position: int) -> None:
        """Delete a row, if it is there."""
        self._changes.delete(lane, position)

    def delete_range(self, lane: int, first: int, last: int) -> None:
        """Delete the rows that were committed from one position to another, both included."""
        self._changes.delete_range(lane, first, last)

    def clear(self, lane: int) -> None:
        """Delete all rows of a lane, and its mark."""
        self._changes.clear(lane)

    def mark(self, lane: int, position: int) -> None:
        """Note that rows up to this position may have been delivered."""
        self._changes.marks[lane] = position

    def note(self, lane: int, positions: Iterable[int]) -> None:
        """Note that these rows may have been delivered, wherever the mark is; a note is deleted with its row."""
        self._changes.note(lane, positions)

    def forget_notes(self, lane: int, positions: Iterable[int]) -> None:
        """Delete notes, and keep the rows."""
        self._changes.forget_notes(lane, positions)

    def define(self, kind: str, name: str, value: bytes | None) -> None:
        """Store a definition under its kind and name; None deletes it."""
        self._changes.defined[kind, name] = value

    def delay(self, due: int, number: int, record: bytes | None) -> None:
        """Keep a record until it is due; None deletes the one with this time and number."""
        self._changes.delayed[due, number] = record
        self._changes.size += len(record or b"")

    @abstractmethod
    def commit(self, then: Callable[[], None] | None = None) -> None:
        """Make what was changed so far durable, and call `then` in the thread of the broker when it is."""

    # ---- reading what was committed

    @abstractmethod
    def read(self) -> Contents:
        """Read everything but the rows."""

    @abstractmethod
    def page(self, lane: int, after: int, limit: int, max_bytes: int) -> list[StoredRow]:
        """Read rows above a position in order: at most `limit`, and not many more bytes than `max_bytes`."""

    @abstractmethod
    def page_heads(self, lane: int, after: int, limit: int) -> list[StoredHead]:
        """Read the prefixes of at most `limit` rows above a position, in order, and none of their bodies."""

    @abstractmethod
    def read_rows(self, lane: int, positions: Sequence[int], max_bytes: int) -> list[StoredRow]:
        """Read the rows at these positions, in order, until there are about as many bytes as `max_bytes`."""

    @abstractmethod
    def page_delayed(
        self, after: tuple[int, int], limit: int, max_bytes: int
    ) -> list[tuple[int, int, bytes]]:
        """Read delayed records, as (due, number, record), in the order in which they fall due; as many as `page` reads."""

    @abstractmethod
    def close(self) -> None:
        """Commit all changes, and close the files."""


def body_size(record: bytes) -> int:
    """The length of the body at the end of a record."""
    return len(record) - int(record[:PREFIX_DIGITS])
