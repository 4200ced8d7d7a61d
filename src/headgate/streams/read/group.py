"""Consumer groups: several consumers, also in several processes, share one cursor.

The stream is handed out in *shares*, runs of offsets that end with a chunk or a segment. A share belongs to one member, which
reads it and commits how far it is done. The shares of a member that closes, or whose process dies, go to the others, from the
position it committed last. So every message reaches one living member, and another one again if the first dies before it
commits: at least once. Everything before the position of the cursor is done.

All of it is in the stream's cursors.db:

    member  (token, cursor, filter)            who has joined; a living member holds an flock on members/<token>
    share   (cursor, low, high, position, member)    offsets [low, high), done up to position; no member: to be handed on

A done share stays until all before it are done, and the cursor moves behind it.
"""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any, Final

import apsw
import numpy as np

from headgate.errors import StreamCorrupt, StreamError
from headgate.forks import call_in_child
from headgate.streams.format import MEMBERS
from headgate.streams.read.catalog import SegmentCatalog
from headgate.streams.read.cursors import Cursors
from headgate.streams.segments.summarized import SummarizedSegment
from headgate.streams.write.lock import WriterLock, is_held

SHARE_MESSAGES: Final = 4096  # that a share has at least, if there are as many

_JOIN: Final = "INSERT INTO member (token, cursor, filter) VALUES (?, ?, ?)"
_LEAVE: Final = "DELETE FROM member WHERE token = ?"
_MEMBERS: Final = "SELECT token, filter FROM member WHERE cursor = ?"
_TOKENS: Final = "SELECT token FROM member"
_BEGIN: Final = (
    "INSERT INTO cursor (name, position, updated) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
)
_RELEASE: Final = "UPDATE share SET member = NULL WHERE member = ?"
_FREE: Final = """
SELECT low, high, position FROM share
WHERE cursor = ? AND member IS NULL AND position < high ORDER BY low LIMIT 1
"""
_TAKE: Final = "UPDATE share SET member = ? WHERE cursor = ? AND low = ?"
_FRONTIER: Final = """
SELECT coalesce(max(high), (SELECT position FROM cursor WHERE name = ?1)) FROM share WHERE cursor = ?1
"""
_ADD: Final = "INSERT INTO share (cursor, low, high, position, member) VALUES (?, ?, ?, ?, ?)"
_ADVANCE: Final = "UPDATE share SET position = ? WHERE cursor = ? AND low = ? AND member = ?"
_SHARES: Final = "SELECT low, high, position FROM share WHERE cursor = ? ORDER BY low"
_DROP: Final = "DELETE FROM share WHERE cursor = ? AND low = ?"
_MOVE: Final = "UPDATE cursor SET position = ?, updated = ? WHERE name = ?"


@dataclass(slots=True, eq=False)
class Share:
    """Offsets [low, high) that one member reads from `position` on."""

    low: int
    high: int
    position: int
    number: int = 0  # of this share among those that the member has taken, from 1


