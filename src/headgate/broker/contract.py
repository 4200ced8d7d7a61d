"""The interface of every type of queue, as virtual hosts, channels and pages use it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headgate.broker.consumer import BrokerConsumer
from headgate.broker.message import BrokerMessage, QueueEntry
from headgate.broker.queue_definition import QueueDefinition
from headgate.broker.traffic import QueueTraffic

if TYPE_CHECKING:
    from headgate.broker.lane import QueueLane
    from headgate.broker.selective import SelectiveDelivery
    from headgate.broker.vhost import VirtualHost


class BrokerQueue(ABC):
    """One queue. Everything happens in the thread of the broker."""

    definition: QueueDefinition

    def __init__(
        self,
        vhost: VirtualHost,
        name: str,
        *,
        durable: bool = False,
        auto_delete: bool = False,
        owner: object | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        self.vhost, self.name, self.durable, self.auto_delete = vhost, name, durable, auto_delete
        self.owner = owner  # the connection that alone may use it
        self.arguments = dict(arguments or {})
        self.is_deleted = False
        self.consumers: list[BrokerConsumer] = []
        self.unacked = 0
        self.ready_bytes = 0
        self.traffic = QueueTraffic()
        self.selection: SelectiveDelivery | None = None  # while filters of consumers decide
        self.first_lane = 0  # of the store; 0: it stores no rows there

    @property
    def unmatched(self) -> int:
        """How many ready messages no current consumer wants."""
        return 0 if self.selection is None else self.selection.unmatched.count()

    @property
    def unmatched_since(self) -> int | None:
        """Since when the oldest unmatched message has waited, in milliseconds; None if there is none."""
        return None if self.selection is None else self.selection.unmatched.since()

    def browse(
        self, filter_text: str | None = None, after: int = 0, limit: int = 100
    ) -> list[QueueEntry]:
        """Ready entries behind a position that a filter matches, in order; nothing is taken."""
        from headgate.broker.inspection import browse_entries

        return browse_entries(self, filter_text, after, limit)

    @property
    def messages(self) -> int:
        """How many messages it holds, those included that were delivered and are not settled."""
        return len(self) + self.unacked

    @property
    def published(self) -> int:
        """How many messages it took since the broker started."""
        return 0

    @property
    def lanes(self) -> Iterable[QueueLane]:
        """Its lanes of the store."""
        return ()

    @abstractmethod
    def __len__(self) -> int:
        """How many messages are ready."""

    @abstractmethod
    def redefine(self, definition: QueueDefinition) -> None:
        """Put another definition into effect."""

    @abstractmethod
    def publish(self, message: BrokerMessage, body_id: int | None = None) -> bool:
        """Take a message; False if the queue refuses it."""

    @abstractmethod
    def ack(self, entry: QueueEntry) -> None:
        """Forget an entry that its consumer acknowledged."""

    @abstractmethod
    def reject(self, entry: QueueEntry) -> None:
        """Discard an entry that its consumer does not want: it becomes a dead letter, or is gone."""

    @abstractmethod
    def requeue(self, entries: Sequence[QueueEntry], *, failed: bool = True) -> None:
        """Take entries back that were not acknowledged: rejected, their consumer gone, or (not failed) given back."""

    @abstractmethod
    def drain(self) -> None:
        """Give entries to the consumers that have room for them."""

    @abstractmethod
    def get(self) -> QueueEntry | None:
        """Take one entry, not for a consumer."""

    @abstractmethod
    def purge(self) -> int:
        """Delete all ready entries; return how many there were."""

    @abstractmethod
    def delete(self) -> int:
        """Delete the messages and cancel the consumers; return how many messages were ready."""

    @abstractmethod
    def add_consumer(self, consumer: BrokerConsumer) -> None:
        """Begin to give entries to a consumer."""

    @abstractmethod
    def remove_consumer(self, consumer: BrokerConsumer) -> None:
        """Give nothing more to a consumer; an auto-delete queue goes with its last one."""

    @abstractmethod
    def close(self) -> None:
        """Close files, because the broker stops."""

    @abstractmethod
    def note_use(self) -> None:
        """Note that the queue is in use: an unused one may expire."""
