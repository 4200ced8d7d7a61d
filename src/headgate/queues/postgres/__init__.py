"""The PostgreSQL engine."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.queues.postgres.connection import open_connection as open_connection
    from headgate.queues.postgres.dialect import SESSION as SESSION
    from headgate.queues.postgres.dialect import PostgresDialect as PostgresDialect
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "connection": ["open_connection"],
            "dialect": ["PostgresDialect", "SESSION"],
        },
    )
