"""Messages come in: stored once, with a delivery in the queue and one in every subscription that wants them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast

from headgate.errors import QueueOptionsError
from headgate.message import Message
from headgate.queues.engine import Notify, Operation, Publication, QueueInfo, SqlValue, Transaction
from headgate.queues.sql.catalog import Catalog
from headgate.queues.sql.core import Core, Read
from headgate.queues.sql.records import keys_json, row_of

_ROUTED_AT_ONCE: Final = 500
# What is left of a queue without deliveries; forgetting it comes last.
_DROPS: Final = (
    "drop_dedup",
    "drop_batches",
    "drop_archive",
    "drop_usage",
    "forget_dropped",
)

_Delivery = tuple[SqlValue, ...]  # message, queue, rank, delay, group, keys, now


class Chosen(NamedTuple):
    """A publication somebody wants, and who wants it."""

    at: int  # its position among the publications
    publication: Publication
    receivers: list[QueueInfo]


class Publishing(Core):
    def publish(
        self, queue: QueueInfo | None, publications: Sequence[Publication]
    ) -> Operation[list[int]]:
        if not publications:
            return []
        yield Transaction.WRITE
        catalog = yield from self.catalog()
        target = None if queue is None else catalog.find(queue.name)
        if target is not None:
            check_is_queue(target)
        known = yield from self._known_ids(target, publications)
        stored = [
            Chosen(at, publications[at], receivers)
            for at in first_of_each_key(publications, known)
            if (receivers := receivers_of(catalog, target, publications[at].message))
        ]
        ids = yield from self._store(stored)
        yield from self._remember_keys(target, stored, ids)
        yield Transaction.COMMIT
        return _ids_of(publications, known, stored, ids)

    def _store(self, stored: Sequence[Chosen]) -> Operation[list[int]]:
        if not stored:
            return []
        timestamp, now = self.dialect.timestamp_us(), self.dialect.now_us()
        messages = [row_of(each.publication.message, timestamp) for each in stored]
        ids = [row[0] for row in (yield self.dialect.each("insert_message", messages))]
        deliveries = [
            delivery_row(id, queue, each.publication, now)
            for id, each in zip(ids, stored, strict=True)
            for queue in each.receivers
        ]
        yield self.dialect.each("insert_delivery", deliveries)
        yield Notify(tuple({queue.id for each in stored for queue in each.receivers}))
        return ids

    def _known_ids(
        self, queue: QueueInfo | None, publications: Sequence[Publication]
    ) -> Operation[dict[str, int]]:
        """The dedup keys that were seen within the window, and the ids they had."""
        keys = [p.dedup_key for p in publications if p.dedup_key is not None]
        if queue is None or not keys:
            return {}
        now = self.dialect.now_us()
        yield self.dialect.statement("forget_keys", now)
        rows = yield self.dialect.statement("seen_keys", queue.id, keys, now)
        return {key: id for key, id in rows}

    def _remember_keys(
        self, queue: QueueInfo | None, stored: Sequence[Chosen], ids: Sequence[int]
    ) -> Operation[None]:
        if queue is None:
            return
        now, window = self.dialect.now_us(), queue.options.dedup_window_us
        rows = [
            (queue.id, each.publication.dedup_key, id, now, window)
            for each, id in zip(stored, ids, strict=True)
            if each.publication.dedup_key is not None
        ]
        if rows:
            yield self.dialect.each("remember_key", rows)

    def route(self) -> Operation[int]:
        if self.dialect.looks_only:
            return 0
        yield from self._drop_expired()
        made = 0
        while (yield self.dialect.statement("has_unrouted")):
            made += yield from self._route_some()
        return made

    def _route_some(self) -> Operation[int]:
        yield Transaction.WRITE
        catalog = yield from self.catalog()
        now = self.dialect.now_us()
        rows = yield from self.read_messages("unrouted", _ROUTED_AT_ONCE, now)
        deliveries = list(_routed(rows, catalog, now))
        if deliveries:
            yield self.dialect.each("insert_delivery", deliveries)
            yield Notify(tuple({cast(int, delivery[1]) for delivery in deliveries}))
        yield self.dialect.statement("drop_routed", [row.before[0] for row in rows])
        yield Transaction.COMMIT
        return len(deliveries)

    def _drop_expired(self) -> Operation[None]:
        for id, _ in (yield self.dialect.statement("expired", self.dialect.now_us())):
            yield from self.drop_id(id)

    def drop_id(self, id: int) -> Operation[None]:
        """The queue with everything in it; first nothing more arrives, then it is emptied."""
        yield self.dialect.statement("drop_queue", id)
        yield Notify((id,))  # who waits for it finds it gone
        yield from self.empty_dropped()

    def empty_dropped(self) -> Operation[None]:
        """Delete what dropped queues left behind, in pieces; also where somebody was killed over it. What came through
        the door and was not yet offered to the subscriptions stays: they get it though its queue is gone."""
        for (id,) in (yield self.dialect.statement("dropped")):
            while (yield self.dialect.statement("drop_deliveries", id)):
                pass
            for name in _DROPS:
                yield self.dialect.statement(name, id)


def check_is_queue(info: QueueInfo) -> None:
    """Refuse to publish to a subscription, which holds what its filter matches and nothing else."""
    if info.kind != "queue":
        raise QueueOptionsError(
            f"{info.name!r} is a subscription and gets what its filter matches; publish to a queue, "
            "or to all subscriptions with Database.publish"
        )


def delivery_row(
    id: int, queue: QueueInfo, publication: Publication, now_us: int | None
) -> _Delivery:
    """What insert_delivery takes."""
    rank, keys = rank_in(queue, publication.message), keys_in(queue, publication.message)
    return id, queue.id, rank, publication.delay_us, publication.group, keys, now_us


def rank_in(queue: QueueInfo, message: Message) -> int:
    """Where it stands: pushed in the order of publishing, whatever the priority."""
    return 0 if queue.kind == "push" else -message.priority


def keys_in(queue: QueueInfo, message: Message) -> str:
    """Its filter headers, as the queue declares them."""
    return keys_json(message.headers, queue.options.filter_headers) if message.headers else "{}"


def receivers_of(catalog: Catalog, queue: QueueInfo | None, message: Message) -> list[QueueInfo]:
    """The queue it is published to, if there is one, and the subscriptions that want it."""
    others = catalog.receivers(message, None if queue is None else queue.id)
    return others if queue is None else [queue, *others]


def _routed(rows: Iterable[Read], catalog: Catalog, now_us: int | None) -> Iterator[_Delivery]:
    """What cannot be read is offered to no subscription."""
    for (id, source, delay_us, group), message, problem in rows:
        receivers = catalog.receivers(message, source) if problem is None else ()
        for queue in receivers:
            yield delivery_row(id, queue, Publication(message, delay_us, None, group), now_us)


def first_of_each_key(publications: Sequence[Publication], known: Mapping[str, int]) -> list[int]:
    """The positions of those to be stored: of several with the same key the first, of a known key none."""
    taken = set(known)
    fresh = []
    for at, publication in enumerate(publications):
        key = publication.dedup_key
        if key is None:
            fresh.append(at)
        elif key not in taken:
            fresh.append(at)
            taken.add(key)
    return fresh


def _ids_of(
    publications: Iterable[Publication],
    known: Mapping[str, int],
    stored: Sequence[Chosen],
    ids: Sequence[int],
) -> list[int]:
    by_position = {each.at: id for each, id in zip(stored, ids, strict=True)}
    by_key = dict(known)
    for each, id in zip(stored, ids, strict=True):
        if each.publication.dedup_key is not None:
            by_key[each.publication.dedup_key] = id
    return [
        by_position.get(at, 0) if p.dedup_key is None else by_key.get(p.dedup_key, 0)
        for at, p in enumerate(publications)
    ]
