"""Publishing: the receivers of a message, and its deliveries.

How the rows are stored depends on the database: see sqlite.operations and postgres.publish.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import NamedTuple, Protocol

from headgate.errors import QueueOptionsError
from headgate.message import Message
from headgate.queues.engine import Operation, Publication, QueueInfo, SqlValue
from headgate.queues.sql.catalog import QueueCatalog
from headgate.queues.sql.message_rows import keys_json

DeliveryRow = tuple[SqlValue, ...]  # message, queue, rank, delay, group, keys, now


class Publisher(Protocol):
    def publish(
        self, queue: QueueInfo | None, publications: Sequence[Publication]
    ) -> Operation[list[int]]:
        """Store all publications or none; their ids. See Operations.publish."""
        ...


class RoutedPublication(NamedTuple):
    """A publication and the queues and subscriptions that receive it; there is at least one."""

    at: int  # its position among the publications
    publication: Publication
    receivers: list[QueueInfo]


def route(
    catalog: QueueCatalog,
    queue: QueueInfo | None,
    publications: Sequence[Publication],
    known_keys: Mapping[str, int],
) -> list[RoutedPublication]:
    """The publications that have receivers and whose dedup key is new."""
    fresh = _fresh_positions(publications, known_keys)
    if queue is not None and not catalog.has_subscriptions:
        stored = map(publications.__getitem__, fresh)
        return list(map(RoutedPublication, fresh, stored, repeat([queue])))
    routed = (
        RoutedPublication(at, publications[at], catalog.receivers(queue, publications[at].message))
        for at in fresh
    )
    return [each for each in routed if each.receivers]


def _fresh_positions(
    publications: Sequence[Publication], known_keys: Mapping[str, int]
) -> Sequence[int]:
    """The positions to store: of several publications with one dedup key the first, of a known key none."""
    keys = [each.dedup_key for each in publications]
    if keys.count(None) == len(keys):
        return range(len(keys))
    taken, fresh = set(known_keys), []
    for at, key in enumerate(keys):
        if key is None:
            fresh.append(at)
        elif key not in taken:
            taken.add(key)
            fresh.append(at)
    return fresh


def check_is_queue(info: QueueInfo) -> None:
    """Refuse to publish to a subscription, which holds what its filter matches and nothing else."""
    if info.kind != "queue":
        raise QueueOptionsError(
            f"{info.name!r} is a subscription and gets what its filter matches; publish to a queue, "
            "or to all subscriptions with Database.publish"
        )


def delivery_row(
    id: int, queue: QueueInfo, publication: Publication, now_us: int | None
) -> DeliveryRow:
    """The parameters of insert_delivery."""
    rank, keys = rank_in(queue, publication.message), keys_in(queue, publication.message)
    return id, queue.id, rank, publication.delay_us, publication.group, keys, now_us


def rank_in(queue: QueueInfo, message: Message) -> int:
    """Minus the priority; in a push subscription, which is in the order of publishing, 0."""
    return 0 if queue.kind == "push" else -message.priority


def keys_in(queue: QueueInfo, message: Message) -> str:
    """The queue's filter headers that the message has, as JSON."""
    return keys_json(message.headers, queue.options.filter_headers) if message.headers else "{}"
