"""What is known of the queues at one version of the catalog: who they are, and who wants a message."""

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
from headgate.queues.engine import QueueInfo, QueueOptions, Row


class Catalog:
    """All queues and subscriptions as they were at `version`. The version changes with every change to them."""

    def __init__(
        self, version: int, infos: Iterable[QueueInfo], clock: Callable[[], int] = now_us
    ) -> None:
        self.version = version
        self.by_id = {info.id: info for info in infos}
        self._by_name = {info.name: info for info in self.by_id.values()}
        self._subscriptions = [info for info in self.by_id.values() if info.kind != "queue"]
        self.has_subscriptions = bool(self._subscriptions)
        self._matcher: Matcher[int] | None = None
        self._clock = clock
        self._lock = keep_across_forks(RLock())

    def get(self, name: str) -> QueueInfo | None:
        return self._by_name.get(name)

    def find(self, name: str) -> QueueInfo:
        info = self._by_name.get(name)
        if info is None:
            raise QueueNotFound(name)
        return info

    def receivers(self, message: Message, source: int | None) -> list[QueueInfo]:
        """The subscriptions that want a message published to `source`, in the order of their ids."""
        if not self._subscriptions:
            return []
        with self._lock:  # built once, by the first of the threads that ask
            if self._matcher is None:
                entries = [(info.id, parse(info.filter)) for info in self._subscriptions]
                self._matcher = Matcher(entries, self._clock)
        found = [self.by_id[id] for id in sorted(self._matcher.match(message))]
        return [info for info in found if info.source is None or info.source == source]


# The columns of a queue, in this order: id, name, kind, max_attempts, dedup_window_us, archive, filter_headers,
# indexed, filter, source, version, paused, expires_at. The two lists of headers are JSON.


def info_of(row: Row) -> QueueInfo:
    """The queue from its columns."""
    id, name, kind, attempts, window, archive, headers, indexed, filter, source, *rest = row
    version, paused, expires_at = rest
    return QueueInfo(
        id=id,
        name=name,
        options=QueueOptions(
            filter_headers=_names(headers),
            max_attempts=attempts,
            dedup_window_us=window,
            archive=bool(archive),
        ),
        kind=kind,
        indexed=_names(indexed),
        filter=filter,
        source=source,
        version=version,
        paused=bool(paused),
        expires_at=expires_at,
    )


def _names(value: Any) -> tuple[str, ...]:
    return tuple(json.loads(value) if isinstance(value, str) else value)
