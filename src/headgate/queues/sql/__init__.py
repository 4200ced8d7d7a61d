"""What the SQL engines share: the operations as generators over the statements of a dialect."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.queues.sql.dialect import ON_MESSAGE as ON_MESSAGE
    from headgate.queues.sql.dialect import QueueDialect as QueueDialect
    from headgate.queues.sql.dialect import migrations_of as migrations_of
    from headgate.queues.sql.message_rows import MESSAGE_COLUMNS as MESSAGE_COLUMNS
    from headgate.queues.sql.operations import publish_once as publish_once
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "dialect": ["ON_MESSAGE", "QueueDialect", "migrations_of"],
            "message_rows": ["MESSAGE_COLUMNS"],
            "operations": ["publish_once"],
        },
    )
