"""`format("headgate")`: streams and queues as a source and a sink of Spark, in batches and as they come."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from functools import wraps
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from headgate.errors import HeadgateError, SparkOptionsError
from headgate.spark.options import (
    QUEUE_OPTIONS,
    SINK_OPTIONS,
    SOURCE_OPTIONS,
    check_known,
    names_queue,
    refuse_table,
    source_options,
    stream_paths,
    wants_text,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


NO_STREAM: Final = (
    "a queue is not read as a stream: its consumers take messages away before a query comes to them; follow what they "
    "acked with option states = archived, read what it holds in batches with spark.read, or publish to a stream and read "
    "that with readStream"
)

P = ParamSpec("P")
R = TypeVar("R")


def plainly(method: Callable[P, R]) -> Callable[P, R]:
    """What is refused is said without the way to it: Spark prints every line of a traceback to the user."""

    @wraps(method)
    def refusing(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return method(*arguments, **named)
        except HeadgateError as problem:
            raise problem.with_traceback(None) from None

    return refusing


class HeadgateSource(DataSource):
    """Streams and queues, read with a filter and written exactly once.

        spark.read.format("headgate").schema("offset long, region string, amount long")
             .option("filter", "region = 'EU' AND amount > 1000").load("data/events")

    Options of a read: `path` (what load() is given) or `paths` (a JSON list, or separated by commas; a super stream
    counts as its partitions), `filter`, `headers` (values or text: the default schema's), `from` or `startingOffset`
    (first, last, next, an offset, a moment, 1h: a batch's beginning, a new query's too), `endingOffset` (batches end
    before it), `partitions` (at most so many tasks), `cores` (how many run at once), `maxMessagesPerTrigger`,
    `maxBytesPerTrigger`, `cursor` (the name under which a query's progress is shown; empty for none), `failOnDataLoss`
    (true).

        spark.read.format("headgate").option("filter", "region = 'EU'").load("queue:postgresql://host/db#orders")

    Options of a queue, in which nothing is claimed: `path`, `queue` (its name, where the path ends without one), `filter`,
    `headers`, `partitions`, `cores`, `states` (ready; some of ready, delayed, leased, dead, or all, or archived). It is read
    in batches; its archive, states = archived, also as it grows, with `maxMessagesPerTrigger`.

        frame.write.format("headgate").mode("append").save("data/orders")

    Options of a write: `path` (what save() or start() is given) or `to` (stream:…, queue:…, parquet:…), `queue` (its name,
    where the place ends without one), `checkpointLocation` of a streaming query, `txnAppId` and `txnVersion` of a batch that
    may be written again.
    """

    @plainly
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        refuse_table(options)
        check_known(options, dict.fromkeys((*SOURCE_OPTIONS, *QUEUE_OPTIONS, *SINK_OPTIONS)))

    @classmethod
    def name(cls) -> str:
        return "headgate"

    @plainly
    def schema(self) -> str:
        """The lossless default: what is read with it and written again is the same."""
        from headgate.spark.schema import LOSSLESS, TEXTUAL

        if not names_queue(self.options):
            stream_paths(self.options)
        return TEXTUAL if wants_text(self.options) else LOSSLESS

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        if names_queue(self.options):
            from headgate.spark.source.queue_batch import QueueReader
            from headgate.spark.source.queue_options import queue_read

            return QueueReader(schema, queue_read(self.options))
        from headgate.spark.source.stream_batch import HeadgateReader

        return HeadgateReader(schema, source_options(self.options))

    @plainly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if names_queue(self.options):
            from headgate.spark.source.queue_micro import QueueStreamReader
            from headgate.spark.source.queue_options import followed

            asked = followed(self.options)
            if asked.states:
                raise SparkOptionsError(NO_STREAM)
            return QueueStreamReader(schema, asked)
        from headgate.spark.source.stream_micro import HeadgateStreamReader

        return HeadgateStreamReader(schema, source_options(self.options))

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from headgate.spark.sink.writer import batch_writer

        return batch_writer(schema, self.options, overwrite)

    @plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from headgate.spark.sink.writer import stream_writer

        return stream_writer(schema, self.options, overwrite)
