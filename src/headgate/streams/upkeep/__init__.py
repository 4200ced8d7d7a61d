"""Looking after a stream: recovery, verification, repairs, retention, dumps, copies."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.streams.upkeep.copying import copy_stream as copy_stream
    from headgate.streams.upkeep.dump import dump_lines as dump_lines
    from headgate.streams.upkeep.dump import dump_segment as dump_segment
    from headgate.streams.upkeep.verification import VerifyReport as VerifyReport
    from headgate.streams.upkeep.verification import repair as repair
    from headgate.streams.upkeep.verification import verify as verify
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "copying": ["copy_stream"],
            "dump": ["dump_segment", "dump_lines"],
            "verification": ["VerifyReport", "repair", "verify"],
        },
    )
