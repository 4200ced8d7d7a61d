"""The store in memory: the reference for other stores, and for brokers whose messages need not survive."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

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
from headgate.store.delayed_rows import DelayedRows


class InMemoryStore(Store):
    """Committed rows in dictionaries. A commit is done at the next turn of the broker."""

    def __init__(self, post: Post) -> None:
        self._post = post
        super().__init__()
        self._rows: dict[int, dict[int, Stored]] = {}
        self._bodies: dict[int, bytes] = {}
        self._named: Counter[int] = Counter()  # how many rows name a body
        self._definitions: dict[tuple[str, str], bytes] = {}
        self._marks: dict[int, int] = {}
        self._notes: dict[int, set[int]] = {}
        self._delayed = DelayedRows()

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
        return self._delayed.page(after, limit, max_bytes)

    def close(self) -> None:
        self.commit()

    def _apply(self, changes: Changes) -> None:
        for lane in changes.cleared:
            self._drop_rows(self._rows.pop(lane, {}).values())
            self._marks.pop(lane, None)
            self._notes.pop(lane, None)
        for lane, first, last in changes.ranges:
            rows = self._rows.get(lane, {})
            self._rows[lane] = {p: row for p, row in rows.items() if not first <= p <= last}
            self._drop_rows(row for p, row in rows.items() if first <= p <= last)
        self._bodies |= changes.bodies
        for lane, new in changes.appended.items():
            self._rows.setdefault(lane, {}).update(new)
            self._named.update(row[1] for row in new.values() if isinstance(row, tuple))
        for (lane, position), row in changes.replaced.items():
            rows = self._rows.setdefault(lane, {})
            self._named.update(row[1:] if isinstance(row, tuple) else ())
            self._drop_rows(rows[p] for p in (position,) if p in rows)
            rows[position] = row
        for lane, positions in changes.deleted.items():
            rows = self._rows.get(lane, {})
            self._drop_rows(rows.pop(position) for position in positions if position in rows)
        for number in changes.bodies:
            if not self._named[number]:  # the rows were deleted in the same commit
                del self._bodies[number], self._named[number]
        self._marks |= changes.marks
        self._write_notes(changes)
        for key, value in changes.defined.items():
            if value is None:
                self._definitions.pop(key, None)
            else:
                self._definitions[key] = value
        for delayed, record in changes.delayed.items():
            self._delayed.put(delayed, record)

    def _drop_rows(self, rows: Iterable[Stored]) -> None:
        """Delete the shared bodies that no row names after these rows are deleted."""
        for row in rows:
            if isinstance(row, tuple):
                self._named[row[1]] -= 1
                if not self._named[row[1]]:
                    del self._named[row[1]], self._bodies[row[1]]

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
