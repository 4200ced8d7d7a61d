"""Delayed records in memory, in the order in which they fall due.

They are grouped by the second in which they are due, and a group is sorted when it is read: adding one costs the same however
many there are, and so does reading a page.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Final, TypeAlias

DelayedKey: TypeAlias = tuple[int, int]  # when it is due, in milliseconds, and its number

GROUP_MS: Final = 1_000


class DelayedRows:
    """Records by the time at which they are due."""

    def __init__(self) -> None:
        self._records: dict[DelayedKey, bytes] = {}
        # Keys by second; deleted keys stay until their group is empty.
        self._groups: dict[int, list[DelayedKey]] = {}
        self._live: dict[int, int] = {}  # records of each group
        self._order: list[int] = []  # the numbers of the groups, sorted
        self._unsorted: set[int] = set()

    def __len__(self) -> int:
        return len(self._records)

    def put(self, key: DelayedKey, record: bytes | None) -> None:
        """Store a record, or delete it."""
        group = key[0] // GROUP_MS
        if record is None:
            if self._records.pop(key, None) is not None:
                self._forget(group)
            return
        if key not in self._records:
            if group not in self._groups:
                self._groups[group], self._live[group] = [], 0
                insort(self._order, group)
            self._groups[group].append(key)
            self._live[group] += 1
            self._unsorted.add(group)
        self._records[key] = record

    def _forget(self, group: int) -> None:
        """Subtract a record from the count of its group, and drop an empty group."""
        self._live[group] -= 1
        if not self._live[group]:
            del self._groups[group], self._live[group]
            del self._order[bisect_left(self._order, group)]
            self._unsorted.discard(group)

    def page(self, after: DelayedKey, limit: int, max_bytes: int) -> list[tuple[int, int, bytes]]:
        """Records behind one of them, in order: at most `limit`, and not many more bytes than `max_bytes`."""
        found: list[tuple[int, int, bytes]] = []
        for group in self._order[bisect_left(self._order, after[0] // GROUP_MS) :]:
            keys = self._sorted(group)
            for index in range(bisect_right(keys, after), len(keys)):
                key = keys[index]
                record = self._records.get(key)
                if record is None:
                    continue
                found.append((*key, record))
                max_bytes -= len(record)
                if len(found) >= limit or max_bytes <= 0:
                    return found
        return found

    def _sorted(self, group: int) -> list[DelayedKey]:
        keys = self._groups[group]
        if group in self._unsorted:
            # A key that was deleted and stored again is there twice.
            keys = self._groups[group] = sorted(key for key in set(keys) if key in self._records)
            self._unsorted.discard(group)
        return keys
