"""The PostgreSQL engine."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.queues.postgres.connection import open_connection as open_connection
    from headgate.queues.postgres.dialect import SESSION as SESSION
    from headgate.queues.postgres.dialect import PostgresDialect as PostgresDialect
    from headgate.queues.postgres.target import DEFAULT_SCHEMA as DEFAULT_SCHEMA
    from headgate.queues.postgres.target import Target as Target
    from headgate.queues.postgres.target import target_of as target_of
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "connection": ["open_connection"],
            "dialect": ["PostgresDialect", "SESSION"],
            "target": ["DEFAULT_SCHEMA", "Target", "target_of"],
        },
    )
