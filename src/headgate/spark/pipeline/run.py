"""Run a pipeline as one Structured Streaming query: descriptors from its source, all its places in one sink."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import FilterLimitError, SparkError
from headgate.filters import TRUE, And, join_terms, parse, to_text
from headgate.pipelines import (
    FOLDER,
    OBSERVED,
    Account,
    Batch,
    FormatSource,
    Pipeline,
    QueueSource,
    StreamSource,
    Trigger,
    limit_options,
)
from headgate.routing import demand_of
from headgate.spark.datasource import HeadgateSource
from headgate.spark.pipeline.checks import (
    check,
    claim_checkpoint,
    delete_unfinished_offsets,
    use_recorded_path,
)
from headgate.spark.pipeline.foreach import batch_store, require_formats, spark_places
from headgate.spark.pipeline.frames import applies_filter, message_rows, passes_through_spark
from headgate.spark.pipeline.lock import (
    CheckpointLock,
    hold_lock,
    is_running,
    java_process,
    release_ended,
    release_lock,
)
from headgate.spark.pipeline.router import plan_of, save_plan
from headgate.spark.sessions import cores_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

# Spark's default for local files starts a process for every file that it renames.
CHECKPOINT_SETTINGS: Final = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    )
}
_OURS: Final = re.compile(r"^headgate\.errors\.\w+: (.+)", re.MULTILINE | re.DOTALL)
_AROUND: Final = re.compile(r"\s*SQLSTATE: \w+|\n=== Streaming Query|\n\s*(?:at |JVM stacktrace)")
_AROUND_OURS: Final = re.compile(_AROUND.pattern + r"|\n\s*(?:Driver stacktrace|Caused by|\n)")
_UNREADABLE: Final = "repair or remove the file, or let Spark skip files it cannot read: options = { ignoreCorruptFiles = true } in [source]"


def start(
    pipeline: Pipeline, spark: SparkSession, trigger: Trigger | None = None
) -> StreamingQuery:
    """Check the pipeline and start it; `trigger` overrides that of the file.

    This process holds the lock of the checkpoint until `follow` sees the end of the query, or `stop` ends it.
    """
    pipeline = replace(pipeline, trigger=trigger or pipeline.trigger)
    check(pipeline)
    # Both raise before a checkpoint is created when Spark cannot read the source or write a format.
    descriptor_rows(pipeline, spark)
    require_formats(pipeline, spark)
    release_ended()
    lock = CheckpointLock(pipeline.checkpoint, java_process(spark))
    try:
        query = _start(pipeline, spark)
    except BaseException:
        lock.release()
        raise
    hold_lock(lock, query)
    return query


def _start(pipeline: Pipeline, spark: SparkSession) -> StreamingQuery:
    pipeline = use_recorded_path(pipeline)
    rows_of = descriptor_rows(pipeline, spark)
    claim_checkpoint(pipeline)
    delete_unfinished_offsets(pipeline)
    rows = rows_of(str(save_plan(plan_of(pipeline), pipeline.checkpoint / FOLDER)))
    spark.dataSource.register(HeadgateSource)
    writer = (
        _sink(observe_counters(rows).writeStream, pipeline)
        .queryName(pipeline.name)
        .option("checkpointLocation", str(pipeline.checkpoint))
        .trigger(**_trigger(pipeline.trigger))
    )
    with _settings(spark, CHECKPOINT_SETTINGS):
        return writer.start()


def _sink(writer: DataStreamWriter, pipeline: Pipeline) -> DataStreamWriter:
    """The sink for all places; Python calls Spark for each batch only where Spark itself writes to one."""
    if spark_places(pipeline):
        return writer.foreachBatch(batch_store(pipeline))
    entries = json.dumps(destination_entries(pipeline))
    return writer.format("headgate").option("destinations", entries)


def destination_entries(pipeline: Pipeline) -> list[dict[str, str]]:
    """The places of a pipeline, as the sink's option describes them."""
    layouts = [(place, pipeline.layout_of(place)) for place in pipeline.places()]
    return [{"to": place, **(layout.as_options() if layout else {})} for place, layout in layouts]


def descriptor_rows(pipeline: Pipeline, spark: SparkSession) -> Callable[[str], DataFrame]:
    """A function that gives the source's descriptors for the file of a routing plan."""
    source = pipeline.source
    if passes_through_spark(pipeline):
        from headgate.spark.pipeline.formats import route_rows

        own = (
            {}
            if isinstance(source, FormatSource)
            else source_options(pipeline, source, cores_of(spark))
        )
        return partial(route_rows, message_rows(spark, pipeline, own))
    from headgate.spark.pipeline.source import FORMAT, PLAN, PipelineSource

    assert not isinstance(source, FormatSource)
    spark.dataSource.register(PipelineSource)
    options = source_options(pipeline, source, cores_of(spark))
    reader = spark.readStream.format(FORMAT).options(**options)
    return lambda plan_file: reader.option(PLAN, plan_file).load()


