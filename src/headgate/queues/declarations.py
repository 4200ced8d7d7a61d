"""Declaring queues and subscriptions, which takes more than one operation. Unknown names raise QueueNotFound; invalid
arguments are refused before anything is changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from headgate.errors import QueueOptionsError
from headgate.filters import FilterLike
from headgate.queues import arguments
from headgate.queues.engine import (
    Operation,
    QueueInfo,
    QueueOptions,
    SubscriptionStart,
)
from headgate.queues.operations import Operations

STARTS: Final = ("next", "first")


def declare(
    operations: Operations,
    name: str,
    filter_headers: Iterable[str] | None,
    max_attempts: int | None,
    dedup_window: timedelta | None,
    archive: bool | None,
) -> Operation[QueueInfo]:
    """Create the queue, or change the given options of an existing one."""
    known = yield from _options_of(operations, name)
    options = arguments.queue_options(
        filter_headers, max_attempts, dedup_window, archive, otherwise=known
    )
    return (yield from operations.declare(name, options))


def add_filter_header(operations: Operations, name: str, header: str) -> Operation[QueueInfo]:
    """Add a filter header to an existing queue or subscription."""
    known = (yield from operations.find(name)).options
    options = arguments.queue_options((*known.filter_headers, header), otherwise=known)
    return (yield from operations.declare(name, options))


def subscription(
    operations: Operations,
    name: str,
    filter: FilterLike | None,
    pattern: str | None,
    *,
    queue: str | None,
    start: SubscriptionStart,
    filter_headers: Iterable[str] | None,
    max_attempts: int | None,
    archive: bool | None,
) -> Operation[QueueInfo]:
    """Create a subscription, or change the filter of an existing one. Without filter and pattern, find an existing one."""
    if filter is None and pattern is None:
        return (yield from _find_subscription(operations, name))
    tree = arguments.subscription_filter(filter, pattern)
    if start not in STARTS:
        raise QueueOptionsError(f"a subscription starts at {' or '.join(STARTS)}, not at {start!r}")
    known = yield from _options_of(operations, name)
    options = arguments.queue_options(filter_headers, max_attempts, None, archive, otherwise=known)
    return (yield from operations.subscribe(name, tree, source=queue, options=options, start=start))


def _find_subscription(operations: Operations, name: str) -> Operation[QueueInfo]:
    info = yield from operations.find(name)
    if info.kind == "queue":
        raise QueueOptionsError(
            f"{name!r} is a queue, not a subscription; get it with find(), or name a subscription"
        )
    return info


def set_filter(
    operations: Operations, info: QueueInfo, filter: FilterLike | None, pattern: str | None
) -> Operation[QueueInfo]:
    """Change the filter of a subscription, and keep the queue it receives from."""
    tree = arguments.subscription_filter(filter, pattern)
    known = yield from operations.find(info.name)
    source = None
    if known.source is not None:
        # A source that was deleted is not found: then `subscribe` refuses.
        infos = yield from operations.queues()
        source = next((each.name for each in infos if each.id == known.source), None)
    return (yield from operations.subscribe(info.name, tree, source=source))


def _options_of(operations: Operations, name: str) -> Operation[QueueOptions]:
    info = yield from operations.find_or_none(name)
    return QueueOptions() if info is None else info.options
