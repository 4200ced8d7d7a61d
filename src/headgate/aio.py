"""The asyncio API for users: `headgate.aio.connect(url)` for queues, `headgate.aio.AsyncStream` for streams.

See `headgate.queues.aio` and `headgate.streams.aio`.
"""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.queues import Member as Member
    from headgate.queues import Publication as Publication
    from headgate.queues import Retry as Retry
    from headgate.queues import State as State
    from headgate.queues.aio import AsyncConsumer as AsyncConsumer
    from headgate.queues.aio import AsyncDatabase as AsyncDatabase
    from headgate.queues.aio import AsyncDelivery as AsyncDelivery
    from headgate.queues.aio import AsyncOutbox as AsyncOutbox
    from headgate.queues.aio import AsyncQueue as AsyncQueue
    from headgate.queues.aio import AsyncRelay as AsyncRelay
    from headgate.queues.aio import AsyncScheduler as AsyncScheduler
    from headgate.queues.aio import AsyncSubscription as AsyncSubscription
    from headgate.queues.aio import connect as connect
    from headgate.streams import AsyncProducer as AsyncProducer
    from headgate.streams import AsyncStream as AsyncStream
    from headgate.streams import AsyncStreamConsumer as AsyncStreamConsumer
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "headgate.queues": ["Member", "Publication", "Retry", "State"],
            "headgate.queues.aio": [
                "AsyncConsumer",
                "AsyncDatabase",
                "AsyncDelivery",
                "AsyncOutbox",
                "AsyncQueue",
                "AsyncRelay",
                "AsyncScheduler",
                "AsyncScheduler",
                "AsyncSubscription",
                "connect",
            ],
            "headgate.streams": ["AsyncProducer", "AsyncStream", "AsyncStreamConsumer"],
        },
    )

__all__ = [
    "AsyncConsumer",
    "AsyncDatabase",
    "AsyncDelivery",
    "AsyncOutbox",
    "AsyncProducer",
    "AsyncQueue",
    "AsyncRelay",
    "AsyncStream",
    "AsyncStreamConsumer",
    "AsyncSubscription",
    "Member",
    "Publication",
    "Retry",
    "State",
    "connect",
]
