"""Which filter each consumer of a queue has: its own, or the default of the queue.

While there is a filter, `SelectiveDelivery` delivers; without one, the queue delivers by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.broker.consumer import BrokerConsumer, ConsumerFilter
from headgate.broker.filter_argument import ParsedFilter, read_filter
from headgate.broker.selective import SelectiveDelivery
from headgate.filters import matches_filter

if TYPE_CHECKING:
    from headgate.broker.message import BrokerMessage, QueueEntry
    from headgate.broker.queue import ClassicQueue


class ConsumerFilters:
    """The filters of one queue and of its consumers."""

    def __init__(self, queue: ClassicQueue) -> None:
        self._queue = queue
        self._default: ConsumerFilter | None = None  # of consumers that have none, and of gets

    def add(self, consumer: BrokerConsumer) -> None:
        """Add a consumer with the filter that it asks for."""
        self._add(consumer, self._wish_of(consumer.filter_text))

    def remove(self, consumer: BrokerConsumer) -> None:
        """Remove a consumer that ends, and its filter."""
        if self._queue.selection is not None:
            self._queue.selection.remove(consumer)
            self._end_selection()

    def change(self, consumer: BrokerConsumer, text: str | None) -> None:
        """Give a consumer another filter; None: the default of the queue, if there is one."""
        wish = self._wish_of(text)
        consumer.filter_text = text
        if wish is not None:
            self._begin_selection()
        if self._queue.selection is not None:
            self._queue.selection.remove(consumer)
            self._queue.selection.add(consumer, wish)
            self._end_selection()

    def redefine(self, wish: ParsedFilter | None) -> None:
        """Replace the default filter of the queue; None: no filter."""
        known = self._default
        if (known.text if known else None) == (wish.text if wish else None):
            return
        selection = self._begin_selection()
        self._default = None
        if wish is not None:
            self._default = ConsumerFilter(wish.text, selection.filters.add(wish.tree))
        for consumer in self._queue.consumers:
            if consumer.filter_text is None:
                selection.remove(consumer)
                selection.add(consumer, wish)
        if known is not None:
            selection.filters.remove(known.shared)
        self._end_selection()

    def take_one(self) -> list[QueueEntry]:
        """Take the next entry for a basic.get: one that the default filter matches, if there is one."""
        selection = self._queue.selection
        if selection is None or self._default is None:
            return self._queue.take_front(1, unmarked=True)
        entries: list[QueueEntry] = []
        can_go_on = True
        while can_go_on and not entries:
            selection.filters.examine()
            entries = selection.take(self._default.shared, 1, unmarked=True)
            can_go_on = selection.filters.can_go_on
        self._default.delivered += len(entries)
        return entries

    def can_deliver(self, message: BrokerMessage) -> bool:
        """Whether some consumer has room for a message, and its filter matches."""
        return any(
            consumer.room() > 0
            and (
                consumer.filter is None
                or matches_filter(consumer.filter.shared.tree, message.seen_by_filters())
            )
            for consumer in self._queue.consumers
        )

    def _wish_of(self, text: str | None) -> ParsedFilter | None:
        if text is None:
            return self._queue.definition.filter
        return read_filter(text, f"for a consumer of queue '{self._queue.name}'")

    def _add(self, consumer: BrokerConsumer, wish: ParsedFilter | None) -> None:
        if wish is not None:
            self._begin_selection()
        if self._queue.selection is not None:
            self._queue.selection.add(consumer, wish)

    def _begin_selection(self) -> SelectiveDelivery:
        if self._queue.selection is None:
            self._queue.selection = SelectiveDelivery(self._queue)
        return self._queue.selection

    def _end_selection(self) -> None:
        """Let the queue deliver by itself when no filter is left."""
        selection = self._queue.selection
        if selection is not None and not selection.filters:
            selection.filters.untrack()
            self._queue.selection = None
