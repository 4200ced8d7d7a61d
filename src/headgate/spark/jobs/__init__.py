"""Work over whole streams that runs on Spark: on this machine by default, unchanged on a cluster."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.spark.jobs.advice import Advice as Advice
    from headgate.spark.jobs.advice import Outlook as Outlook
    from headgate.spark.jobs.advice import SizeOutlook as SizeOutlook
    from headgate.spark.jobs.advice import advise as advise
    from headgate.spark.jobs.compaction import compact as compact
    from headgate.spark.jobs.measuring import stream_stats as stream_stats
    from headgate.spark.jobs.replays import replay as replay
    from headgate.spark.jobs.running import OnProgress as OnProgress
    from headgate.spark.jobs.sketches import Distinct as Distinct
    from headgate.spark.jobs.stats import FieldStats as FieldStats
    from headgate.spark.jobs.stats import StreamStats as StreamStats
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "advice": ["Advice", "Outlook", "SizeOutlook", "advise"],
            "compaction": ["compact"],
            "measuring": ["stream_stats"],
            "replays": ["replay"],
            "running": ["OnProgress"],
            "sketches": ["Distinct"],
            "stats": ["FieldStats", "StreamStats"],
        },
    )
