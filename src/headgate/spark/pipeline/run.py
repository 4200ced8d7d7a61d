"""A pipeline as one Structured Streaming query: descriptors from its source, all its places in one sink."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headgate.errors import SparkError
from headgate.pipelines import (
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
from headgate.spark.datasource import HeadgateSource
from headgate.spark.pipeline.checks import as_known, check, claim_checkpoint
from headgate.spark.pipeline.lock import (
    CheckpointLock,
    hold,
    is_running,
    java_process,
    let_go,
    let_go_of_ended,
)
from headgate.spark.pipeline.plan import FOLDER, plan_of, save_plan
from headgate.spark.sessions import cores_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# Spark's own choice for files on this machine starts a process for every file it renames.
QUICK_CHECKPOINTS: Final = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    )
}
_OURS: Final = re.compile(r"^headgate\.errors\.\w+: (.+)", re.MULTILINE | re.DOTALL)
_AROUND: Final = re.compile(r"\s*SQLSTATE: \w+|\n=== Streaming Query|\n\s*(?:at |JVM stacktrace)")
_AROUND_OURS: Final = re.compile(_AROUND.pattern + r"|\n\s*(?:Driver stacktrace|Caused by|\n)")
_UNREADABLE: Final = (
    "mend the file or take it away, or let Spark pass over what it cannot read: options = { ignoreCorruptFiles = true } "
    "in [source]"
)


def start(
    pipeline: Pipeline, spark: SparkSession, trigger: Trigger | None = None
) -> StreamingQuery:
    """Check the pipeline and start it; `trigger` instead of the file's own.

    Its checkpoint is this process's until `follow` sees the query's end or `stop` ends it.
    """
    pipeline = replace(pipeline, trigger=trigger or pipeline.trigger)
    check(pipeline)
    descriptor_rows(
        pipeline, spark
    )  # what Spark cannot read is refused before a checkpoint is made
    let_go_of_ended()
    lock = CheckpointLock(pipeline.checkpoint, java_process(spark))
    try:
        query = _start(pipeline, spark)
    except BaseException:
        lock.release()
        raise
    hold(lock, query)
    return query


def _start(pipeline: Pipeline, spark: SparkSession) -> StreamingQuery:
    pipeline = as_known(pipeline)
    rows_of = descriptor_rows(pipeline, spark)
    claim_checkpoint(pipeline)
    rows = rows_of(str(save_plan(plan_of(pipeline), pipeline.checkpoint / FOLDER)))
    spark.dataSource.register(HeadgateSource)
    writer = (
        observed(rows)
        .writeStream.format("headgate")
        .queryName(pipeline.name)
        .option("destinations", json.dumps([{"to": place} for place in pipeline.places()]))
        .option("checkpointLocation", str(pipeline.checkpoint))
        .trigger(**_trigger(pipeline.trigger))
    )
    with _settings(spark, QUICK_CHECKPOINTS):
        return writer.start()


def descriptor_rows(pipeline: Pipeline, spark: SparkSession) -> Callable[[str], DataFrame]:
    """What the source's tasks emit, once the file of their routing plan is written."""
    if isinstance(pipeline.source, FormatSource):
        from headgate.spark.pipeline.foreign import foreign_rows, routed

        return partial(routed, foreign_rows(spark, pipeline, pipeline.source))
    from headgate.spark.pipeline.source import FORMAT, PLAN, PipelineSource

    spark.dataSource.register(PipelineSource)
    options = source_options(pipeline, pipeline.source, cores_of(spark))
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
    given = {
        **own,
        "filter": source.filter,
        "failOnDataLoss": str(source.fail_on_data_loss).lower(),
        "partitions": pipeline.partitions,
        "cores": cores,
    }
    said = {name: str(value) for name, value in given.items() if value is not None}
    return {**said, **limit_options(pipeline)}


def observed(rows: DataFrame) -> DataFrame:
    """The rows, with what their tasks counted in Spark's own report of every batch."""
    from pyspark.sql import functions

    return rows.observe(OBSERVED, functions.collect_list("counters").alias("counters"))


def _trigger(trigger: Trigger) -> dict[str, Any]:
    if trigger == "once":
        return {"availableNow": True}
    every = trigger if isinstance(trigger, timedelta) else timedelta(0)
    return {"processingTime": f"{every // timedelta(milliseconds=1)} milliseconds"}


@contextmanager
def _settings(spark: SparkSession, ours: Mapping[str, str]) -> Iterator[None]:
    """Settings a query keeps from its start on, without leaving them to whoever comes next."""
    before = {key: spark.conf.get(key, None) for key in ours}
    for key, value in ours.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, earlier in before.items():
            spark.conf.unset(key) if earlier is None else spark.conf.set(key, earlier)


# ---- following it ------------------------------------------------------------------------------------


def follow(
    query: StreamingQuery, account: Account, stopping: Callable[[], bool], poll_s: float = 0.25
) -> Iterator[list[Batch]]:
    """What is new, every so often, until the query ends or is to be stopped; raises what ended it."""
    running = True
    while running:
        running = not _ended(query, poll_s) and not stopping()
        yield news(query, account)
    if not is_running(query):
        let_go(query)
    failure = query.exception()
    if failure is not None:
        raise failure_of(failure)


def news(query: StreamingQuery, account: Account) -> list[Batch]:
    """The batches that were committed since the last look."""
    last = _plain(query.lastProgress)
    if last is None:
        return []
    if not account.missed(last):
        return account.add([last])
    return account.add([report for each in query.recentProgress if (report := _plain(each))])


def stop(query: StreamingQuery) -> None:
    """End the query. A batch that is cut off is done again by the next run, and arrives once all the same."""
    if is_running(query):
        query.stop()
    let_go(query)


def _ended(query: StreamingQuery, seconds: float) -> bool:
    from pyspark.errors import StreamingQueryException

    try:
        return bool(query.awaitTermination(seconds))  # type: ignore[arg-type]
    except StreamingQueryException:
        return True


def _plain(report: Any) -> Mapping[str, Any] | None:
    """Spark's report as plain values, whichever kind of object it is."""
    if report is None:
        return None
    found: dict[str, Any] = json.loads(report.json)
    return found


def failure_of(problem: BaseException) -> SparkError:
    """What ended a query, without the Java and the plan that were around it."""
    text = str(problem)
    ours = _OURS.findall(text)
    said = (_AROUND_OURS.split(ours[-1]) if ours else _AROUND.split(text))[0].strip()
    reason = "" if ours else _reason(problem)
    if (reason.partition(": ")[2] or reason) not in said:  # behind the name of its class
        said = f"{said} {reason}"
    hint = f"; {_UNREADABLE}" if "[FAILED_READ_FILE" in said else ""
    return SparkError(f"the pipeline failed: {said}{hint}")


def _reason(problem: BaseException) -> str:
    """The first line of what is behind all other causes of an error of Spark."""
    cause = getattr(problem, "_cause", None)
    return str(problem).partition("\n")[0].strip() if cause is None else _reason(cause)
