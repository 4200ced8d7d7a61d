"""The asyncio face of connect(): the same verbs, awaited. Native on PostgreSQL, a worker thread on SQLite.

async with await headgate.aio.connect("postgresql://…") as db:
    orders = await db.queue("orders", filter_headers=["type"])
    await orders.publish(b"…", headers={"type": "created"})
    for delivery in await orders.claim(limit=10, filter="type = 'created'"):
        await delivery.ack()
"""

from headgate.queues.aio.consumer import Consumer
from headgate.queues.aio.database import Database, connect
from headgate.queues.aio.delivery import Delivery
from headgate.queues.aio.queue import Queue, Subscription
from headgate.queues.members import Member

__all__ = ["Consumer", "Database", "Delivery", "Member", "Queue", "Subscription", "connect"]
