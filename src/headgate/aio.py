"""The asyncio face of queues: `await headgate.aio.connect(url)`. See `headgate.queues.aio`."""

from headgate.queues.aio import Consumer, Database, Delivery, Member, Queue, Subscription, connect

__all__ = ["Consumer", "Database", "Delivery", "Member", "Queue", "Subscription", "connect"]
