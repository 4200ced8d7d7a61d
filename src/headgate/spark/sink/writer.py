"""What `write` and `writeStream` with format("headgate") do: stage on executors, commit on the driver, each batch once.

A sink has one or more destinations. Rows come as messages for one destination, and the sink stages them itself; or as
*descriptors* of files that were staged before, one row a file, for as many destinations as the option "destinations"
lists: `[{"to": "stream:data/eu", "queue": "eu"}, …]`, the first of them number 0. A row of descriptors whose file is
null is for somebody else to read (counters), and so are columns that DESCRIPTOR_SCHEMA does not have.

The parts of a sink are committed each by itself. When that is interrupted Spark runs the batch again, and those that
have it drop it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from headgate.errors import SparkOptionsError, SparkSchemaError
from headgate.message import CONTROL, INT64_MAX
from headgate.spark.options import DIGITS
from headgate.spark.schema import Column, writing_columns
from headgate.spark.sink.checkpoint import Owner, fresh_owner, owner_of, query_id
from headgate.spark.sink.compose import to_stream_columns
from headgate.spark.sink.destination import BatchMark, Destination
from headgate.spark.sink.destinations import KINDS, parse
from headgate.spark.sink.staging import Staged, stage, valid_columns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

DESCRIPTOR_SCHEMA: Final = "destination int, file string, rows long, nbytes long, crc long"
DESCRIPTOR_NAMES: Final = ("destination", "file", "rows", "nbytes", "crc")
TRANSACTION: Final = ("txnAppId", "txnVersion")
LONGEST_NAME: Final = 128  # as a URL writes it: it becomes part of the names of files
COMMITTERS: Final = 8
_PLACES: Final = tuple(f"{kind}:" for kind in KINDS)


def batch_writer(
    schema: StructType, options: Mapping[str, str], overwrite: bool
) -> DataSourceArrowWriter:
    """For `df.write`; every write is a query of its own, unless it says which batch of which it is."""
    _refuse_overwrite(overwrite)
    mark = mark_of(options)
    return BatchWriter(sink_of(schema, options, fresh_owner()), mark)


def mark_of(options: Mapping[str, str]) -> BatchMark:
    """The batch that `txnAppId` and `txnVersion` name, or one that never comes again."""
    application, version = (_option(options, name) for name in TRANSACTION)
    if not application and not version:
        return BatchMark(uuid4().hex, 0)
    if not application or not version:
        raise SparkOptionsError(
            "txnAppId and txnVersion go together: a name that stays the same, and the number of the batch"
        )
    if CONTROL.search(application) or len(quote(application, safe="")) > LONGEST_NAME:
        raise SparkOptionsError(
            f"txnAppId: a name of at most {LONGEST_NAME} letters, without control characters, not {application[:40]!r}"
        )
    if not (DIGITS.fullmatch(version) and int(version) <= INT64_MAX):
        raise SparkOptionsError(f"txnVersion: a whole number that only grows, not {version[:40]!r}")
    return BatchMark(application, int(version))


def stream_writer(
    schema: StructType, options: Mapping[str, str], overwrite: bool
) -> DataSourceStreamArrowWriter:
    """For `df.writeStream`; made anew for every commit, so it does no more than it must."""
    _refuse_overwrite(overwrite)
    if any(_option(options, name) for name in TRANSACTION):
        raise SparkOptionsError(
            "txnAppId and txnVersion are for df.write, in foreachBatch for example; a streaming query knows its batches "
            "by its checkpoint: leave them out"
        )
    checkpoint = _option(options, "checkpointLocation")
    if not checkpoint:
        raise SparkOptionsError(
            "a streaming query that writes to Headgate needs a checkpoint to tell a batch that comes again from a new "
            'one: add .option("checkpointLocation", "…") to writeStream (the session\'s own setting does not reach here)'
        )
    return StreamWriter(sink_of(schema, options, owner_of(checkpoint)), checkpoint)


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise SparkOptionsError(
            "messages are only ever added; use mode 'append' (outputMode 'append' for streams). To begin anew, "
            "delete the stream first: headgate stream delete PATH"
        )


# ---- the sink ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sink:
    """Where rows go. `columns` says what they are; None for descriptors."""

    destinations: tuple[Destination, ...]
    columns: tuple[Column, ...] | None

    def open(self) -> None:
        """Make sure that all of it can be written to."""
        for destination in dict.fromkeys(self.destinations):
            destination.open()

    def take(self, batches: Iterable[pa.RecordBatch]) -> tuple[Staged, ...]:
        """On an executor: the files that hold these rows."""
        if self.columns is None:
            staged: Iterable[Staged] = described(batches)
        else:
            staged = self._stage(batches, self.columns)
        return tuple(self.destinations[each.destination].prepare(each) for each in staged)

    def _stage(
        self, batches: Iterable[pa.RecordBatch], columns: Sequence[Column]
    ) -> Iterator[Staged]:
        valid = (
            valid_columns(to_stream_columns(batch, columns)) for batch in batches if batch.num_rows
        )
        found = stage(self.destinations[0].staging, valid)
        if found is not None:
            yield found

    def commit(self, mark: BatchMark, staged: Sequence[Staged]) -> None:
        """Every destination gets its files; then whatever else was staged here can go."""
        parts = self._by_destination(staged)
        _all_at_once([partial(place.commit, mark, files) for place, files in parts.items()])
        for destination in dict.fromkeys(self.destinations):
            destination.collect_orphans()

    def abort(self, staged: Sequence[Staged]) -> None:
        """Delete files of a batch that failed."""
        for destination, files in self._by_destination(staged).items():
            destination.discard(files)

    def leave(self) -> None:
        """Nothing more will be staged."""
        for destination in dict.fromkeys(self.destinations):
            destination.leave()

    def _by_destination(self, staged: Sequence[Staged]) -> dict[Destination, list[Staged]]:
        """The files for each place, in order; two destinations that are the same place get theirs in one go, for a
        place takes a batch once."""
        found: dict[Destination, list[Staged]] = {}
        for each in staged:
            found.setdefault(self.destinations[each.destination], []).append(each)
        return found


def _all_at_once(tasks: Sequence[Callable[[], None]]) -> None:
    """Run them all, whatever becomes of the others; the disk makes many durable in the time of a few."""
    with ThreadPoolExecutor(max(1, min(len(tasks), COMMITTERS))) as pool:
        running = [pool.submit(task) for task in tasks]
    for one in running:
        one.result()


def sink_of(schema: StructType, options: Mapping[str, str], owner: Owner) -> Sink:
    """The sink these options ask for, open."""
    listed = _option(options, "destinations")
    if listed:
        _check_descriptors(schema)
        sink = Sink(tuple(parse(*entry, owner) for entry in _entries(listed)), None)
    else:
        to = _place(options)
        sink = Sink((parse(to, _option(options, "queue"), owner),), writing_columns(schema))
    sink.open()
    return sink


def _place(options: Mapping[str, str]) -> str:
    to, path = _option(options, "to"), _option(options, "path")
    if bool(to) == bool(path):
        raise SparkOptionsError(
            'say where to write, once: .save("data/orders") or .option("to", "queue:sqlite:///orders.db#orders")'
        )
    return to or (path if path.startswith(_PLACES) else f"stream:{path}")


def _entries(text: str) -> list[tuple[str, str]]:
    try:
        return [(entry["to"], entry.get("queue", "")) for entry in json.loads(text)]
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        raise SparkOptionsError(
            f'option "destinations" must be a JSON list of objects with "to" and "queue": {problem!r}'
        ) from problem


def _option(options: Mapping[str, str], name: str) -> str:
    """Spark's options do not care for case."""
    return next((value for key, value in options.items() if key.lower() == name.lower()), "")


