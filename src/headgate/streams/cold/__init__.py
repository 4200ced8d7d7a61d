"""The cold tier: sealed segments rewritten as Parquet, here or in an object store, and read as part of the stream."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.streams.cold.compaction import CompactionResult as CompactionResult
    from headgate.streams.cold.compaction import clean_up as clean_up
    from headgate.streams.cold.compaction import list_candidates as list_candidates
    from headgate.streams.cold.compaction import select_candidates as select_candidates
    from headgate.streams.cold.manifest import list_manifests as list_manifests
    from headgate.streams.cold.manifest import read_note as read_note
    from headgate.streams.cold.write import ColdTask as ColdTask
    from headgate.streams.cold.write import WrittenColdFile as WrittenColdFile
    from headgate.streams.cold.write import try_write_cold as try_write_cold
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "compaction": ["CompactionResult", "select_candidates", "list_candidates", "clean_up"],
            "manifest": ["list_manifests", "read_note"],
            "write": ["ColdTask", "WrittenColdFile", "try_write_cold"],
        },
    )
