"""The refusals of a broker, by kind; the words are RabbitMQ's, because clients and people know them.

Refusal
├── NotFound              there is no such queue, exchange or vhost
├── AccessRefused         the name is reserved, or the user may not
├── ResourceLocked        an exclusive queue of another connection
├── PreconditionFailed    arguments that cannot be used, or that differ from those declared
└── ConnectionRefusal     a mistake of the client that costs it the connection
    ├── NotAllowed
    └── NotImplementedHere
"""

from __future__ import annotations

from headgate.errors import HeadgateError


class Refusal(HeadgateError):
    """An operation is refused, and the channel on which it was asked for is closed."""


class NotFound(Refusal):
    """There is no such object."""

    def __init__(self, kind: str, name: str, vhost: str | None = None) -> None:
        super().__init__(f"no {kind} '{name}'" + ("" if vhost is None else f" in vhost '{vhost}'"))


class AccessRefused(Refusal):
    """The name is reserved, or in exclusive use, or the user may not."""


class ResourceLocked(Refusal):
    """The queue is exclusive to another connection, or all it has is for its one active consumer."""

    def __init__(self, name: str, vhost: str, *, for_one_consumer: bool = False) -> None:
        queue = f"locked queue '{name}' in vhost '{vhost}'"
        if for_one_consumer:
            super().__init__(
                f"cannot obtain access to {queue}. basic.get operations are not supported by quorum queues "
                "with single active consumer"
            )
            return
        super().__init__(
            f"cannot obtain exclusive access to {queue}. It could be originally declared on another connection or "
            "the exclusive property value does not match that of the original declaration."
        )


class PreconditionFailed(Refusal):
    """Arguments cannot be used, or differ from those that were declared."""


class ConnectionRefusal(Refusal):
    """A mistake that closes the whole connection."""


class NotAllowed(ConnectionRefusal):
    """The operation is not allowed in this state, or at all."""


class NotImplementedHere(ConnectionRefusal):
    """AMQP has it, and RabbitMQ and we do not."""
