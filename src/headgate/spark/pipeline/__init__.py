"""Pipelines: a source, an exchange with its bindings, and sinks, defined in one TOML file and run on Spark."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.spark.pipeline.checks import check as check
    from headgate.spark.pipeline.checks import notes_on as notes_on
    from headgate.spark.pipeline.lock import refuse_locked as refuse_locked
    from headgate.spark.pipeline.metrics import serve_metrics as serve_metrics
    from headgate.spark.pipeline.metrics import write_metrics as write_metrics
    from headgate.spark.pipeline.run import follow as follow
    from headgate.spark.pipeline.run import start as start
    from headgate.spark.pipeline.run import stop as stop
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "checks": ["check", "notes_on"],
            "lock": ["refuse_locked"],
            "metrics": ["serve_metrics", "write_metrics"],
            "run": ["follow", "start", "stop"],
        },
    )
