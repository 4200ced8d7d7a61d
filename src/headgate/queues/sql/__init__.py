"""What the SQL engines share: each operation written once, over the statements of a dialect."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.queues.sql.dialect import ON_MESSAGE as ON_MESSAGE
    from headgate.queues.sql.dialect import Dialect as Dialect
    from headgate.queues.sql.once import publish_once as publish_once
    from headgate.queues.sql.records import MESSAGE_COLUMNS as MESSAGE_COLUMNS
    from headgate.queues.sql.statements import migrations_of as migrations_of
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "dialect": ["Dialect", "ON_MESSAGE"],
            "once": ["publish_once"],
            "records": ["MESSAGE_COLUMNS"],
            "statements": ["migrations_of"],
        },
    )
