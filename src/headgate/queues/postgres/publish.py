"""Publishing on PostgreSQL: one statement for a batch and all its deliveries.

The statement takes rows by column: an array where the rows differ, one value where all are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Final, NamedTuple, cast

from headgate.filters.compile.sql import headers_json
from headgate.message import SYSTEM_FIELDS, HeaderValue
from headgate.queues.engine import Operation, Publication, QueueInfo, SqlValue, Statement
from headgate.queues.sql.catalog import CatalogCache, QueueCatalog
from headgate.queues.sql.dialect import QueueDialect
from headgate.queues.sql.message_rows import row_of
from headgate.queues.sql.publish import (
    RoutedPublication,
    check_is_queue,
    keys_in,
    rank_in,
    route,
)


class PostgresPublisher:
    """Stores messages and their deliveries in one statement."""

    def __init__(self, dialect: QueueDialect, catalog: CatalogCache) -> None:
        self._dialect, self._catalog = dialect, catalog

    def publish(
        self, queue: QueueInfo | None, publications: Sequence[Publication]
    ) -> Operation[list[int]]:
        if not publications:
            return []
        catalog = self._catalog.latest  # perhaps an old one: the statement compares its version
        if queue is not None and queue.name not in catalog.by_name:
            catalog = yield from self._catalog.read()
        while True:
            target = None if queue is None else catalog.find(queue.name)
            if target is not None and target.kind != "queue":
                check_is_queue((yield from self._catalog.find(target.name)))
            if target is not None and _is_plain(catalog, publications):
                rows = yield self._plain_statement(
                    catalog, publications, [target] * len(publications)
                )
                if rows:
                    [(stored,)] = rows
                    return cast(list[int], stored)
                catalog = yield from self._catalog.read()
                continue
            routed = route(catalog, target, publications, {})
            if routed:
                rows = yield self._statement(catalog, target, routed)
                if rows:
                    [(ids,)] = rows
                    return (yield from self._ids(target, publications, routed, ids))
            known, catalog = catalog, (yield from self._catalog.read())
            if not routed and known.version == catalog.version:
                return [0] * len(publications)

    def _statement(
        self, catalog: QueueCatalog, queue: QueueInfo | None, routed: Sequence[RoutedPublication]
    ) -> Statement:
        now = self._dialect.now_us()
        publications = [each.publication for each in routed]
        if all(len(c.receivers) == 1 and c.publication.dedup_key is None for c in routed):
            receivers = [each.receivers[0] for each in routed]
            return self._plain_statement(catalog, publications, receivers)
        columns = _message_columns(publications, self._dialect.timestamp_us())
        # Dedup keys belong to a queue.
        keys = [None if queue is None else each.dedup_key for each in publications]
        messages = unnest((*columns, ParameterColumn("dedup_key", "text", list(keys))), 5)
        deliveries = unnest(_shared_columns(routed), 5 + len(messages.params))
        window, id = (0, None) if queue is None else (queue.options.dedup_window_us, queue.id)
        gaps = {
            "messages": messages.varied + messages.same,
            "message_arrays": messages.arrays,
            "message_names": messages.names,
            "deliveries": deliveries.varied + deliveries.same,
            "delivery_arrays": deliveries.arrays,
            "delivery_names": deliveries.names,
        }
        params = (catalog.version, now, window, id, *messages.params, *deliveries.params)
        return Statement(self._dialect.text("publish", **gaps), params)

    def _plain_statement(
        self,
        catalog: QueueCatalog,
        publications: Sequence[Publication],
        receivers: Sequence[QueueInfo],
    ) -> Statement:
        """The statement for publications without dedup keys that have one receiver each."""
        if len(publications) == 1:
            return self._statement_for_one(catalog, publications[0], receivers[0])
        columns = _message_columns(publications, self._dialect.timestamp_us())
        rows = unnest((*columns, *_delivery_columns(publications, receivers)), 3)
        gaps = {
            "varied": rows.varied,
            "same": rows.same,
            "arrays": rows.arrays,
            "names": rows.names,
        }
        text = self._dialect.text("publish_plain", **gaps)
        return Statement(text, (catalog.version, self._dialect.now_us(), *rows.params))

    def _statement_for_one(
        self, catalog: QueueCatalog, publication: Publication, queue: QueueInfo
    ) -> Statement:
        message = publication.message
        return self._dialect.statement(
            "publish_one",
            catalog.version,
            self._dialect.now_us(),
            *row_of(message, self._dialect.timestamp_us()),
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
        routed: Sequence[RoutedPublication],
        ids: list[int | None],
    ) -> Operation[list[int]]:
        """The id of each publication: stored now, stored before with its dedup key, or 0 without receivers."""
        if len(ids) == len(publications) and all(p.dedup_key is None for p in publications):
            return cast(list[int], ids)
        stored = {each.at: id for each, id in zip(routed, ids, strict=True)}
        keys = {publications[at].dedup_key: id for at, id in stored.items() if id is not None}
        others = {p.dedup_key for p in publications} - keys.keys() - {None}
        if queue is not None and others:
            now = self._dialect.now_us()
            known = yield self._dialect.statement("known_dedup_keys", queue.id, [*others], now)
            keys.update({key: id for key, id in known})
        if queue is not None and any(p.dedup_key is not None for p in publications):
            yield self._dialect.statement("forget_expired_keys", self._dialect.now_us())
        return [
            stored.get(at) or 0
            if p.dedup_key is None or queue is None
            else keys.get(p.dedup_key, 0)
            for at, p in enumerate(publications)
        ]


def _is_plain(catalog: QueueCatalog, publications: Sequence[Publication]) -> bool:
    """Whether only the queue that they are published to receives them, and none has a dedup key."""
    if catalog.has_subscriptions:
        return False
    keys = [each.dedup_key for each in publications]
    return keys.count(None) == len(keys)


def _message_columns(
    publications: Sequence[Publication], stamp: int | None
) -> list[ParameterColumn]:
    messages = [each.message for each in publications]
    stamps: list[SqlValue] = [each.timestamp for each in messages]
    if stamp is not None:
        stamps = [stamp if each is None else each for each in stamps]
    return [
        ParameterColumn("payload", "bytea", [bytes(each.payload) for each in messages]),
        ParameterColumn("headers", "jsonb", _documents([each.headers for each in messages])),
        ParameterColumn("properties", "jsonb", _documents([each.properties for each in messages])),
        ParameterColumn("timestamp", "bigint", stamps),
        ParameterColumn("delay", "bigint", [each.delay_us for each in publications]),
        *(ParameterColumn(name, type, list(map(of, messages))) for name, type, of in _PLAIN_FIELDS),
    ]


def _delivery_columns(
    publications: Sequence[Publication], queues: Sequence[QueueInfo]
) -> list[ParameterColumn]:
    """The columns of the deliveries of each publication to its queue."""
    messages = [each.message for each in publications]
    return [
        ParameterColumn("queue", "integer", [queue.id for queue in queues]),
        ParameterColumn("rank", "smallint", list(map(rank_in, queues, messages))),
        ParameterColumn("grp", "text", [each.group for each in publications]),
        ParameterColumn("keys", "jsonb", list(map(keys_in, queues, messages))),
    ]


def _shared_columns(routed: Sequence[RoutedPublication]) -> list[ParameterColumn]:
    """The columns of the deliveries to all receivers; `at` is the position of the message, from 1 on."""
    ats: list[SqlValue] = [at for at, each in enumerate(routed, 1) for _ in each.receivers]
    shared: list[SqlValue] = [len(each.receivers) > 1 for each in routed for _ in each.receivers]
    publications = [each.publication for each in routed for _ in each.receivers]
    receivers = [receiver for each in routed for receiver in each.receivers]
    return [
        ParameterColumn("at", "bigint", ats),
        ParameterColumn("shared", "boolean", shared),
        *_delivery_columns(publications, receivers),
    ]


def _documents(all_headers: Sequence[Mapping[str, HeaderValue]]) -> list[SqlValue]:
    """The headers of each message as JSON; one value for all of them if none has any."""
    if not any(all_headers):
        return ["{}"]
    return [headers_json(headers) for headers in all_headers]


_PLAIN_FIELDS: Final = tuple(
    (field.column, "text" if field.kind == "string" else "smallint", attrgetter(field.name))
    for field in SYSTEM_FIELDS
    if field.name != "timestamp"
)


# ---- rows by column ------------------------------------------------------------------------------------


class ParameterColumn(NamedTuple):
    """The values of one column for all rows."""

    name: str
    type: str
    values: list[SqlValue]


class UnnestedRows(NamedTuple):
    """The gaps of `SELECT {varied}{same} FROM unnest({arrays}) AS g ({names})`, and its parameters."""

    varied: str
    same: str  # starts with a comma, unless it is empty
    arrays: str
    names: str
    params: list[SqlValue]


def unnest(columns: Sequence[ParameterColumn], first_parameter: int) -> UnnestedRows:
    """Rows by column. The first column is always an array: its length is the number of rows."""
    varied = [not at or not _all_equal(column.values) for at, column in enumerate(columns)]
    shape = tuple(
        (name, type, varies) for (name, type, _), varies in zip(columns, varied, strict=True)
    )
    params = [
        column.values if varies else column.values[0]
        for column, varies in zip(columns, varied, strict=True)
    ]
    return UnnestedRows(*_texts(shape, first_parameter), params)


def _all_equal(values: Sequence[SqlValue]) -> bool:
    return values.count(values[0]) == len(values)


@lru_cache(maxsize=256)
def _texts(shape: tuple[tuple[str, str, bool], ...], first: int) -> tuple[str, str, str, str]:
    varied, same, arrays, names = [], [], [], []
    for number, (name, type, varies) in enumerate(shape, first):
        if varies:
            varied.append(f"g.{name}::jsonb" if type == "jsonb" else f"g.{name}")
            arrays.append(f"${number}::{'text' if type == 'jsonb' else type}[]")
            names.append(name)
        elif type == "jsonb":  # in a SELECT of its own it is converted once, not for every row
            same.append(f", (SELECT ${number}::text::jsonb) AS {name}")
        else:
            same.append(f", ${number}::{type} AS {name}")
    return ", ".join(varied), "".join(same), ", ".join(arrays), ", ".join(names)
