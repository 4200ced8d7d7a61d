"""The SQLite engine."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.queues.sqlite.files import open_file as open_file
    from headgate.queues.sqlite.operations import SqliteDialect as SqliteDialect
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "files": ["open_file"],
            "operations": ["SqliteDialect"],
        },
    )
