"""The catalog: all queues and subscriptions at one version, and which of them receive a message."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Set
from copy import copy
from itertools import islice
from threading import RLock
from typing import Any, Final, TypeVar

from headgate.checks import nearest
from headgate.clock import now_us
from headgate.errors import QueueNotFound
from headgate.filters import Filter, parse_stored
from headgate.forks import keep_across_forks
from headgate.matching import Matcher
from headgate.message import Message
from headgate.queues.engine import (
    Operation,
    QueueInfo,
    QueueOptions,
    Row,
    Rows,
    Transaction,
    TransactionMode,
)
from headgate.queues.policies import EXPIRING
from headgate.queues.sql.dialect import QueueDialect

T = TypeVar("T")

_COMPARED: Final = 1000  # names that a misspelt one is compared with


class SubscriptionMatcher:
    """The filters of all subscriptions, built when the first message is matched and then changed in place."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._matcher: Matcher[int] | None = None
        self._lock = keep_across_forks(RLock())

    def match(self, message: Message, infos: Mapping[int, QueueInfo]) -> Set[int]:
        """The ids of the subscriptions that match; the first call builds the matcher from `infos`."""
        with self._lock:  # the first thread builds the matcher
            if self._matcher is None:
                self._matcher = Matcher(_filters(infos.values()), self._clock)
        return self._matcher.match(message)

    def changed(self, old: Iterable[QueueInfo], new: Iterable[QueueInfo]) -> SubscriptionMatcher:
        """Remove the filters of `old`, add those of `new`, and return this matcher; a new one if none was built, because an
        old catalog may still build this one."""
        with self._lock:
            if self._matcher is None:
                return SubscriptionMatcher(self._clock)
            for id, filter in _filters(old):
                self._matcher.remove(id, filter)
            self._matcher.add_all(_filters(new))
        return self


class QueueCatalog:
    """All queues and subscriptions as they were at `version`. Every change to one of them changes the version.

    The matcher is shared with later catalogs. So an old catalog may answer as a later one; a publisher compares the version in
    the transaction that stores the message, and asks the newer catalog if it differs.
    """

    def __init__(
        self,
        version: int,
        infos: Iterable[QueueInfo],
        clock: Callable[[], int] = now_us,
    ) -> None:
        self.version = version
        self.by_id = {info.id: info for info in infos}
        self.by_name = {info.name: info for info in self.by_id.values()}
        self._subscriptions = _count_subscriptions(self.by_id.values())
        self._expiring = _count_expiring(self.by_id.values())
        self._matcher = SubscriptionMatcher(clock)

    @property
    def has_subscriptions(self) -> bool:
        return self._subscriptions > 0

    @property
    def has_expiring(self) -> bool:
        """Whether there may be messages with a time to live."""
        return self._expiring > 0

    def changed(self, version: int, changes: Mapping[int, QueueInfo | None]) -> QueueCatalog:
        """The catalog of a later version, in which these queues are as given, or gone."""
        old = [self.by_id[id] for id in changes if id in self.by_id]
        new = [info for info in changes.values() if info is not None]
        later = copy(self)
        later.version, later._matcher = version, self._matcher.changed(old, new)
        later.by_id, later.by_name = dict(self.by_id), dict(self.by_name)
        for info in old:
            del later.by_id[info.id], later.by_name[info.name]
        later.by_id.update((info.id, info) for info in new)
        later.by_name.update((info.name, info) for info in new)
        later._subscriptions += _count_subscriptions(new) - _count_subscriptions(old)
        later._expiring += _count_expiring(new) - _count_expiring(old)
        return later

    def find(self, name: str) -> QueueInfo:
        """The queue or subscription of that name; QueueNotFound if there is none."""
        info = self.by_name.get(name)
        if info is None:
            raise QueueNotFound(name, nearest(name, islice(self.by_name, _COMPARED)))
        return info

    def matching_subscriptions(self, message: Message, source: int | None) -> list[QueueInfo]:
        """The subscriptions that receive a message published to the queue `source`, sorted by id."""
        if not self.has_subscriptions:
            return []
        found = self._matcher.match(message, self.by_id)
        matches = [self.by_id[id] for id in sorted(found) if id in self.by_id]
        return [info for info in matches if info.source is None or info.source == source]

    def receivers(self, queue: QueueInfo | None, message: Message) -> list[QueueInfo]:
        """The queue that the message is published to, if any, and the subscriptions that match it."""
        if queue is None:
            return self.matching_subscriptions(message, None)
        return [queue, *self.matching_subscriptions(message, queue.id)]


def _filters(infos: Iterable[QueueInfo]) -> list[tuple[int, Filter]]:
    """The subscriptions among them, each with its filter."""
    return [(info.id, parse_stored(info.filter)) for info in infos if info.kind != "queue"]


