"""A consumer of a queue: what it may take now, and how it is given entries. The protocol sends them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headgate.broker.contract import BrokerQueue
    from headgate.broker.message import QueueEntry


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

    @abstractmethod
    def room(self) -> int:
        """How many entries it takes now."""

    @abstractmethod
    def deliver(self, entries: Sequence[QueueEntry]) -> None:
        """Send entries; each is settled later, or at once where nothing is acknowledged."""

    @abstractmethod
    def cancelled(self) -> None:
        """The queue was deleted."""
