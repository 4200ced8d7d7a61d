"""The cold tier: sealed segments rewritten as Parquet, here or in an object store, and read as part of the stream."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.streams.cold.compaction import Compacted as Compacted
    from headgate.streams.cold.compaction import chosen as chosen
    from headgate.streams.cold.compaction import sources as sources
    from headgate.streams.cold.compaction import tidied as tidied
    from headgate.streams.cold.manifest import read_note as read_note
    from headgate.streams.cold.tier import manifests as manifests
    from headgate.streams.cold.write import ColdTask as ColdTask
    from headgate.streams.cold.write import Written as Written
    from headgate.streams.cold.write import attempt as attempt
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "compaction": ["Compacted", "chosen", "sources", "tidied"],
            "manifest": ["read_note"],
            "tier": ["manifests"],
            "write": ["ColdTask", "Written", "attempt"],
        },
    )
