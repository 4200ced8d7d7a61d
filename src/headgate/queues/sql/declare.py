"""Queues and durable subscriptions: made, changed in place, dropped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headgate.errors import QueueNotFound, QueueOptionsError
from headgate.filters import Filter, to_text
from headgate.filters.compile import predicate
from headgate.filters.compile.sql import Layout, index_expression, is_plain_name
from headgate.message import UNSTORABLE
from headgate.queues.arguments import MOST
from headgate.queues.engine import (
    Notify,
    Operation,
    Publication,
    QueueInfo,
    QueueKind,
    QueueOptions,
    Start,
    Transaction,
)
from headgate.queues.sql.publish import Publishing, delivery_row

_STORED_AT_ONCE: Final = 500
_KEYS: Final = Layout(headers="keys")


class Declaring(Publishing):
    def declare(self, name: str, options: QueueOptions | None) -> Operation[QueueInfo]:
        check_queue(name, options)
        yield from self.empty_dropped()
        yield Transaction.WRITE
        info = yield from self._find(name)
        if info is None:
            yield from self._create(name, "queue", options or QueueOptions())
        elif options is not None:
            yield from self._change(info, options)
        yield Transaction.COMMIT
        return (yield from self._indexed(name))

    def queues(self) -> Operation[list[QueueInfo]]:
        catalog = yield from self.catalog()
        return list(catalog.by_id.values())

    def delete(self, name: str) -> Operation[None]:
        info = yield from self.find(name)
        yield from self.drop_id(info.id)

    def pause(self, name: str, *, paused: bool) -> Operation[QueueInfo]:
        info = yield from self.find(name)
        yield self.dialect.statement("set_paused", info.id, int(paused))
        yield Notify((info.id,))
        return (yield from self.find(name))

    # -- subscriptions --

    def subscribe(
        self,
        name: str,
        filter: Filter,
        *,
        source: str | None = None,
        options: QueueOptions | None = None,
        start: Start = "next",
        lease_us: int | None = None,
    ) -> Operation[QueueInfo]:
        check_queue(name, options)
        text = to_text(filter)
        yield from self.route()  # what came through the door before is not for it
        yield Transaction.WRITE
        info = yield from self._find(name)
        from_queue = None if source is None else (yield from self.find(source)).id
        if info is None:
            kind: QueueKind = "subscription" if lease_us is None else "push"
            yield from self._create(
                name, kind, options or QueueOptions(), text, from_queue, lease_us
            )
            if start == "first":
                yield from self._take_stored(name, filter)
        else:
            check_is_subscription(info)
            if from_queue is None and info.source is not None:
                known = self._catalog.by_id.get(info.source)
                raise widened(name, None if known is None else known.name)
            if (info.filter, info.source) != (text, from_queue):
                yield self.dialect.statement("change_filter", info.id, text, from_queue)
            if options is not None:
                yield from self._change(info, options)
        yield Transaction.COMMIT
        return (yield from self._indexed(name))

    def keep_alive(self, name: str, lease_us: int) -> Operation[bool]:
        info = yield from self._find(name)
        if info is None:
            return False
        rows = yield self.dialect.statement("set_expiry", info.id, self.dialect.now_us(), lease_us)
        return bool(rows)

    def _take_stored(self, name: str, filter: Filter) -> Operation[None]:
        """Deliveries of what is stored already, where it matches."""
        info = yield from self.find(name)
        matches = predicate(filter, self.dialect.wall_us)
        after, now = 0, self.dialect.now_us()
        while rows := (
            yield from self.read_messages("stored", after, _STORED_AT_ONCE, info.source, now)
        ):
            deliveries = [
                delivery_row(id, info, Publication(message, delay_us, None, group), now)
                for (id, delay_us, group), message, problem in rows
                if problem is None and matches(message)
            ]
            if deliveries:
                yield self.dialect.each("insert_delivery", deliveries)
            after = rows[-1].before[0]

    # -- parts --

    def _find(self, name: str) -> Operation[QueueInfo | None]:
        try:
            return (yield from self.find(name))
        except QueueNotFound:
            return None

    def _create(
        self,
        name: str,
        kind: QueueKind,
        options: QueueOptions,
        filter: str = "",
        source: int | None = None,
        lease_us: int | None = None,
    ) -> Operation[None]:
        yield self.dialect.statement(
            "create_queue",
            name,
            kind,
            options.max_attempts,
            options.dedup_window_us,
            int(options.archive),
            list(options.filter_headers),
            [],
            filter,
            source,
            self.dialect.now_us(),
            lease_us,
        )

    def _change(self, info: QueueInfo, options: QueueOptions) -> Operation[None]:
        kept = info.options.filter_headers
        added = [name for name in options.filter_headers if name not in kept]
        same = QueueOptions(
            filter_headers=(*kept, *added),
            max_attempts=options.max_attempts,
            dedup_window_us=options.dedup_window_us,
            archive=options.archive,
        )
        if same != info.options:
            yield self.dialect.statement(
                "change_options",
                info.id,
                same.max_attempts,
                same.dedup_window_us,
                int(same.archive),
                list(same.filter_headers),
            )

    def _indexed(self, name: str) -> Operation[QueueInfo]:
        """The queue, once the filter headers it has are copied and indexed."""
        info = yield from self.find(name)
        missing = [name for name in info.options.filter_headers if name not in info.indexed]
        if not missing:
            return info
        yield from self.build_indexes(info, missing)
        return (yield from self.find(name))

    def build_indexes(self, info: QueueInfo, headers: Sequence[str]) -> Operation[None]:
        """From now on everyone publishes with the new headers; copy them for what was there before, then say so."""
        for header in headers:
            index = self.dialect.index_name(header)
            expression = index_expression(self.dialect.name, header, _KEYS)
            for (other,) in (yield self.dialect.statement("misnamed_indexes", index, expression)):
                yield self.dialect.statement("drop_filter_index", index=other)
            yield self.dialect.statement("create_filter_index", index=index, expression=expression)
        wanted = list(info.options.filter_headers)
        after = 0
        while rows := (yield self.dialect.statement("backfill", info.id, after, wanted)):
            after = max(row[0] for row in rows)
        yield self.dialect.statement("set_indexed", info.id, wanted)


def check_queue(name: str, options: QueueOptions | None) -> None:
    """Refuse what cannot be a queue, with what to do about it."""
    if not isinstance(name, str) or UNSTORABLE.search(name) or not 0 < len(name.encode()) <= 255:
        raise QueueOptionsError(
            f"a queue's name is text of 1 to 255 bytes without NUL and lone surrogates, not {name!r}"
        )
    if options is None:
        return
    for header in options.filter_headers:
        if not is_plain_name(header):
            raise QueueOptionsError(
                f"the header {header!r} cannot be a filter header: its name must begin with a letter or _, "
                "and have at most 63 letters, digits, _ and -"
            )
    if type(options.max_attempts) is not int or not 0 <= options.max_attempts <= MOST:
        raise QueueOptionsError(
            f"max_attempts must be an integer from 0 to {MOST:,}, not {options.max_attempts!r}; 0 is no limit"
        )
    if options.dedup_window_us < 0:
        raise QueueOptionsError("the dedup window cannot be negative")


def widened(name: str, source: str | None) -> QueueOptionsError:
    """A subscription that takes from one queue does not take from all of them because nobody said which."""
    if source is None:
        took, remedy = "took from a queue that was dropped", "name another one with queue="
    else:
        took, remedy = (
            f"takes from the queue {source!r} alone",
            f"say so again with queue={source!r}",
        )
    return QueueOptionsError(
        f"the subscription {name!r} {took}; {remedy}, or drop it and make it anew to take from all queues"
    )


def check_is_subscription(info: QueueInfo) -> None:
    if info.kind == "queue":
        raise QueueOptionsError(
            f"{info.name!r} is a queue, which takes what is published to it; choose another name "
            "for the subscription"
        )