# ---- descriptors -------------------------------------------------------------------------------------


def _check_descriptors(schema: StructType) -> None:
    for name in DESCRIPTOR_NAMES:
        if name not in schema.names:
            raise SparkSchemaError(name, f"is missing; descriptors are {DESCRIPTOR_SCHEMA}")


def described(batches: Iterable[pa.RecordBatch]) -> Iterator[Staged]:
    """The files that rows of descriptors name."""
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in DESCRIPTOR_NAMES]
        for row in zip(*columns, strict=True):
            if row[1] is not None:
                yield Staged(*row)


# ---- Spark's writers ---------------------------------------------------------------------------------


@dataclass
class Taken(WriterCommitMessage):
    """What a task has staged."""

    staged: tuple[Staged, ...]


def _all_staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    """What the tasks have staged, in their order; a task that failed sent nothing."""
    return [each for message in messages if isinstance(message, Taken) for each in message.staged]


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, sink: Sink, mark: BatchMark) -> None:
        self.sink, self.mark = sink, mark

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Taken:
        return Taken(self.sink.take(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.sink.commit(self.mark, _all_staged(messages))
        self.sink.leave()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.sink.abort(_all_staged(messages))
        self.sink.leave()


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, sink: Sink, checkpoint: str) -> None:
        self.sink, self.checkpoint = sink, checkpoint

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Taken:
        return Taken(self.sink.take(iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        mark = BatchMark(query_id(self.checkpoint), batchId)
        self.sink.commit(mark, _all_staged(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.sink.abort(_all_staged(messages))
