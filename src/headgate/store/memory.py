"""The store in memory: the reference for the others, and for brokers that need nothing to survive."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from heapq import nsmallest
from typing import TypeVar

from headgate.store.changes import Changes, Stored
from headgate.store.committer import Post
from headgate.store.contract import (
    PREFIX_DIGITS,
    Contents,
    LaneFacts,
    Store,
    StoredHead,
    StoredRow,
    body_size,
)

_Key = TypeVar("_Key")


class InMemoryStore(Store):
    """Committed rows in dictionaries. A commit is done at the next turn of the broker."""

    def __init__(self, post: Post) -> None:
        self._post = post
        super().__init__()
        self._rows: dict[int, dict[int, Stored]] = {}
        self._bodies: dict[int, bytes] = {}
        self._definitions: dict[tuple[str, str], bytes] = {}
        self._marks: dict[int, int] = {}
        self._notes: dict[int, set[int]] = {}
        self._delayed: dict[tuple[int, int], bytes] = {}

    def commit(self, then: Callable[[], None] | None = None) -> None:
        if then is not None:
            self._changes.then.append(then)
        if self._changes:
            if self.before_commit is not None:
                self._changes.then.append(self.before_commit())
            changes, self._changes = self._changes, Changes()
            self._apply(changes)
            for call in changes.then:
                self._post(call)

    def read(self) -> Contents:
        lanes = {lane: self._facts(rows) for lane, rows in self._rows.items() if rows}
        notes = {lane: sorted(noted) for lane, noted in self._notes.items() if noted}
        return Contents(
            dict(self._definitions), lanes, dict(self._marks), notes, len(self._delayed)
        )

    def page(self, lane: int, after: int, limit: int, max_bytes: int) -> list[StoredRow]:
        rows = self._rows.get(lane, {})
        positions = sorted(rows)
        wanted = positions[bisect_right(positions, after) :][:limit]
        return self.read_rows(lane, wanted, max_bytes)

    def page_heads(self, lane: int, after: int, limit: int) -> list[StoredHead]:
        rows = self._rows.get(lane, {})
        positions = sorted(rows)
        wanted = positions[bisect_right(positions, after) :][:limit]
        return [StoredHead(position, _prefix(rows[position])) for position in wanted]

    def read_rows(self, lane: int, positions: Sequence[int], max_bytes: int) -> list[StoredRow]:
        rows = self._rows.get(lane, {})
        found: list[StoredRow] = []
        size = 0
        for position in sorted(positions):
            stored = rows.get(position)
            if stored is None:
                continue
            if isinstance(stored, bytes):
                found.append(StoredRow(position, stored))
            else:
                found.append(StoredRow(position, stored[0], self._bodies[stored[1]], stored[1]))
            size += len(found[-1].record) + len(found[-1].body or b"")
            if size >= max_bytes:
                break
        return found

    def page_delayed(
        self, after: tuple[int, int], limit: int, max_bytes: int
    ) -> list[tuple[int, int, bytes]]:
        found: list[tuple[int, int, bytes]] = []
        for key in nsmallest(limit, (key for key in self._delayed if key > after)):
            found.append((*key, self._delayed[key]))
            max_bytes -= len(found[-1][2])
            if max_bytes <= 0:
                break
        return found

    def close(self) -> None:
        self.commit()

    def _apply(self, changes: Changes) -> None:
        for lane in changes.cleared:
            self._rows.pop(lane, None)
            self._marks.pop(lane, None)
            self._notes.pop(lane, None)
        for lane, first, last in changes.ranges:
            rows = self._rows.get(lane, {})
            self._rows[lane] = {p: row for p, row in rows.items() if not first <= p <= last}
        self._bodies |= changes.bodies
        for lane, new in changes.appended.items():
            self._rows.setdefault(lane, {}).update(new)
        for (lane, position), row in changes.replaced.items():
            self._rows.setdefault(lane, {})[position] = row
        for lane, positions in changes.deleted.items():
            for position in positions:
                self._rows.get(lane, {}).pop(position, None)
        self._marks |= changes.marks
        self._write_notes(changes)
        _put(self._definitions, changes.defined)
        _put(self._delayed, changes.delayed)
        if self._bodies and (
            changes.bodies or changes.deleted or changes.ranges or changes.cleared
        ):
            named = {row[1] for rows in self._rows.values() for row in rows.values() if isinstance(row, tuple)}  # fmt: skip
            self._bodies = {number: b for number, b in self._bodies.items() if number in named}

    def _write_notes(self, changes: Changes) -> None:
        for lane, positions in changes.noted.items():
            self._notes.setdefault(lane, set()).update(positions)
        for lane, gone in changes.forgotten.items():
            self._notes.get(lane, set()).difference_update(gone)
        for lane, noted in self._notes.items():
            noted.intersection_update(self._rows.get(lane, {}))

    def _facts(self, rows: dict[int, Stored]) -> LaneFacts:
        sizes = (
            body_size(row) if isinstance(row, bytes) else len(self._bodies[row[1]])
            for row in rows.values()
        )
        return LaneFacts(len(rows), sum(sizes), min(rows), max(rows))


def _prefix(stored: Stored) -> bytes:
    record = stored if isinstance(stored, bytes) else stored[0]
    return record[: int(record[:PREFIX_DIGITS])]


def _put(place: dict[_Key, bytes], changed: dict[_Key, bytes | None]) -> None:
    for key, value in changed.items():
        if value is None:
            place.pop(key, None)
        else:
            place[key] = value
