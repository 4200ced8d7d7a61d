"""Reading a stream: scans, consumers, cursors."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.streams.read.catalog import SegmentCatalog as SegmentCatalog
    from headgate.streams.read.cursors import Cursors as Cursors
    from headgate.streams.read.entry_filters import resolve_entry_filters as resolve_entry_filters
    from headgate.streams.read.held import HeldColumns as HeldColumns
    from headgate.streams.read.held import held_columns as held_columns
    from headgate.streams.read.measurement import ChunkOutcome as ChunkOutcome
    from headgate.streams.read.measurement import Measurement as Measurement
    from headgate.streams.read.measurement import SegmentMeasure as SegmentMeasure
    from headgate.streams.read.measurement import SegmentTier as SegmentTier
    from headgate.streams.read.measurement import measure as measure
    from headgate.streams.read.measurement import measure_chunks as measure_chunks
    from headgate.streams.read.plan import ScanStats as ScanStats
    from headgate.streams.read.plan import find_parts as find_parts
    from headgate.streams.read.plan import survivors as survivors
    from headgate.streams.read.query import StreamQuery as StreamQuery
    from headgate.streams.read.query import make_query as make_query
    from headgate.streams.read.scan import OnCorrupt as OnCorrupt
    from headgate.streams.read.scan import Scan as Scan
    from headgate.streams.read.scan import sweep_segment as sweep_segment
    from headgate.streams.read.start import OnLost as OnLost
    from headgate.streams.read.start import Start as Start
    from headgate.streams.read.start import parse_start as parse_start
    from headgate.streams.read.start import resolve_start as resolve_start
    from headgate.streams.read.totals import SCAN_TOTALS as SCAN_TOTALS
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "catalog": ["SegmentCatalog"],
            "cursors": ["Cursors"],
            "entry_filters": ["resolve_entry_filters"],
            "held": ["HeldColumns", "held_columns"],
            "measurement": [
                "ChunkOutcome",
                "Measurement",
                "SegmentMeasure",
                "SegmentTier",
                "measure",
                "measure_chunks",
            ],
            "plan": ["ScanStats", "find_parts", "survivors"],
            "query": ["StreamQuery", "make_query"],
            "scan": ["OnCorrupt", "Scan", "sweep_segment"],
            "totals": ["SCAN_TOTALS"],
            "start": ["OnLost", "Start", "parse_start", "resolve_start"],
        },
    )
