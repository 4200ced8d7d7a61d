"""Writing a stream: producers, batches, group commit, the inbox for processes without the writer lock."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.streams.write.inbox import all_named_files as all_named_files
    from headgate.streams.write.lock import WriterLock as WriterLock
    from headgate.streams.write.lock import hold_lock as hold_lock
    from headgate.streams.write.staged import STAGED_SUFFIX as STAGED_SUFFIX
    from headgate.streams.write.staged import StagedFile as StagedFile
    from headgate.streams.write.staged import orphans as orphans
    from headgate.streams.write.staged import read_staged as read_staged
    from headgate.streams.write.staged import staged_folder as staged_folder
    from headgate.streams.write.staged import write_staged as write_staged
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "inbox": ["all_named_files"],
            "lock": ["WriterLock", "hold_lock"],
            "staged": [
                "STAGED_SUFFIX",
                "StagedFile",
                "orphans",
                "read_staged",
                "staged_folder",
                "write_staged",
            ],
        },
    )
