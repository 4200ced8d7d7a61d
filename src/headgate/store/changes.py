"""Changes that wait for the next group commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

# A record, with the number of its body where that is shared.
Stored: TypeAlias = bytes | tuple[bytes, int]


class RecordRun(NamedTuple):
    """Records at successive positions, whose shared bodies have successive numbers, if they have any."""

    first: int
    first_body: int | None
    records: tuple[bytes, ...]


class Changes:
    """What one group commit writes. A row that is appended and deleted in it is not written at all."""

    __slots__ = ("appended", "bodies", "cleared", "defined", "delayed", "deleted", "forgotten", "marks", "noted", "ranges", "replaced", "size", "then")  # fmt: skip

    def __init__(self) -> None:
        self.appended: dict[int, dict[int, Stored]] = {}  # by lane and position
        self.bodies: dict[int, bytes] = {}
        self.cleared: set[int] = set()
        self.defined: dict[tuple[str, str], bytes | None] = {}
        self.delayed: dict[tuple[int, int], bytes | None] = {}
        self.deleted: dict[int, list[int]] = {}
        self.marks: dict[int, int] = {}
        self.noted: dict[int, set[int]] = {}
        self.forgotten: dict[int, set[int]] = {}  # notes to be deleted
        self.ranges: list[tuple[int, int, int]] = []  # lane, first and last position to be deleted
        # New records of rows that are stored already.
        self.replaced: dict[tuple[int, int], Stored] = {}
        self.then: list[Callable[[], None]] = []  # to be called when the changes are durable
        self.size = 0  # bytes of records and bodies

    def __bool__(self) -> bool:
        return bool(
            self.appended or self.deleted or self.ranges or self.marks or self.replaced or self.then
            or self.defined or self.delayed or self.cleared or self.noted or self.forgotten
        )  # fmt: skip

    def append(self, lane: int, position: int, row: Stored) -> None:
        rows = self.appended.get(lane)
        if rows is None:
            rows = self.appended[lane] = {}
        rows[position] = row

    def replace(self, lane: int, position: int, row: Stored) -> None:
        rows = self.appended.get(lane)
        if rows is not None and position in rows:
            rows[position] = row
        else:
            self.replaced[lane, position] = row

    def delete(self, lane: int, position: int) -> None:
        noted = self.noted.get(lane)
        if noted is not None:
            noted.discard(position)
        rows = self.appended.get(lane)
        if rows is not None and rows.pop(position, None) is not None:
            return
        self.replaced.pop((lane, position), None)
        deleted = self.deleted.get(lane)
        if deleted is None:
            deleted = self.deleted[lane] = []
        deleted.append(position)

    def note(self, lane: int, positions: Iterable[int]) -> None:
        self.noted.setdefault(lane, set()).update(positions)

    def forget_notes(self, lane: int, positions: Iterable[int]) -> None:
        gone = set(positions)
        self.noted.get(lane, set()).difference_update(gone)
        self.forgotten.setdefault(lane, set()).update(gone)

    def delete_range(self, lane: int, first: int, last: int) -> None:
        self.ranges.append((lane, first, last))

    def clear(self, lane: int) -> None:
        self.appended.pop(lane, None)
        self.deleted.pop(lane, None)
        self.marks.pop(lane, None)
        self.noted.pop(lane, None)
        self.forgotten.pop(lane, None)
        for key in [key for key in self.replaced if key[0] == lane]:
            del self.replaced[key]
        self.cleared.add(lane)


def runs_of(rows: dict[int, Stored]) -> Iterator[RecordRun]:
    """The rows of one lane, which were appended in order, as runs."""
    positions, stored = list(rows), list(rows.values())
    start = 0
    while start < len(positions):
        end = _end_of_run(positions, stored, start)
        head = stored[start]
        if isinstance(head, bytes):
            yield RecordRun(positions[start], None, tuple(stored[start:end]))  # type: ignore[arg-type]
        else:
            yield RecordRun(positions[start], head[1], tuple(row[0] for row in stored[start:end]))  # type: ignore[misc]
        start = end


def _end_of_run(positions: list[int], stored: list[Stored], start: int) -> int:
    """The index behind the run that begins at `start`."""
    end = start + 1
    while (
        end < len(positions)
        and positions[end] == positions[end - 1] + 1
        and _follows(stored[end - 1], stored[end])
    ):
        end += 1
    return end


def _follows(before: Stored, after: Stored) -> bool:
    if isinstance(before, bytes) or isinstance(after, bytes):
        return isinstance(before, bytes) and isinstance(after, bytes)
    return after[1] == before[1] + 1


def ranges_of(positions: list[int]) -> list[tuple[int, int]]:
    """The positions as ranges of successive ones, both ends included."""
    found: list[tuple[int, int]] = []
    for position in sorted(positions):
        if found and position <= found[-1][1] + 1:
            found[-1] = found[-1][0], position
        else:
            found.append((position, position))
    return found
