"""Publishing on PostgreSQL: one statement for a batch, whoever receives it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from headgate.filters.targets.sql import headers_json
from headgate.queues.catalog import Catalog
from headgate.queues.contract import Operation, Publication, QueueInfo, Rows, Statement
from headgate.queues.operations import SqlOperations
from headgate.queues.publishing import delivery_row, first_of_each_key


class Chosen(NamedTuple):
    """A publication somebody wants, its position among all, and who wants it."""

    at: int
    publication: Publication
    receivers: list[QueueInfo]


class PostgresPublishing(SqlOperations):
    def publish(
        self, queue: QueueInfo | None, publications: Sequence[Publication]
    ) -> Operation[list[int]]:
        if not publications:
            return []
        catalog = self._catalog  # perhaps an old one: the statement looks at its version
        if queue is not None and queue.id not in catalog.by_id:
            catalog = yield from self.catalog()
        while True:
            target = None if queue is None else catalog.find(queue.name)
            chosen = _chosen(catalog, target, publications)
            if not chosen:
                current = yield from self.catalog()
                if current.version == catalog.version:
                    return [0] * len(publications)
                catalog = current
                continue
            rows = yield self._publish_statement(catalog, target, chosen)
            if rows:
                return (yield from self._ids(target, publications, chosen, rows))
            catalog = yield from self.catalog()

    def _publish_statement(
        self, catalog: Catalog, queue: QueueInfo | None, chosen: Sequence[Chosen]
    ) -> Statement:
        now, stamp = self.dialect.now_us(), self.dialect.timestamp_us()
        messages = [_message(each.publication, stamp) for each in chosen]
        payloads = _place_payloads(messages, chosen)
        if queue is None:  # keys are remembered for a queue
            for message in messages:
                message.pop("dedup_key", None)
        if all(len(c.receivers) == 1 and c.publication.dedup_key is None for c in chosen):
            for message, each in zip(messages, chosen, strict=True):
                message.update(_delivery(each.receivers[0], each.publication))
            return self.dialect.statement(
                "publish_plain", catalog.version, now, _json(messages), payloads
            )
        deliveries = [
            {"n": n, "shared": len(each.receivers) > 1, **_delivery(receiver, each.publication)}
            for n, each in enumerate(chosen, 1)
            for receiver in each.receivers
        ]
        return self.dialect.statement(
            "publish",
            catalog.version,
            now,
            _json(messages),
            payloads,
            0 if queue is None else queue.options.dedup_window_us,
            None if queue is None else queue.id,
            _json(deliveries),
        )

    def _ids(
        self,
        queue: QueueInfo | None,
        publications: Sequence[Publication],
        chosen: Sequence[Chosen],
        rows: Rows,
    ) -> Operation[list[int]]:
        """What each publication has become: stored, the one of its key that was stored before, or nothing."""
        found = {each.at: row[0] for each, row in zip(chosen, rows, strict=True)}
        keys = {publications[at].dedup_key: id for at, id in found.items() if id is not None}
        unknown = [p.dedup_key for p in publications if p.dedup_key not in keys]
        wanted = [key for key in unknown if key is not None]
        if queue is not None and wanted:
            now = self.dialect.now_us()
            keys.update(
                {
                    key: id
                    for key, id in (
                        yield self.dialect.statement("seen_keys", queue.id, wanted, now)
                    )
                }
            )
        if queue is not None and any(p.dedup_key is not None for p in publications):
            yield self.dialect.statement("forget_keys", self.dialect.now_us())
        return [
            found.get(at) or 0 if p.dedup_key is None or queue is None else keys.get(p.dedup_key, 0)
            for at, p in enumerate(publications)
        ]


def _chosen(
    catalog: Catalog, queue: QueueInfo | None, publications: Sequence[Publication]
) -> list[Chosen]:
    found = []
    for at in first_of_each_key(publications, {}):
        publication = publications[at]
        others = catalog.receivers(publication.message, None if queue is None else queue.id)
        receivers = others if queue is None else [queue, *others]
        if receivers:
            found.append(Chosen(at, publication, receivers))
    return found


def _message(publication: Publication, stamp: int | None) -> dict[str, Any]:
    """The message as the statement takes it, without what is absent: less to write, less to read."""
    message = publication.message
    row: dict[str, Any] = {"topic": message.topic, "priority": message.priority}
    if message.headers:
        row["headers"] = headers_json(message.headers)
    if message.properties:
        row["properties"] = headers_json(message.properties)
    if publication.delay_us:
        row["delay"] = publication.delay_us
    timestamp = stamp if message.timestamp is None else message.timestamp
    for name, value in (
        ("timestamp", timestamp),
        ("message_id", message.id),
        ("filter_value", message.filter_value),
        ("key", message.key),
        ("dedup_key", publication.dedup_key),
    ):
        if value is not None:
            row[name] = value
    return row


def _place_payloads(rows: Sequence[dict[str, Any]], chosen: Sequence[Chosen]) -> bytes:
    """All payloads as one; each row learns where its own begins, counted from 1 as SQL does, and how long it is."""
    payloads = [bytes(each.publication.message.payload) for each in chosen]
    first = 1
    for row, payload in zip(rows, payloads, strict=True):
        row["first"], row["size"] = first, len(payload)
        first += len(payload)
    return b"".join(payloads)


def _delivery(queue: QueueInfo, publication: Publication) -> dict[str, Any]:
    _, queue_id, rank, _, group, keys, _ = delivery_row(0, queue, publication, None)
    row: dict[str, Any] = {"queue": queue_id, "rank": rank}
    if group is not None:
        row["grp"] = group
    if keys != "{}":
        row["keys"] = keys
    return row


_json: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
