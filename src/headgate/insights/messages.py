"""Messages of streams and queues to look at: newest first or from a time on, page by page, with a filter.

Looking takes nothing and changes nothing. A search that finds little ends after a while, and says how far it came.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headgate.clock import now_us
from headgate.columns import Record, decode_records
from headgate.errors import HeadgateError
from headgate.filters import TRUE, And, Filter, FilterLike, as_filter, join_terms
from headgate.filters.compile import compile_predicate
from headgate.message import Message
from headgate.streams import Stream
from headgate.streams.read import Scan, SegmentCatalog, StreamQuery, make_query, resolve_start

if TYPE_CHECKING:
    from headgate.queues import DeliverySnapshot, Queue, State

PAGE: Final = 50
BUDGET_S: Final = 0.4
_AT_ONCE: Final = 500  # messages of a queue that are read at once to search them
_FIRST_STEP: Final = 512  # offsets of a log that are searched before the time is looked at
_STEP_S: Final = 0.05
_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


@dataclass(frozen=True, slots=True)
class Sighting:
    """A message that was seen: its offset or id and, of a queue, the state of its delivery."""

    position: int
    message: Message
    state: str | None = None
    attempts: int = 0
    reason: str | None = None
    visible_at_us: int | None = None


@dataclass(frozen=True, slots=True)
class MessagePage:
    """Some messages, in the order that was asked for, and where the next page begins."""

    messages: tuple[Sighting, ...]
    following: int | None  # the position to ask for next; None: there is no more
    complete: bool = True  # False: the search ended early, at `following`


def published_since(since: datetime | None, filter: FilterLike | None = None) -> Filter:
    """The filter, restricted to messages whose timestamp is known and not before `since`."""
    tree = TRUE if filter is None else as_filter(filter)
    if since is None:
        return tree
    first_us = (since - _EPOCH) // timedelta(microseconds=1)
    recent = as_filter(f"sys.timestamp >= {first_us}")
    return recent if tree == TRUE else join_terms(And, (tree, recent))


# ---- streams -----------------------------------------------------------------------------------------


def newest_in_stream(
    path: Path,
    filter: FilterLike | None = None,
    *,
    before: int | None = None,
    limit: int = PAGE,
    budget_s: float = BUDGET_S,
) -> MessagePage:
    """The newest messages of a stream that match, the newest first; `before` an offset."""
    until = time.monotonic() + budget_s
    search = _StreamSearch(path, filter)
    end = search.end if before is None else min(before, search.end)
    found: list[Record] = []
    for low, high in search.ranges_back(end, limit):
        found += reversed(search.last_matches(low, high, limit - len(found)))
        if len(found) >= limit:
            break
        if time.monotonic() > until and low > search.first:
            return MessagePage(_sightings(found), low, complete=False)
    full = len(found) >= limit and found[-1].offset > search.first
    return MessagePage(_sightings(found), found[-1].offset if full else None)


def messages_from(
    path: Path,
    start: str,
    filter: FilterLike | None = None,
    *,
    limit: int = PAGE,
    budget_s: float = BUDGET_S,
) -> MessagePage:
    """The messages of a stream that match, from an offset, a moment or an interval on, oldest first."""
    until = time.monotonic() + budget_s
    search = _StreamSearch(path, filter)
    first = max(resolve_start(start, search.catalog, now_us), search.first)
    found: list[Record] = []
    for low, high in search.ranges_on(first):
        found += search.first_matches(low, high, limit - len(found))
        if len(found) >= limit:
            break
        if time.monotonic() > until and high < search.end:
            return MessagePage(_sightings(found), high, complete=False)
    full = len(found) >= limit and found[-1].offset + 1 < search.end
    return MessagePage(_sightings(found), found[-1].offset + 1 if full else None)


def message_at(path: Path, offset: int) -> Sighting:
    """The message of a stream at an offset."""
    with Stream.open(path) as stream:
        batches = stream.scan(start=offset, end=offset + 1)
        for record in (record for batch in batches for record in decode_records(batch)):
            return Sighting(record.offset, record.message)
    raise HeadgateError(f"stream {path.name} has no message {offset}")


class _StreamSearch:
    """Searches one stream for matches of a filter, segment by segment."""

    def __init__(self, path: Path, filter: FilterLike | None) -> None:
        with Stream.open(path):  # refuses what is no stream
            self.catalog = SegmentCatalog(path)
        self._query = make_query(filter).at(now_us())
        self.first, self.end = self.catalog.first_offset(), self.catalog.next_offset()

    def ranges_back(self, end: int, limit: int) -> Iterator[tuple[int, int]]:
        """The offsets to search from the end back; without a filter, as many as are wanted are enough."""
        if self._query.filter.tree == TRUE:
            yield max(self.first, end - limit), end
            return
        for low, high, sealed in reversed(self._ranges(self.first, end)):
            yield from ((a, b) for b, a in pairwise((high, low) if sealed else _steps(high, low)))

    def ranges_on(self, first: int) -> Iterator[tuple[int, int]]:
        """The offsets to search from the first one on."""
        for low, high, sealed in self._ranges(first, self.end):
            yield from pairwise((low, high) if sealed else _steps(low, high))

    def _ranges(self, low: int, high: int) -> list[tuple[int, int, bool]]:
        """The offsets of the segments that may hold a match, and whether their chunks are out of this order."""
        excluded = self.catalog.exclude(self._query.filter, low, high)
        files = self.catalog.files
        ends = [file.first_offset for file in files[1:]] + [self.end]
        found = (
            (max(file.first_offset, low), min(end, high), file.sealed)
            for file, end in zip(files, ends, strict=True)
            if file.first_offset not in excluded
        )
        return [each for each in found if each[0] < each[1]]

    def first_matches(self, low: int, high: int, limit: int) -> list[Record]:
        found: list[Record] = []
        for batch in Scan(self.catalog, self._query, low, high, on_corrupt="skip"):
            found += decode_records(batch.slice(0, limit - len(found)))
            if len(found) >= limit:
                break
        return found

    def last_matches(self, low: int, high: int, limit: int) -> list[Record]:
        if self._query.filter.tree != TRUE:
            offsets = self._offsets(replace(self._query, columns=("offset",)), low, high)
            if not offsets:
                return []
            low = offsets[-limit:][0]
        return self.first_matches(low, high, limit)

    def _offsets(self, query: StreamQuery, low: int, high: int) -> list[int]:
        batches = Scan(self.catalog, query, low, high, on_corrupt="skip")
        return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def _steps(start: int, end: int) -> Iterator[int]:
    """Divide the range into steps, which grow as long as each is searched quickly; a search can pause between two steps."""
    step, began = _FIRST_STEP, time.monotonic()
    yield start
    while abs(end - start) > step:
        start += step if end > start else -step
        yield start
        took, began = time.monotonic() - began, time.monotonic()
        step = 2 * step if took < _STEP_S else max(step // 2, _FIRST_STEP)
    yield end


def _sightings(records: Sequence[Record]) -> tuple[Sighting, ...]:
    return tuple(Sighting(record.offset, record.message) for record in records)


# ---- queues on SQL -----------------------------------------------------------------------------------


def newest_in_queue(
    queue: Queue,
    filter: FilterLike | None = None,
    *,
    before: int | None = None,
    state: State | None = None,
    since: datetime | None = None,
    limit: int = PAGE,
    budget_s: float = BUDGET_S,
) -> MessagePage:
    """The newest messages of a queue that match, the newest first; `before` an id, published `since` a moment."""
    until = time.monotonic() + budget_s
    wanted = published_since(since, filter)
    matches = None if wanted == TRUE else compile_predicate(wanted, now_us)
    at_once = limit if matches is None else _AT_ONCE
    found: list[Sighting] = []
    while True:
        rows = queue.latest(at_once, before=before, state=state)
        for row in rows:
            before = row.id
            if matches is None or matches(row.message):
                found.append(sight_delivery(row))
                if len(found) >= limit:
                    return MessagePage(tuple(found), before)
        if len(rows) < at_once:
            return MessagePage(tuple(found), None)
        if time.monotonic() > until:
            return MessagePage(tuple(found), before, complete=False)


def sight_delivery(row: DeliverySnapshot) -> Sighting:
    """The sighting of a delivery of a queue on SQL."""
    return Sighting(
        row.id, row.message, row.state.name.lower(), row.attempts, row.reason, row.visible_at
    )


def message_in_queue(queue: Queue, id: int) -> Sighting:
    """The message of a queue with an id."""
    for row in queue.latest(1, before=id + 1):
        if row.id == id:
            return sight_delivery(row)
    raise HeadgateError(f"queue {queue.name} has no message {id}; was it acked meanwhile?")


# ---- fields ------------------------------------------------------------------------------------------


def common_values(messages: Sequence[Message], most: int = 8) -> dict[str, list[Any]]:
    """The headers and properties (`p.name`) of some messages, each with its most common values."""
    counts: dict[str, dict[Any, int]] = {}
    for name, value in (pair for message in messages for pair in _fields(message)):
        of_name = counts.setdefault(name, {})
        if isinstance(value, str | int | float):
            of_name[value] = of_name.get(value, 0) + 1
    return {
        name: [value for value, _ in sorted(of_name.items(), key=lambda v: -v[1])[:most]]
        for name, of_name in sorted(counts.items())
    }


def _fields(message: Message) -> Iterator[tuple[str, Any]]:
    yield "topic", message.topic
    yield from message.headers.items()
    yield from ((f"p.{name}", value) for name, value in message.properties.items())
