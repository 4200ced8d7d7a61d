"""The source of a pipeline that reads streams or a queue, as Spark knows it.

Spark starts a process for each thing it asks a source about; what routes is imported where something is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from headgate.spark.pipeline.queue_reader import RoutingQueueReader
    from headgate.spark.pipeline.reader import RoutingReader

FORMAT: Final = "headgate_pipeline"
PLAN: Final = "plan"  # the option that names the file with the routing plan
# A descriptor of a staged file, as the sink reads it, or the account of a task: counters, and no file.
EMITTED: Final = (
    "destination int, file string, rows bigint, nbytes bigint, crc bigint, counters string"
)


class PipelineSource(DataSource):
    """`format("headgate_pipeline")`: the options of `format("headgate")`, and the file of a routing plan."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return EMITTED

    def streamReader(self, schema: StructType) -> RoutingReader | RoutingQueueReader:
        from headgate.spark.options import names_queue, source_options

        options = dict(self.options)
        plan_file = options.pop(PLAN)
        if names_queue(options):
            from headgate.spark.pipeline.queue_reader import RoutingQueueReader
            from headgate.spark.source.queue_options import followed

            return RoutingQueueReader(followed(options), plan_file)
        from headgate.spark.pipeline.reader import RoutingReader

        return RoutingReader(source_options(options), plan_file)
