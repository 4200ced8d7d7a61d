"""Work queues on SQL: publish, claim with a lease, acknowledge; on SQLite, PostgreSQL and in memory."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.queues.arguments import microseconds as microseconds
    from headgate.queues.consumer import Consumer as Consumer
    from headgate.queues.consumer_options import HandlerReport as HandlerReport
    from headgate.queues.consumer_options import Member as Member
    from headgate.queues.consumer_options import Retry as Retry
    from headgate.queues.consumer_set import ConsumerSet as ConsumerSet
    from headgate.queues.database import Database as Database
    from headgate.queues.database import connect as connect
    from headgate.queues.database_url import SERVERS as SERVERS
    from headgate.queues.database_url import SQLITE as SQLITE
    from headgate.queues.database_url import PostgresTarget as PostgresTarget
    from headgate.queues.database_url import TablesKey as TablesKey
    from headgate.queues.database_url import canonical_url as canonical_url
    from headgate.queues.database_url import hide_credentials as hide_credentials
    from headgate.queues.database_url import hide_password as hide_password
    from headgate.queues.database_url import postgres_target as postgres_target
    from headgate.queues.database_url import sqlite_file as sqlite_file
    from headgate.queues.database_url import tables_key as tables_key
    from headgate.queues.delivery import Delivery as Delivery
    from headgate.queues.engine import Access as Access
    from headgate.queues.engine import DeliverySnapshot as DeliverySnapshot
    from headgate.queues.engine import IndexAdvice as IndexAdvice
    from headgate.queues.engine import JobResult as JobResult
    from headgate.queues.engine import Publication as Publication
    from headgate.queues.engine import QueueInfo as QueueInfo
    from headgate.queues.engine import QueueStats as QueueStats
    from headgate.queues.engine import RateLimit as RateLimit
    from headgate.queues.engine import ScheduleState as ScheduleState
    from headgate.queues.engine import SqlValue as SqlValue
    from headgate.queues.engine import State as State
    from headgate.queues.engine import Usage as Usage
    from headgate.queues.outbox import Outbox as Outbox
    from headgate.queues.outbox import Relay as Relay
    from headgate.queues.outbox_table import ParkedEntry as ParkedEntry
    from headgate.queues.queue import Queue as Queue
    from headgate.queues.queue import Subscription as Subscription
    from headgate.queues.scheduler import Scheduler as Scheduler
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "arguments": ["microseconds"],
            "consumer": ["Consumer"],
            "consumer_options": ["HandlerReport", "Member", "Retry"],
            "consumer_set": ["ConsumerSet"],
            "database": ["Database", "connect"],
            "database_url": [
                "PostgresTarget",
                "SERVERS",
                "SQLITE",
                "TablesKey",
                "canonical_url",
                "hide_credentials",
                "hide_password",
                "postgres_target",
                "sqlite_file",
                "tables_key",
            ],
            "delivery": ["Delivery"],
            "engine": [
                "Access",
                "IndexAdvice",
                "JobResult",
                "RateLimit",
                "Publication",
                "QueueInfo",
                "QueueStats",
                "ScheduleState",
                "SqlValue",
                "DeliverySnapshot",
                "State",
                "Usage",
            ],
            "outbox": ["Outbox", "Relay"],
            "outbox_table": ["ParkedEntry"],
            "queue": ["Queue", "Subscription"],
            "scheduler": ["Scheduler"],
        },
    )
