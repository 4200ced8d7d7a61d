"""Publishing on PostgreSQL: one statement for a batch, whoever receives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Final

from headgate.filters.compile.sql import headers_json
from headgate.message import SYSTEM_FIELDS, HeaderValue
from headgate.queues.engine import Operation, Publication, QueueInfo, Rows, SqlValue, Statement
from headgate.queues.postgres.columns import Column, Columns, columns
from headgate.queues.sql.catalog import Catalog
from headgate.queues.sql.operations import SqlOperations
from headgate.queues.sql.publish import (
    Chosen,
    check_is_queue,
    first_of_each_key,
    keys_in,
    rank_in,
    receivers_of,
)
from headgate.queues.sql.records import row_of


class PostgresPublishing(SqlOperations):
    def publish(
        self, queue: QueueInfo | None, publications: Sequence[Publication]
    ) -> Operation[list[int]]:
        if not publications:
            return []
        catalog = self._catalog  # perhaps an old one: the statement looks at its version
        if queue is not None and catalog.get(queue.name) is None:
            catalog = yield from self.catalog()
        while True:
            target = None if queue is None else catalog.find(queue.name)
            if target is not None and target.kind != "queue":
                check_is_queue((yield from self.current(target)))
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
        now = self.dialect.now_us()
        is_plain = all(len(c.receivers) == 1 and c.publication.dedup_key is None for c in chosen)
        if is_plain and len(chosen) == 1:
            return self._publish_one_statement(catalog, chosen[0])
        publications = [each.publication for each in chosen]
        given = _message_columns(publications, self.dialect.timestamp_us())
        if is_plain:
            one = columns((*given, *_delivery_columns(chosen)), 3)
            gaps = {
                "varied": one.varied,
                "same": one.same,
                "arrays": one.arrays,
                "names": one.names,
            }
            text = self.dialect.text("publish_plain", **gaps)
            return Statement(text, (catalog.version, now, *one.params))
        # Keys are remembered for a queue.
        keys = [None if queue is None else each.dedup_key for each in publications]
        messages = columns((*given, Column("dedup_key", "text", list(keys))), 5)
        deliveries = columns(_shared_columns(chosen), 5 + len(messages.params))
        window, id = (0, None) if queue is None else (queue.options.dedup_window_us, queue.id)
        gaps = _gaps("message", messages) | _gaps("delivery", deliveries)
        params = (catalog.version, now, window, id, *messages.params, *deliveries.params)
        return Statement(self.dialect.text("publish", **gaps), params)

    def _publish_one_statement(self, catalog: Catalog, chosen: Chosen) -> Statement:
        publication, [queue] = chosen.publication, chosen.receivers
        message = publication.message
        return self.dialect.statement(
            "publish_one",
            catalog.version,
            self.dialect.now_us(),
            *row_of(message, self.dialect.timestamp_us()),
            queue.id,
            rank_in(queue, message),
            publication.delay_us,
            publication.group,
            keys_in(queue, message),
        )

    def _ids(
        self,
        queue: QueueInfo | None,
        publications: Sequence[Publication],
        chosen: Sequence[Chosen],
        rows: Rows,
    ) -> Operation[list[int]]:
        """What each publication has become: stored, the one of its key that was stored before, or nothing."""
        if len(rows) == len(publications) and all(p.dedup_key is None for p in publications):
            return [row[0] for row in rows]
        found = {each.at: row[0] for each, row in zip(chosen, rows, strict=True)}
        keys = {publications[at].dedup_key: id for at, id in found.items() if id is not None}
        unknown = [p.dedup_key for p in publications if p.dedup_key not in keys]
        wanted = [key for key in unknown if key is not None]
        if queue is not None and wanted:
            now = self.dialect.now_us()
            seen = yield self.dialect.statement("seen_keys", queue.id, wanted, now)
            keys.update({key: id for key, id in seen})
        if queue is not None and any(p.dedup_key is not None for p in publications):
            yield self.dialect.statement("forget_keys", self.dialect.now_us())
        return [
            found.get(at) or 0 if p.dedup_key is None or queue is None else keys.get(p.dedup_key, 0)
            for at, p in enumerate(publications)
        ]


def _chosen(
    catalog: Catalog, queue: QueueInfo | None, publications: Sequence[Publication]
) -> list[Chosen]:
    if queue is not None and not catalog.has_subscriptions:
        receivers = [queue]
        fresh = first_of_each_key(publications, {})
        return [Chosen(at, publications[at], receivers) for at in fresh]
    found = []
    for at in first_of_each_key(publications, {}):
        receivers = receivers_of(catalog, queue, publications[at].message)
        if receivers:
            found.append(Chosen(at, publications[at], receivers))
    return found


def _message_columns(publications: Sequence[Publication], stamp: int | None) -> list[Column]:
    messages = [each.message for each in publications]
    return [
        Column("payload", "bytea", [bytes(message.payload) for message in messages]),
        Column("headers", "jsonb", [_json(message.headers) for message in messages]),
        Column("properties", "jsonb", [_json(message.properties) for message in messages]),
        Column(
            "timestamp", "bigint", [stamp if m.timestamp is None else m.timestamp for m in messages]
        ),
        Column("delay", "bigint", [each.delay_us for each in publications]),
        *(Column(name, type, list(map(of, messages))) for name, type, of in _AS_THEY_ARE),
    ]


def _delivery_columns(chosen: Sequence[Chosen]) -> list[Column]:
    """Of the first receiver of each."""
    pairs = [(each.receivers[0], each.publication.message) for each in chosen]
    return [
        Column("queue", "integer", [queue.id for queue, _ in pairs]),
        Column("rank", "smallint", [rank_in(queue, message) for queue, message in pairs]),
        Column("grp", "text", [each.publication.group for each in chosen]),
        Column("keys", "jsonb", [keys_in(queue, message) for queue, message in pairs]),
    ]


def _shared_columns(chosen: Sequence[Chosen]) -> list[Column]:
    """Of every receiver; `at` is the place of its message, from 1 on."""
    each_of = [
        Chosen(at, publication, [receiver])
        for at, (_, publication, receivers) in enumerate(chosen, 1)
        for receiver in receivers
    ]
    shared: list[SqlValue] = [len(chosen[each.at - 1].receivers) > 1 for each in each_of]
    return [
        Column("at", "bigint", [each.at for each in each_of]),
        Column("shared", "boolean", shared),
        *_delivery_columns(each_of),
    ]


def _gaps(what: str, given: Columns) -> dict[str, str]:
    """Where they go in a statement."""
    plural = "messages" if what == "message" else "deliveries"
    return {
        plural: given.varied + given.same,
        f"{what}_arrays": given.arrays,
        f"{what}_names": given.names,
    }


def _json(headers: Mapping[str, HeaderValue]) -> str:
    return headers_json(headers) if headers else "{}"


_AS_THEY_ARE: Final = tuple(
    (field.column, "text" if field.kind == "string" else "smallint", attrgetter(field.name))
    for field in SYSTEM_FIELDS
    if field.name != "timestamp"
)
