"""The catalog: all queues and subscriptions at one version, and which of them receive a message."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from threading import RLock
from typing import Any

from headgate.clock import now_us
from headgate.errors import QueueNotFound
from headgate.filters import parse
from headgate.forks import keep_across_forks
from headgate.matching import Matcher
from headgate.message import Message
from headgate.queues.engine import Operation, QueueInfo, QueueOptions, Row
from headgate.queues.sql.dialect import QueueDialect


class QueueCatalog:
    """All queues and subscriptions as they were at `version`. Every change to one of them changes the version."""

    def __init__(
        self, version: int, infos: Iterable[QueueInfo], clock: Callable[[], int] = now_us
    ) -> None:
        self.version = version
        self.by_id = {info.id: info for info in infos}
        self.by_name = {info.name: info for info in self.by_id.values()}
        self._subscriptions = [info for info in self.by_id.values() if info.kind != "queue"]
        self.has_subscriptions = bool(self._subscriptions)
        self._matcher: Matcher[int] | None = None
        self._clock = clock
        self._lock = keep_across_forks(RLock())

    def find(self, name: str) -> QueueInfo:
        """The queue or subscription of that name; QueueNotFound if there is none."""
        info = self.by_name.get(name)
        if info is None:
            raise QueueNotFound(name)
        return info

    def matching_subscriptions(self, message: Message, source: int | None) -> list[QueueInfo]:
        """The subscriptions that receive a message published to the queue `source`, sorted by id."""
        if not self._subscriptions:
            return []
        with self._lock:  # the first thread builds the matcher
            if self._matcher is None:
                entries = [(info.id, parse(info.filter)) for info in self._subscriptions]
                self._matcher = Matcher(entries, self._clock)
        matches = [self.by_id[id] for id in sorted(self._matcher.match(message))]
        return [info for info in matches if info.source is None or info.source == source]

    def receivers(self, queue: QueueInfo | None, message: Message) -> list[QueueInfo]:
        """The queue that the message is published to, if any, and the subscriptions that match it."""
        if queue is None:
            return self.matching_subscriptions(message, None)
        return [queue, *self.matching_subscriptions(message, queue.id)]


class CatalogCache:
    """The catalog that was read last; it is read again only when its version has changed."""

    def __init__(self, dialect: QueueDialect) -> None:
        self._dialect = dialect
        self._version_query = dialect.statement("catalog_version")
        self.latest = QueueCatalog(-1, ())

    def read(self) -> Operation[QueueCatalog]:
        """The catalog as the current transaction sees it."""
        [(version,)] = yield self._version_query
        if version != self.latest.version:
            rows = yield self._dialect.statement("catalog")
            self.latest = QueueCatalog(version, map(info_of, rows), self._dialect.wall_us)
        return self.latest

    def queues(self) -> Operation[list[QueueInfo]]:
        """All queues and subscriptions, by name."""
        catalog = yield from self.read()
        return list(catalog.by_id.values())

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


# The columns of a queue, in this order: id, name, kind, max_attempts, dedup_window_us, archive, filter_headers,
# indexed, filter, source, version, paused, expires_at. The two lists of headers are JSON.


def info_of(row: Row) -> QueueInfo:
    """The queue with these columns."""
    id, name, kind, attempts, window, archive, headers, indexed, filter, source, *rest = row
    version, paused, expires_at = rest
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
    )


def _names_of(value: Any) -> tuple[str, ...]:
    return tuple(json.loads(value) if isinstance(value, str) else value)