def _count_subscriptions(infos: Iterable[QueueInfo]) -> int:
    return sum(info.kind != "queue" for info in infos)


def _count_expiring(infos: Iterable[QueueInfo]) -> int:
    return sum(bool(info.policies & EXPIRING) for info in infos)


class CatalogCache:
    """The catalog that was read last. When its version has changed, only the changes are read."""

    def __init__(self, dialect: QueueDialect) -> None:
        self._dialect = dialect
        self._version_query = dialect.statement("catalog_version")
        self._lock = keep_across_forks(RLock())
        self.latest = QueueCatalog(-1, ())

    def read(self) -> Operation[QueueCatalog]:
        """The catalog as the current transaction sees it."""
        while True:
            [(version,)] = yield self._version_query
            known = self.latest
            if version == known.version:
                return known
            changes: Rows = ()
            if 0 <= known.version < version:
                changes = yield self._dialect.statement("catalog_changes", known.version)
            if not _are_complete(changes, known.version, version):
                rows = yield self._dialect.statement("catalog")
                with self._lock:
                    self.latest = QueueCatalog(version, map(info_of, rows), self._dialect.wall_us)
                return self.latest
            with self._lock:
                if self.latest is known:  # no other thread was faster
                    self.latest = known.changed(changes[-1][0], _changes_of(changes))
                    return self.latest

    def knowing(self, queue: QueueInfo) -> Operation[QueueCatalog]:
        """The latest catalog, read again if it has no queue of that name."""
        known = self.latest
        return known if queue.name in known.by_name else (yield from self.read())

    def transact(self, mode: TransactionMode, body: Callable[[], Operation[T]]) -> Operation[T]:
        """Run a transaction that may read the catalog after it has changed it. If it is rolled back, forget what was read
        meanwhile: another transaction may give another change the same version."""
        known: QueueCatalog | None = None

        def attempt() -> Operation[T]:
            nonlocal known
            self._forget_since(known)
            known = self.latest
            return (yield from body())

        try:
            result: T = yield Transaction(mode, attempt)
        except BaseException:
            self._forget_since(known)
            raise
        return result

    def _forget_since(self, known: QueueCatalog | None) -> None:
        if known is not None and self.latest is not known:
            self.latest = QueueCatalog(-1, ())

    def queues(self) -> Operation[list[QueueInfo]]:
        """All queues and subscriptions, by name."""
        catalog = yield from self.read()
        return [catalog.by_name[name] for name in sorted(catalog.by_name)]

    def find(self, name: str) -> Operation[QueueInfo]:
        """The queue or subscription of that name as it is now; QueueNotFound if there is none."""
        catalog = yield from self.read()
        return catalog.find(name)

    def find_or_none(self, name: str) -> Operation[QueueInfo | None]:
        """The queue or subscription of that name as it is now, or None."""
        catalog = yield from self.read()
        return catalog.by_name.get(name)

    def last_known(self, queue: QueueInfo) -> QueueInfo:
        """The queue of that name in the latest catalog; without asking the database."""
        return self.latest.by_name.get(queue.name) or queue


def _are_complete(changes: Rows, after: int, upto: int) -> bool:
    """Whether there is a row for each version; the oldest ones are deleted."""
    versions = {row[0] for row in changes}
    return bool(versions) and max(versions) >= upto and len(versions) == max(versions) - after


def _changes_of(rows: Rows) -> dict[int, QueueInfo | None]:
    """The changed queues as they are now; None where a queue was deleted. Rows with the queue 0 name no queue."""
    return {row[1]: None if row[2] is None else info_of(row[2:]) for row in rows if row[1]}


# The columns of a queue, in this order: id, name, kind, max_attempts, dedup_window_us, archive, filter_headers,
# indexed, filter, source, version, paused, expires_at, policies. The two lists of headers are JSON.


def info_of(row: Row) -> QueueInfo:
    """The queue with these columns."""
    id, name, kind, attempts, window, archive, headers, indexed, filter, source, *rest = row
    version, paused, expires_at, policies = rest
    return QueueInfo(
        id=id,
        name=name,
        options=QueueOptions(
            filter_headers=_names_of(headers),
            max_attempts=attempts,
            dedup_window_us=window,
            archive=bool(archive),
        ),
        kind=kind,
        indexed=_names_of(indexed),
        filter=filter,
        source=source,
        version=version,
        paused=bool(paused),
        expires_at=expires_at,
        policies=policies,
    )


def _names_of(value: Any) -> tuple[str, ...]:
    return tuple(json.loads(value) if isinstance(value, str) else value)
