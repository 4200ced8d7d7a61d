"""Jobs over whole streams that run on Spark: on this machine by default, unchanged on a cluster."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.spark.jobs.advice import Outlook as Outlook
    from headgate.spark.jobs.advice import SizeOutlook as SizeOutlook
    from headgate.spark.jobs.advice import StreamAdvice as StreamAdvice
    from headgate.spark.jobs.advice import advice_chart as advice_chart
    from headgate.spark.jobs.advice import advise as advise
    from headgate.spark.jobs.compaction import compact as compact
    from headgate.spark.jobs.replays import replay as replay
    from headgate.spark.jobs.sketches import Distinct as Distinct
    from headgate.spark.jobs.stats import FieldStats as FieldStats
    from headgate.spark.jobs.stats import StreamStats as StreamStats
    from headgate.spark.jobs.stats import stream_stats as stream_stats
    from headgate.spark.jobs.tasks import OnProgress as OnProgress
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "advice": ["Outlook", "SizeOutlook", "StreamAdvice", "advice_chart", "advise"],
            "compaction": ["compact"],
            "replays": ["replay"],
            "sketches": ["Distinct"],
            "stats": ["FieldStats", "StreamStats", "stream_stats"],
            "tasks": ["OnProgress"],
        },
    )
