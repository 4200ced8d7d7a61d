"""The asyncio face for users: `async with await headgate.aio.connect(url) as db:`. See `headgate.queues.aio`."""

from headgate.queues import Member, Publication, Retry, State
from headgate.queues.aio import (
    AsyncConsumer,
    AsyncDatabase,
    AsyncDelivery,
    AsyncOutbox,
    AsyncQueue,
    AsyncRelay,
    AsyncSubscription,
    connect,
)

__all__ = [
    "AsyncConsumer",
    "AsyncDatabase",
    "AsyncDelivery",
    "AsyncOutbox",
    "AsyncQueue",
    "AsyncRelay",
    "AsyncSubscription",
    "Member",
    "Publication",
    "Retry",
    "State",
    "connect",
]
