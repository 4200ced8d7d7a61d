"""A consumer of a queue: what it may take now, and how it is given entries. The protocol sends them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headgate.broker.contract import BrokerQueue
    from headgate.broker.message import QueueEntry
    from headgate.broker.queue_filters import QueueFilter

SHARE: Final = 64  # the most entries for one consumer before the next one has its turn


class ConsumerFilter:
    """The filter of one consumer, and counts of messages since it was set."""

    __slots__ = ("_since", "delivered", "shared", "text")

    def __init__(self, text: str, shared: QueueFilter) -> None:
        self.text, self.shared = text, shared
        self.delivered = 0
        self._since = shared.examined, shared.matched, shared.seconds

    @property
    def examined(self) -> int:
        """How many messages were matched against it."""
        return self.shared.examined - self._since[0]

    @property
    def skipped(self) -> int:
        """How many of the examined messages did not match."""
        return self.examined - (self.shared.matched - self._since[1])

    @property
    def seconds(self) -> float:
        """The time that matching took."""
        return self.shared.seconds - self._since[2]


class BrokerConsumer(ABC):
    """Takes entries of one queue as long as it has room."""

    def __init__(
        self,
        tag: str,
        queue: BrokerQueue,
        *,
        no_ack: bool,
        exclusive: bool,
        priority: int,
        prefetch: int = 0,
        shares_prefetch: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        self.tag, self.queue = tag, queue
        self.no_ack, self.exclusive, self.priority = no_ack, exclusive, priority
        self.prefetch = prefetch  # how many entries it may have unacknowledged; 0: any number
        self.shares_prefetch = shares_prefetch  # with other consumers of its channel
        self.arguments = dict(arguments or {})
        self.browses = self.arguments.get("x-browse") is True  # whether it takes no entries
        # The filter that it asked for; without one, the queue's own filter counts, if it has one.
        self.filter_text: str | None = None
        self.filter: ConsumerFilter | None = None
        self.unacked = 0  # entries that were sent and not settled

    @abstractmethod
    def room(self) -> int:
        """How many entries it takes now."""

    @abstractmethod
    def deliver(self, entries: Sequence[QueueEntry]) -> None:
        """Send entries; each is settled later, or at once where nothing is acknowledged."""

    @abstractmethod
    def notify_cancel(self) -> None:
        """Tell the consumer that its queue was deleted."""


def active_consumers(queue: BrokerQueue) -> list[BrokerConsumer]:
    """The consumer that is active where only one may be: the first, as long as it stays.

    In a quorum queue it yields to a higher priority, once it has acknowledged everything; until then none is active.
    """
    consumers = queue.consumers
    first, *others = consumers
    if queue.definition.type == "quorum" and any(one.priority > first.priority for one in others):
        if first.unacked:
            return []
        consumers.sort(key=lambda one: -one.priority)
    return consumers[:1]


class ConsumerTurns:
    """Whose turn it is among the consumers of a queue."""

    def __init__(self) -> None:
        self._next = 0

    def next_takers(
        self, consumers: Sequence[BrokerConsumer], most: int
    ) -> tuple[list[BrokerConsumer], int]:
        """Up to that many consumers with room, in their turn, and how many entries each may get before it is told its room again."""
        takers: list[BrokerConsumer] = []
        rounds = SHARE
        for _ in consumers:
            self._next %= len(consumers)
            consumer = consumers[self._next]
            self._next += 1
            room = consumer.room()
            if room > 0:
                takers.append(consumer)
                # What one gets of a prefetch that is shared, others have no more.
                rounds = min(rounds, 1 if consumer.shares_prefetch else room)
                if len(takers) == most or consumer.shares_prefetch:
                    break
        return takers, rounds

    def go_on_with(self, consumer: BrokerConsumer, consumers: Sequence[BrokerConsumer]) -> None:
        """Make it this consumer's turn, which has got nothing."""
        self._next = consumers.index(consumer)
