"""The writers behind `write` and `writeStream` of format("headgate"): executors stage, the driver commits each batch once.

A sink has one or more destinations. Its rows are messages for one destination, which the sink stages itself; or
*descriptors* of files that were staged before, one row for each file, for the destinations that the option "destinations"
lists: `[{"to": "stream:data/eu", "queue": "eu"}, …]`, the first of them number 0. The sink ignores rows of descriptors
whose file is null (they carry counters), and columns that DESCRIPTOR_SCHEMA does not have.

Each destination is committed on its own. When a commit is interrupted, Spark runs the batch again, and destinations that
have it already ignore it.
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
from pyarrow import fs
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from headgate.errors import SparkError, SparkOptionsError, SparkSchemaError
from headgate.message import CONTROL, INT64_MAX
from headgate.pipelines import (
    TableLayout,
    local_path,
    parse_layout,
    place_kind,
    split_partitions,
)
from headgate.spark.options import DIGITS, positive_number
from headgate.spark.schema import SchemaColumn, writing_columns
from headgate.spark.sink.composition import to_stream_columns
from headgate.spark.sink.destination import (
    BatchMark,
    Destination,
    Owner,
    destination_of,
    new_owner,
    owner_of,
)
from headgate.spark.sink.staging import StagedPart, stage, valid_columns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

DESCRIPTOR_SCHEMA: Final = "destination int, file string, rows long, nbytes long, crc long"
DESCRIPTOR_NAMES: Final = ("destination", "file", "rows", "nbytes", "crc")
TRANSACTION: Final = ("txnAppId", "txnVersion")
LONGEST_NAME: Final = 128  # encoded as in a URL: it becomes part of file names
COMMIT_THREADS: Final = 8
_METADATA: Final = "metadata"


def batch_writer(
    schema: StructType, options: Mapping[str, str], overwrite: bool
) -> DataSourceArrowWriter:
    """The writer for `df.write`; every write is a query of its own, unless its options name a query and a batch."""
    _refuse_overwrite(overwrite)
    mark = mark_of(options)
    return BatchWriter(open_sink(schema, options, new_owner()), mark)


def mark_of(options: Mapping[str, str]) -> BatchMark:
    """The batch that `txnAppId` and `txnVersion` name, or a new one."""
    application, version = (_option(options, name) for name in TRANSACTION)
    if not application and not version:
        return BatchMark(uuid4().hex, 0)
    if not application or not version:
        raise SparkOptionsError(
            "txnAppId and txnVersion must be set together: a name that never changes, and the number of the batch"
        )
    if CONTROL.search(application) or len(quote(application, safe="")) > LONGEST_NAME:
        raise SparkOptionsError(
            f"txnAppId: give a name of at most {LONGEST_NAME} letters, without control characters, not {application[:40]!r}"
        )
    if not (DIGITS.fullmatch(version) and int(version) <= INT64_MAX):
        raise SparkOptionsError(
            f"txnVersion: give a whole number that only grows, not {version[:40]!r}"
        )
    return BatchMark(application, int(version))


def stream_writer(
    schema: StructType, options: Mapping[str, str], overwrite: bool
) -> DataSourceStreamArrowWriter:
    """The writer for `df.writeStream`; Spark makes a new one for every commit."""
    _refuse_overwrite(overwrite)
    if any(_option(options, name) for name in TRANSACTION):
        raise SparkOptionsError(
            "txnAppId and txnVersion are for df.write, in foreachBatch for example; a streaming query knows its batches "
            "by its checkpoint: leave them out"
        )
    checkpoint = _option(options, "checkpointLocation")
    if not checkpoint:
        raise SparkOptionsError(
            "a streaming query that writes to Headgate needs a checkpoint to tell a repeated batch from a new one: add "
            '.option("checkpointLocation", "…") to writeStream (the setting of the session is not visible here)'
        )
    return MicroBatchWriter(open_sink(schema, options, owner_of(checkpoint)), checkpoint)


def _refuse_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise SparkOptionsError(
            "messages can only be appended; use mode 'append' (outputMode 'append' for streams). To start over, "
            "delete the stream first: headgate stream delete PATH"
        )


# ---- the sink ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MessageSink:
    """One or more destinations. `columns` describes the rows of messages; None when rows are descriptors."""

    destinations: tuple[Destination, ...]
    columns: tuple[SchemaColumn, ...] | None

    def open(self) -> None:
        """Open all destinations."""
        for destination in dict.fromkeys(self.destinations):
            destination.open()

    def stage(self, batches: Iterable[pa.RecordBatch]) -> tuple[StagedPart, ...]:
        """On an executor: stage rows of messages, or read descriptors of staged files, and prepare each file for its place."""
        if self.columns is None:
            staged: Iterable[StagedPart] = read_descriptors(batches)
        else:
            staged = self._stage_messages(batches, self.columns)
        return tuple(
            part for each in staged for part in self.destinations[each.destination].prepare(each)
        )

    def _stage_messages(
        self, batches: Iterable[pa.RecordBatch], columns: Sequence[SchemaColumn]
    ) -> Iterator[StagedPart]:
        valid = (
            valid_columns(to_stream_columns(batch, columns)) for batch in batches if batch.num_rows
        )
        staged = stage(self.destinations[0].staging, valid)
        if staged is not None:
            yield staged

    def commit(self, mark: BatchMark, staged: Sequence[StagedPart]) -> None:
        """Commit the files of each destination; then delete other files that were staged there."""
        parts = self._by_destination(staged)
        _run_all([partial(place.commit, mark, files) for place, files in parts.items()])
        for destination in dict.fromkeys(self.destinations):
            destination.collect_orphans()

    def abort(self, staged: Sequence[StagedPart]) -> None:
        """Delete files of a batch that failed."""
        for destination, files in self._by_destination(staged).items():
            destination.discard(files)

    def leave(self) -> None:
        """Delete the folders for staged files, after the last batch."""
        for destination in dict.fromkeys(self.destinations):
            destination.leave()

    def _by_destination(self, staged: Sequence[StagedPart]) -> dict[Destination, list[StagedPart]]:
        """The files of each place, in order; equal destinations share one commit, since a place takes a batch once."""
        files: dict[Destination, list[StagedPart]] = {}
        for each in staged:
            files.setdefault(self.destinations[each.destination], []).append(each)
        return files


def _run_all(tasks: Sequence[Callable[[], None]]) -> None:
    """Run all tasks, even when some fail. In parallel, since a disk syncs many files in the time of a few."""
    with ThreadPoolExecutor(max(1, min(len(tasks), COMMIT_THREADS))) as pool:
        futures = [pool.submit(task) for task in tasks]
    for future in futures:
        future.result()


def open_sink(schema: StructType, options: Mapping[str, str], owner: Owner) -> MessageSink:
    """Open the sink that the options describe."""
    destinations = _option(options, "destinations")
    if destinations:
        _check_descriptors(schema)
        sink = MessageSink(
            tuple(
                destination_of(entry["to"], entry.get("queue", ""), owner, layout_of(entry))
                for entry in _parse_destinations(destinations)
            ),
            None,
        )
    else:
        place = destination_of(
            _place(options), _option(options, "queue"), owner, layout_of(options)
        )
        sink = MessageSink((place,), writing_columns(schema))
    sink.open()
    return sink


def _place(options: Mapping[str, str]) -> str:
    to, path = _option(options, "to"), _option(options, "path")
    if bool(to) == bool(path):
        raise SparkOptionsError(
            'give one place to write to: .save("data/orders") or .option("to", "queue:sqlite:///orders.db#orders")'
        )
    return to or (path if place_kind(path) else f"stream:{path}")


def layout_of(options: Mapping[str, str]) -> TableLayout | None:
    """The layout of a folder of Parquet files that the options describe; None when they describe none."""
    schema, folders = _option(options, "schema"), _option(options, "partitionBy")
    known = {key.lower(): value for key, value in options.items()}
    after = positive_number(known, "compactAfter")
    if not schema and not folders and after is None:
        return None
    return parse_layout(schema or None, split_partitions(folders), after)


def _parse_destinations(text: str) -> list[dict[str, str]]:
    try:
        entries = [dict(entry) for entry in json.loads(text)]
        if not all(isinstance(entry["to"], str) for entry in entries):
            raise TypeError("to is text")
        return entries
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        raise SparkOptionsError(
            f'option "destinations" must be a JSON list of objects with "to" and "queue": {problem!r}'
        ) from problem


def _option(options: Mapping[str, str], name: str) -> str:
    """The value of an option, whose name may be in any case; empty when it is not set."""
    return next((value for key, value in options.items() if key.lower() == name.lower()), "")


# ---- descriptors -------------------------------------------------------------------------------------


def _check_descriptors(schema: StructType) -> None:
    for name in DESCRIPTOR_NAMES:
        if name not in schema.names:
            raise SparkSchemaError(name, f"is missing; descriptors are {DESCRIPTOR_SCHEMA}")


def read_descriptors(batches: Iterable[pa.RecordBatch]) -> Iterator[StagedPart]:
    """The staged files that rows of descriptors describe."""
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in DESCRIPTOR_NAMES]
        for row in zip(*columns, strict=True):
            if row[1] is not None:
                yield StagedPart(*row)


# ---- Spark's writers ---------------------------------------------------------------------------------


@dataclass
class StagedMessage(WriterCommitMessage):
    """The files that a task has staged."""

    staged: tuple[StagedPart, ...]


def _all_staged(messages: Sequence[WriterCommitMessage | None]) -> list[StagedPart]:
    """The files of all tasks, in their order; a task that failed sent no message."""
    return [
        each
        for message in messages
        if isinstance(message, StagedMessage)
        for each in message.staged
    ]


class BatchWriter(DataSourceArrowWriter):
    """Spark's writer of one batch."""

    def __init__(self, sink: MessageSink, mark: BatchMark) -> None:
        self.sink, self.mark = sink, mark

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        return StagedMessage(self.sink.stage(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.sink.commit(self.mark, _all_staged(messages))
        self.sink.leave()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.sink.abort(_all_staged(messages))
        self.sink.leave()


class MicroBatchWriter(DataSourceStreamArrowWriter):
    """Spark's writer of a streaming query."""

    def __init__(self, sink: MessageSink, checkpoint: str) -> None:
        self.sink, self.checkpoint = sink, checkpoint

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        return StagedMessage(self.sink.stage(iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        mark = BatchMark(query_id(self.checkpoint), batchId)
        self.sink.commit(mark, _all_staged(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.sink.abort(_all_staged(messages))


def query_id(checkpoint: str) -> str:
    """The id that Spark gave the query when it first ran with that checkpoint; a new checkpoint is a new query."""
    try:
        return str(json.loads(_read_metadata(checkpoint))["id"])
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as problem:
        raise SparkError(
            f"the id of the query cannot be read from {checkpoint}/{_METADATA}: {problem}; "
            "the sink needs it to tell a repeated batch from a new one"
        ) from problem


def _read_metadata(checkpoint: str) -> bytes:
    local = local_path(checkpoint)
    if local is not None:
        return (local / _METADATA).read_bytes()
    files, path = fs.FileSystem.from_uri(checkpoint)
    with files.open_input_stream(f"{path.rstrip('/')}/{_METADATA}") as stream:
        return bytes(stream.read())
