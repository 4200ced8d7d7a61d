"""One running broker, as `headgate serve` starts it: configuration, directory of data, sockets, TLS, tokens."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.server.configuration import ServerOptions as ServerOptions
    from headgate.server.configuration import parse_assignment as parse_assignment
    from headgate.server.data_directory import Backup as Backup
    from headgate.server.data_directory import DirectoryReport as DirectoryReport
    from headgate.server.data_directory import OnStep as OnStep
    from headgate.server.data_directory import back_up as back_up
    from headgate.server.data_directory import repair_directory as repair_directory
    from headgate.server.data_directory import restore_backup as restore_backup
    from headgate.server.data_directory import verify_directory as verify_directory
    from headgate.server.server import Server as Server
    from headgate.server.server import new_event_loop as new_event_loop
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "configuration": ["ServerOptions", "parse_assignment"],
            "data_directory": [
                "Backup", "DirectoryReport", "OnStep", "back_up", "repair_directory", "restore_backup", "verify_directory",
            ],
            "server": ["Server", "new_event_loop"],
        },
    )  # fmt: skip
