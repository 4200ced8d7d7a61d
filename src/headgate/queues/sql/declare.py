"""Queues and durable subscriptions: created, changed in place, paused, deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headgate.errors import QueueOptionsError
from headgate.filters import Filter, to_text
from headgate.filters.compile.sql import is_plain_name
from headgate.message import UNSTORABLE
from headgate.queues.arguments import MOST
from headgate.queues.engine import (
    Notify,
    Operation,
    QueueInfo,
    QueueKind,
    QueueOptions,
    Statement,
    SubscriptionStart,
    Transaction,
    TransactionMode,
)
from headgate.queues.policies import EXPIRING
from headgate.queues.sql.backlog import Backlogs
from headgate.queues.sql.catalog import CatalogCache
from headgate.queues.sql.delete import QueueDeletion
from headgate.queues.sql.dialect import QueueDialect
from headgate.queues.sql.route import SubscriptionRouter


class FilterIndexes(Protocol):
    """How a database builds the indexes on filter headers."""

    def build(self, info: QueueInfo, headers: Sequence[str]) -> Operation[None]:
        """Build the indexes on these headers, and copy the headers next to the deliveries."""
        ...


class Declarations:
    """Creates and changes queues and subscriptions.

    `lock` is a statement that keeps all publishers out until the transaction ends, where transactions overlap.
    """

    def __init__(
        self,
        dialect: QueueDialect,
        catalog: CatalogCache,
        router: SubscriptionRouter,
        deletion: QueueDeletion,
        backlogs: Backlogs,
        indexes: FilterIndexes,
        lock: Statement | None = None,
    ) -> None:
        self._dialect, self._catalog, self._indexes = dialect, catalog, indexes
        self._router, self._deletion, self._backlogs = router, deletion, backlogs
        self._lock = lock

    # -- queues --

    def declare(self, name: str, options: QueueOptions | None) -> Operation[QueueInfo]:
        check_queue(name, options)
        yield from self._deletion.finish()
        known = yield from self._catalog.find_or_none(name)
        if known is not None and _is_as_declared(known, options):
            return known
        yield Transaction(TransactionMode.WRITE, lambda: self._declare(name, options))
        return (yield from self._build_missing_indexes(name))

    def _declare(self, name: str, options: QueueOptions | None) -> Operation[None]:
        yield from self._lock_catalog()
        info = yield from self._catalog.find_or_none(name)
        if info is None:
            yield from self._create(name, "queue", options or QueueOptions())
        elif options is not None:
            yield from self._change_options(info, options)

    def delete(self, name: str) -> Operation[None]:
        info = yield from self._catalog.find(name)
        yield from self._deletion.delete(info.id)

    def pause(self, name: str, *, paused: bool) -> Operation[QueueInfo]:
        info = yield from self._catalog.find(name)
        yield self._dialect.statement("set_paused", info.id, int(paused))
        yield Notify((info.id,))
        return (yield from self._catalog.find(name))

    # -- subscriptions --

    def subscribe(
        self,
        name: str,
        filter: Filter,
        *,
        source: str | None = None,
        options: QueueOptions | None = None,
        start: SubscriptionStart = "next",
        lease_us: int | None = None,
    ) -> Operation[QueueInfo]:
        check_queue(name, options)
        yield from self._router.route()  # messages from before are not for this subscription

        def subscribe() -> Operation[None]:
            yield from self._lock_catalog()
            catalog = yield from self._catalog.read()
            info = catalog.by_name.get(name)
            from_queue = None if source is None else catalog.find(source).id
            if info is not None:
                yield from self._change_filter(info, to_text(filter), from_queue, options)
                return
            kind: QueueKind = "subscription" if lease_us is None else "push"
            given, text = options or QueueOptions(), to_text(filter)
            # A message with a time to live may be under way, and is stored in a moment.
            policies = EXPIRING if catalog.has_expiring else 0
            yield from self._create(name, kind, given, text, from_queue, lease_us, policies)
            if start == "first":
                yield from self._backlogs.begin(name)

        yield Transaction(TransactionMode.WRITE, subscribe)
        info = yield from self._build_missing_indexes(name)
        if start == "first":
            yield from self._backlogs.deliver_all(info.id)
        return info

    def keep_alive(self, name: str, lease_us: int) -> Operation[bool]:
        info = yield from self._catalog.find_or_none(name)
        if info is None:
            return False
        rows = yield self._dialect.statement(
            "set_expiry", info.id, self._dialect.now_us(), lease_us
        )
        return bool(rows)

    def _change_filter(
        self, info: QueueInfo, text: str, source: int | None, options: QueueOptions | None
    ) -> Operation[None]:
        check_is_subscription(info)
        if source is None and info.source is not None:
            known = self._catalog.latest.by_id.get(info.source)
            raise source_missing(info.name, None if known is None else known.name)
        if (info.filter, info.source) != (text, source):
            yield self._dialect.statement("change_filter", info.id, text, source)
        if options is not None:
            yield from self._change_options(info, options)

    # -- parts --

    def _lock_catalog(self) -> Operation[None]:
        if self._lock is not None:
            yield self._lock

    def _create(
        self,
        name: str,
        kind: QueueKind,
        options: QueueOptions,
        filter: str = "",
        source: int | None = None,
        lease_us: int | None = None,
        policies: int = 0,
    ) -> Operation[None]:
        yield self._dialect.statement(
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
            self._dialect.now_us(),
            lease_us,
            policies,
        )

    def _change_options(self, info: QueueInfo, options: QueueOptions) -> Operation[None]:
        """Change the options of a queue. Filter headers are only added."""
        headers = dict.fromkeys((*info.options.filter_headers, *options.filter_headers))
        changed = QueueOptions(
            filter_headers=tuple(headers),
            max_attempts=options.max_attempts,
            dedup_window_us=options.dedup_window_us,
            archive=options.archive,
        )
        if changed != info.options:
            yield self._dialect.statement(
                "change_options",
                info.id,
                changed.max_attempts,
                changed.dedup_window_us,
                int(changed.archive),
                list(changed.filter_headers),
            )

    def _build_missing_indexes(self, name: str) -> Operation[QueueInfo]:
        """Build the indexes on filter headers that the queue has not yet, and return the queue."""
        info = yield from self._catalog.find(name)
        missing = [name for name in info.options.filter_headers if name not in info.indexed]
        if not missing:
            return info
        yield from self._indexes.build(info, missing)
        return (yield from self._catalog.find(name))


def backfill(dialect: QueueDialect, info: QueueInfo) -> Operation[None]:
    """Copy the filter headers of older messages next to their deliveries, then let claims use the indexes.

    All publishers copy the new headers already. So do other backfills, which may run at the same time: each page copies
    the headers that the queue has by then, and each backfill adds those that it knew at its beginning.
    """
    after = 0
    while rows := (yield dialect.statement("backfill", info.id, after)):
        after = max(row[0] for row in rows)
    yield dialect.statement("add_indexed", info.id, list(info.options.filter_headers))


def _is_as_declared(info: QueueInfo, options: QueueOptions | None) -> bool:
    """Whether the queue has these options already, and all its filter headers are indexed."""
    has, indexed = info.options, set(info.indexed)
    if not set(has.filter_headers) <= indexed:
        return False
    if options is None:
        return True
    rest = (options.max_attempts, options.dedup_window_us, options.archive)
    return set(options.filter_headers) <= set(has.filter_headers) and rest == (
        has.max_attempts,
        has.dedup_window_us,
        has.archive,
    )


def check_queue(name: str, options: QueueOptions | None) -> None:
    """Refuse a name or options that no queue can have."""
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


def source_missing(name: str, source: str | None) -> QueueOptionsError:
    """The error when a subscription to one queue is changed and its queue is not named."""
    if source is None:
        reads, remedy = "reads from a queue that was deleted", "name another one with queue="
    else:
        reads, remedy = f"reads only from the queue {source!r}", f"repeat queue={source!r}"
    return QueueOptionsError(
        f"the subscription {name!r} {reads}; {remedy}, or delete it and create it again to read from all queues"
    )


def check_is_subscription(info: QueueInfo) -> None:
    """Refuse to give a queue the filter of a subscription."""
    if info.kind == "queue":
        raise QueueOptionsError(
            f"{info.name!r} is a queue and gets what is published to it; choose another name "
            "for the subscription"
        )
