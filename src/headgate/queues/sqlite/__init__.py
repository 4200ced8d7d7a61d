"""The SQLite engine."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.queues.sqlite.dialect import SqliteDialect as SqliteDialect
    from headgate.queues.sqlite.file import open_file as open_file
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "dialect": ["SqliteDialect"],
            "file": ["open_file"],
        },
    )