def source_options(
    pipeline: Pipeline, source: StreamSource | QueueSource, cores: int | None
) -> dict[str, str]:
    """The options of the source that reads streams or a queue."""
    if isinstance(source, StreamSource):
        own = {
            "paths": json.dumps(source.streams),
            "startingOffset": source.start,
            "cursor": f"pipeline-{pipeline.name}",
        }
    else:
        own = {"path": source.queue, "states": source.states}
    options = {
        **own,
        "filter": wanted_filter(pipeline, source),
        "failOnDataLoss": str(source.fail_on_data_loss).lower(),
        "partitions": pipeline.partitions,
        "cores": cores,
    }
    texts = {name: str(value) for name, value in options.items() if value is not None}
    return {**texts, **limit_options(pipeline)}


def wanted_filter(pipeline: Pipeline, source: StreamSource | QueueSource) -> str | None:
    """The filter of the scan: that of the source and, without a dead letter, also what the bindings select.

    A dead letter gets every message that no binding selects; with `to = "none:"` these are only counted.
    """
    # Bindings, and perhaps the filter, read columns that are made after the scan.
    if pipeline.reading:
        return None if applies_filter(pipeline) else source.filter
    if pipeline.dead_letter is not None:
        return source.filter
    demand = demand_of(pipeline.topology, pipeline.exchange)
    if demand == TRUE:
        return source.filter
    own = [] if source.filter is None else [parse(source.filter)]
    wanted = to_text(join_terms(And, [*own, demand]))
    try:
        parse(wanted)
    except FilterLimitError:  # of hundreds of bindings: the router drops what none of them selects
        return source.filter
    return wanted


def observe_counters(rows: DataFrame) -> DataFrame:
    """Observe the rows, so that Spark's report of every batch contains the counters of its tasks."""
    from pyspark.sql import functions

    return rows.observe(OBSERVED, functions.collect_list("counters").alias("counters"))


def _trigger(trigger: Trigger) -> dict[str, Any]:
    if trigger == "once":
        return {"availableNow": True}
    every = trigger if isinstance(trigger, timedelta) else timedelta(0)
    return {"processingTime": f"{every // timedelta(milliseconds=1)} milliseconds"}


@contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Apply settings while a query starts, which keeps them, and restore the session's own."""
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, earlier in before.items():
            spark.conf.unset(key) if earlier is None else spark.conf.set(key, earlier)


# ---- following ---------------------------------------------------------------------------------------


def follow(
    query: StreamingQuery, account: Account, stopping: Callable[[], bool], poll_s: float = 0.25
) -> Iterator[list[Batch]]:
    """Yield new batches at every poll until the query ends or `stopping` is true; raises the query's error."""
    running = True
    while running:
        running = not _wait_for_end(query, poll_s) and not stopping()
        yield new_batches(query, account)
    if not is_running(query):
        release_lock(query)
    failure = query.exception()
    if failure is not None:
        raise failure_of(failure) from failure


def new_batches(query: StreamingQuery, account: Account) -> list[Batch]:
    """The batches that were committed since the last call."""
    last = _parse_report(query.lastProgress)
    if last is None:
        return []
    if not account.misses_batches_before(last):
        return account.add([last])
    return account.add([report for each in query.recentProgress if (report := _parse_report(each))])


def stop(query: StreamingQuery) -> None:
    """End the query. An interrupted batch is run again by the next run, and is still stored once."""
    if is_running(query):
        query.stop()
    release_lock(query)


def _wait_for_end(query: StreamingQuery, seconds: float) -> bool:
    """Wait until the query has ended, or this long; return whether it has."""
    from pyspark.errors import StreamingQueryException

    try:
        return bool(query.awaitTermination(seconds))  # type: ignore[arg-type]
    except StreamingQueryException:
        return True


def _parse_report(report: Any) -> Mapping[str, Any] | None:
    """Spark's report as plain values, whatever its class."""
    if report is None:
        return None
    values: dict[str, Any] = json.loads(report.json)
    return values


def failure_of(problem: BaseException) -> SparkError:
    """The error that ended a query, without the Java trace and the query plan around it."""
    text = str(problem)
    ours = _OURS.findall(text)
    message = (_AROUND_OURS.split(ours[-1]) if ours else _AROUND.split(text))[0].strip()
    cause = "" if ours else _root_cause(problem)
    if (cause.partition(": ")[2] or cause) not in message:  # after the name of its class
        message = f"{message} {cause}"
    hint = f"; {_UNREADABLE}" if "[FAILED_READ_FILE" in message else ""
    return SparkError(f"the pipeline failed: {message}{hint}")


def _root_cause(problem: BaseException) -> str:
    """The first line of the last cause in the chain of an error of Spark."""
    cause = getattr(problem, "_cause", None)
    return str(problem).partition("\n")[0].strip() if cause is None else _root_cause(cause)