class GroupMember:
    """One member of a group: takes shares, commits them, and hands them on when it is closed."""

    def __init__(
        self, directory: Path, name: str, filter: str, clock: Callable[[], int], start: int
    ) -> None:
        """Join the group; one that is new begins at the offset `start`."""
        self._directory, self._name, self._clock = directory, name, clock
        self._cursors, self._using = Cursors(directory, clock), RLock()
        self._held: list[Share] = []  # that are not done; the last taken is being read
        self._taken = 0
        self._token = uuid.uuid4().hex
        (directory / MEMBERS).mkdir(exist_ok=True)
        with self._cursors.transaction(durable=False) as database:
            self._reap(database)
            self._check_filter(database, filter)
            self._sweep(database)
            # Before the transaction ends: a row that others see has a lock that is held, or a member that is dead.
            self._lock = WriterLock(directory / MEMBERS, f"group {name}", self._token)
            database.execute(_JOIN, (self._token, name, filter))
            database.execute(_BEGIN, (name, start, clock()))
        self._closed = False
        call_in_child(self, GroupMember._leave_to_parent)
        weakref.finalize(self, self._lock.release)  # of a member that is forgotten

    def _check_filter(self, database: apsw.Connection, filter: str) -> None:
        for _, other in _rows(database, _MEMBERS, self._name):
            if other != filter:
                raise StreamError(
                    f"{self._directory}: the group {self._name!r} has members with the filter {other!r}, and this one has "
                    f"{filter!r}: messages that only one of them wants would be lost; use one filter, or another group"
                )

    def take(self, choose: Callable[[int], tuple[int, int] | None]) -> Share | None:
        """Take a share that another member left, or that `choose` finds at the end of all shares; None: there is none."""
        with self._using:
            self._check_open()
            with self._cursors.transaction(durable=False) as database:
                self._reap(database)
                share = self._take_free(database) or self._take_new(database, choose)
            if share is not None:
                self._taken += 1
                share.number = self._taken
                self._held.append(share)
            return share

    def _take_free(self, database: apsw.Connection) -> Share | None:
        for low, high, position in _rows(database, _FREE, self._name):
            database.execute(_TAKE, (self._token, self._name, low))
            return Share(low, high, position)
        return None

    def _take_new(
        self, database: apsw.Connection, choose: Callable[[int], tuple[int, int] | None]
    ) -> Share | None:
        frontier: int | None = _rows(database, _FRONTIER, self._name)[0][0]
        if frontier is None:
            raise StreamError(
                f"{self._directory}: the cursor of the group {self._name!r} was deleted; join it again"
            )
        found = choose(frontier)
        if found is None:
            return None
        low, high = found
        database.execute(_ADD, (self._name, low, high, low, self._token))
        return Share(low, high, low)

    def _reap(self, database: apsw.Connection) -> None:
        """Free the shares of members that are dead."""
        for token, _ in _rows(database, _MEMBERS, self._name):
            if token != self._token and not is_held(self._directory / MEMBERS, token):
                database.execute(_RELEASE, (token,))
                database.execute(_LEAVE, (token,))
                (self._directory / MEMBERS / token).unlink(missing_ok=True)

    def _sweep(self, database: apsw.Connection) -> None:
        """Remove the files of members that died while they joined."""
        known = {token for (token,) in database.execute(_TOKENS)}
        for file in (self._directory / MEMBERS).iterdir():
            if file.name not in known and not is_held(file.parent, file.name):
                file.unlink(missing_ok=True)

    def done_until(self, share: Share | None, position: int) -> list[tuple[Share, int]]:
        """Return which shares are done, and up to where, when this one is done up to `position`: all taken before it are."""
        with self._using:
            if share is None:
                return []
            before = [(each, each.high) for each in self._held if each.number < share.number]
            return [*before, (share, min(position, share.high))] if share in self._held else before

    def commit(self, done: list[tuple[Share, int]]) -> None:
        """Store how far these shares are done."""
        with self._using:
            self._check_open()
            for share, position in done:
                share.position = max(share.position, position)
            if done:
                self._store([share for share, _ in done], durable=True)
            self._held = [share for share in self._held if share.position < share.high]

    def skip(self, share: Share) -> None:
        """End a share of which nothing is left to commit."""
        with self._using:
            if self._closed or share not in self._held:
                return
            share.position = share.high
            self._store([share], durable=False)
            self._held.remove(share)

    def _store(self, shares: list[Share], *, durable: bool) -> None:
        with self._cursors.transaction(durable=durable) as database:
            for share in shares:
                row = (share.position, self._name, share.low, self._token)
                database.execute(_ADVANCE, row)
            self._move_cursor(database)

    def _move_cursor(self, database: apsw.Connection) -> None:
        """Move the cursor behind the shares that are done, up to the first that is not."""
        moved = None
        for low, high, position in _rows(database, _SHARES, self._name):
            moved = position
            if position < high:
                break
            database.execute(_DROP, (self._name, low))
        if moved is not None:
            database.execute(_MOVE, (moved, self._clock(), self._name))

    @property
    def done(self) -> int:
        """The offset before which the group has done everything."""
        with self._using:
            cursor = self._cursors.get(self._name)
            return 0 if cursor is None else cursor.position

    def close(self) -> None:
        """Leave the group; what was not committed goes to the other members. Idempotent."""
        with self._using:
            if self._closed:
                return
            self._closed = True
            try:
                with self._cursors.transaction(durable=False) as database:
                    database.execute(_RELEASE, (self._token,))
                    database.execute(_LEAVE, (self._token,))
            finally:
                self._cursors.close()
                self._lock.release()
                with suppress(OSError):
                    (self._directory / MEMBERS / self._token).unlink()

    def _leave_to_parent(self) -> None:
        """In a forked child: the member and its shares stay those of the parent."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise StreamError(
                f"{self._directory}: this member of {self._name!r} has left the group"
            )


def _rows(database: apsw.Connection, query: str, name: str) -> list[tuple[Any, ...]]:
    return database.execute(query, (name,)).fetchall()


def next_share(catalog: SegmentCatalog, low: int, until: int | None) -> tuple[int, int] | None:
    """Return the offsets from `low` to the end of a chunk, or of a segment whose chunks are in any order."""
    try:
        segment = catalog.covering(low)
    except StreamCorrupt as damage:  # the scan raises it, or skips it
        return (low, damage.offsets[-1][1] + 1) if damage.offsets else None
    if segment is None:
        return None
    end = segment.next_offset if until is None else min(segment.next_offset, until)
    if end <= low:
        return None
    if isinstance(segment, SummarizedSegment) and not segment.note.in_order:
        return low, end
    ends = segment.offset_bounds()[1] + 1
    at = int(np.searchsorted(ends, low + SHARE_MESSAGES))
    return low, min(int(ends[at]), end) if at < len(ends) else end
