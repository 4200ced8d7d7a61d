"""The asyncio API of queues: the verbs of `headgate.queues`, awaited. Native on PostgreSQL, a worker thread on SQLite.

async with await headgate.aio.connect("postgresql://…") as db:
    orders = await db.queue("orders", filter_headers=["type"])
    await orders.publish(b"…", headers={"type": "created"})
    for delivery in await orders.claim(limit=10, filter="type = 'created'"):
        await delivery.ack()

The sync API is generated from this package: change it here, then run `make generate`.
"""

from headgate.queues.aio.consumer import AsyncConsumer
from headgate.queues.aio.consumer_set import AsyncConsumerSet
from headgate.queues.aio.database import AsyncDatabase, connect
from headgate.queues.aio.delivery import AsyncDelivery
from headgate.queues.aio.outbox import AsyncOutbox, AsyncRelay
from headgate.queues.aio.queue import AsyncQueue, AsyncSubscription
from headgate.queues.aio.scheduler import AsyncScheduler

__all__ = [
    "AsyncConsumer",
    "AsyncConsumerSet",
    "AsyncDatabase",
    "AsyncDelivery",
    "AsyncOutbox",
    "AsyncQueue",
    "AsyncRelay",
    "AsyncScheduler",
    "AsyncSubscription",
    "connect",
]
