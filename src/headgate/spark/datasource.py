"""`format("headgate")`: streams and queues as a source and a sink of Spark, in batches and in streaming queries."""

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
    parse_queue_follow,
    parse_queue_read,
    parse_stream_read,
    payload_format,
    refuse_table,
    shows_headers_as_text,
    stream_paths,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


NO_STREAM: Final = (
    "the messages of a queue cannot be read with readStream: consumers take them before a query can read them; follow "
    "acked messages with option states = archived, read the queue in batches with spark.read, or publish to a stream and "
    "read that with readStream"
)

P = ParamSpec("P")
R = TypeVar("R")


def hide_traceback(method: Callable[P, R]) -> Callable[P, R]:
    """Wrap a method so that it raises errors of Headgate without a traceback, which Spark would show to the user."""

    @wraps(method)
    def call(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return method(*arguments, **named)
        except HeadgateError as problem:
            raise problem.with_traceback(None) from None

    return call


class HeadgateSource(DataSource):
    """Streams and queues, read with a filter and written exactly once.

        spark.read.format("headgate").schema("offset long, region string, amount long")
             .option("filter", "region = 'EU' AND amount > 1000").load("data/events")

    Options of a read: `path` (the argument of load()) or `paths` (a JSON list, or separated by commas; a super stream
    counts as its partitions), `filter`, `headers` (values or text, in the default schema), `from` or `startingOffset`
    (first, last, next, an offset, a moment, 1h: where a batch read or a new query begins), `endingOffset` (before which
    a batch read ends), `partitions` (the largest number of tasks), `cores` (how many of them run at once),
    `maxMessagesPerTrigger`, `maxBytesPerTrigger`, `payload` (json: the column `decoded` has the payload's fields) and
    `payloadSchema` (its fields, in the default schema), `cursor` (the name under which a query's progress is stored;
    empty for none), `failOnDataLoss` (true).

        spark.read.format("headgate").option("filter", "region = 'EU'").load("queue:postgresql://host/db#orders")

    Options of a queue, which is read without claiming: `path`, `queue` (its name, where the path has none), `filter`,
    `headers`, `partitions`, `cores`, `states` (ready; some of ready, delayed, leased, dead, or all, or archived). It is read
    in batches; its archive (states = archived) also by streaming queries, with `maxMessagesPerTrigger`.

        frame.write.format("headgate").mode("append").save("data/orders")

    Options of a write: `path` (the argument of save() or start()) or `to` (stream:…, queue:…, parquet:…), `queue` (its
    name, where the place has none), `checkpointLocation` of a streaming query, `txnAppId` and `txnVersion` of a batch that
    may be written again.
    """

    @hide_traceback
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        refuse_table(options)
        check_known(options, dict.fromkeys((*SOURCE_OPTIONS, *QUEUE_OPTIONS, *SINK_OPTIONS)))

    @classmethod
    def name(cls) -> str:
        return "headgate"

    @hide_traceback
    def schema(self) -> str:
        """Return the default schema. Messages read with it and written again are equal, unless headers are read as text."""
        from headgate.spark.schema import DECODED, LOSSLESS, TEXTUAL

        if not names_queue(self.options):
            stream_paths(self.options)
        known = TEXTUAL if shows_headers_as_text(self.options) else LOSSLESS
        if not payload_format(
            options := {key.lower(): value for key, value in self.options.items()}
        ):
            return known
        fields = options.get("payloadschema")
        return f"{known}, {DECODED} struct<{fields}>" if fields else known

    @hide_traceback
    def reader(self, schema: StructType) -> DataSourceReader:
        if names_queue(self.options):
            from headgate.spark.source.queue_batch import QueueBatchReader

            return QueueBatchReader(schema, parse_queue_read(self.options))
        from headgate.spark.source.stream_batch import StreamBatchReader

        return StreamBatchReader(schema, parse_stream_read(self.options))

    @hide_traceback
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if names_queue(self.options):
            from headgate.spark.source.queue_micro import QueueMicroReader

            read = parse_queue_follow(self.options)
            if read.states:
                raise SparkOptionsError(NO_STREAM)
            return QueueMicroReader(schema, read)
        from headgate.spark.source.stream_micro import StreamMicroReader

        return StreamMicroReader(schema, parse_stream_read(self.options))

    @hide_traceback
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from headgate.spark.sink.writer import batch_writer

        return batch_writer(schema, self.options, overwrite)

    @hide_traceback
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from headgate.spark.sink.writer import stream_writer

        return stream_writer(schema, self.options, overwrite)
