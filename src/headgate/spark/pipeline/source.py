"""`format("headgate_pipeline")`: the streams or the queue of a pipeline as Spark's source.

Spark starts a process for every call to a source, so the readers and the router are imported late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from headgate.spark.pipeline.queue_reader import RoutingQueueReader
    from headgate.spark.pipeline.stream_reader import RoutingStreamReader

FORMAT: Final = "headgate_pipeline"
PLAN: Final = "plan"  # the option that names the file with the routing plan
# A descriptor of a staged file, as the sink reads it, or the counters of a task without a file.
DESCRIPTORS: Final = (
    "destination int, file string, rows bigint, nbytes bigint, crc bigint, counters string"
)


class PipelineSource(DataSource):
    """The source of a pipeline. Its options are those of `format("headgate")`, and the file of a routing plan."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return DESCRIPTORS

    def streamReader(self, schema: StructType) -> RoutingStreamReader | RoutingQueueReader:
        from headgate.spark.options import names_queue, parse_queue_follow, parse_stream_read

        options = dict(self.options)
        plan_file = options.pop(PLAN)
        if names_queue(options):
            from headgate.spark.pipeline.queue_reader import RoutingQueueReader

            return RoutingQueueReader(parse_queue_follow(options), plan_file)
        from headgate.spark.pipeline.stream_reader import RoutingStreamReader

        return RoutingStreamReader(parse_stream_read(options), plan_file)
