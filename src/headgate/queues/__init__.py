"""Work queues on SQL: publish, claim with a lease, acknowledge; on SQLite, PostgreSQL and in memory."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.queues.arguments import microseconds as microseconds
    from headgate.queues.consuming import Retry as Retry
    from headgate.queues.database import Database as Database
    from headgate.queues.database import connect as connect
    from headgate.queues.delivery import Delivery as Delivery
    from headgate.queues.engine import Access as Access
    from headgate.queues.engine import DeliverySnapshot as DeliverySnapshot
    from headgate.queues.engine import IndexAdvice as IndexAdvice
    from headgate.queues.engine import Publication as Publication
    from headgate.queues.engine import QueueInfo as QueueInfo
    from headgate.queues.engine import QueueStats as QueueStats
    from headgate.queues.engine import SqlValue as SqlValue
    from headgate.queues.engine import State as State
    from headgate.queues.engine import Usage as Usage
    from headgate.queues.members import Member as Member
    from headgate.queues.queue import Queue as Queue
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "arguments": ["microseconds"],
            "consuming": ["Retry"],
            "database": ["Database", "connect"],
            "delivery": ["Delivery"],
            "engine": [
                "Access",
                "IndexAdvice",
                "Publication",
                "QueueInfo",
                "QueueStats",
                "SqlValue",
                "DeliverySnapshot",
                "State",
                "Usage",
            ],
            "members": ["Member"],
            "queue": ["Queue"],
        },
    )
