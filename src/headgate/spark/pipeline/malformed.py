"""Records that cannot become messages: dead letters with their own bytes, the end of the run, or counted and dropped.

A record is malformed when Spark cannot parse it as the schema says (json, csv, xml), or when what it says is no valid
message: a header that is NaN, a topic that is too long.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from headgate.columns import typed_name
from headgate.errors import InvalidMessage
from headgate.pipelines import DEAD_LETTER, FAIL, Counters
from headgate.spark.schema import Column
from headgate.spark.sink.compose import to_stream_columns
from headgate.spark.sink.staging import valid_columns

RECORD: Final = "_headgate_record"  # the column with the bytes of a record that could not be parsed
HEADER: Final = "malformed"  # of a dead letter: the reason
_SHOWN: Final = 200  # bytes of a record in an error
_NOT_PARSED: Final = "cannot be parsed as the schema says"


class Sieve:
    """Lets messages through and does with malformed records what `policy` says; `letters` are the dead ones of a task."""

    def __init__(self, columns: Sequence[Column], policy: str, counters: Counters) -> None:
        self.columns, self.policy, self.counters = columns, policy, counters
        self.letters: list[pa.RecordBatch] = []
        self._rejected: list[tuple[bytes, str]] = []  # records and reasons, of the batch at hand

    def messages(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of the source as valid stream columns."""
        for batch in batches:
            self.counters.came_by += batch.num_rows
            parsed = self._parsed(batch)
            if parsed.num_rows:
                yield from self._valid(parsed)
            if self._rejected:
                self.letters.append(_letters(self._rejected))
                self._rejected = []

    def _parsed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        at = batch.schema.get_field_index(RECORD)
        if at < 0:
            return batch
        records, rest = batch.column(at), batch.remove_column(at)
        if records.null_count == len(records):
            return rest
        self._reject(records.drop_null().to_pylist(), _NOT_PARSED)
        return rest.filter(records.is_null())

    def _valid(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The batch, or halves of it until the row that is invalid stands alone."""
        try:
            found = valid_columns(to_stream_columns(batch, self.columns))
        except InvalidMessage as problem:
            if batch.num_rows == 1:
                self._reject([_record_of(batch)], str(problem))
                return
            half = batch.num_rows // 2
            yield from self._valid(batch.slice(0, half))
            yield from self._valid(batch.slice(half))
        else:
            yield found

    def _reject(self, records: list[bytes], reason: str) -> None:
        if self.policy == FAIL:
            raise InvalidMessage(
                "record",
                f"{reason}: {records[0][:_SHOWN]!r}; mend it, or let the pipeline go on without it: "
                'malformed = "dead-letter" or "drop" in [source]',
            )
        self.counters.malformed += len(records)
        if self.policy == DEAD_LETTER:
            self._rejected.extend((record, reason) for record in records)


def _letters(rejected: Sequence[tuple[bytes, str]]) -> pa.RecordBatch:
    records, reasons = zip(*rejected, strict=True)
    payloads = pa.array(records, pa.binary())
    return valid_columns(
        pa.record_batch(
            {"payload": payloads, typed_name("header", "string", HEADER): list(reasons)}
        )
    )


def _record_of(row: pa.RecordBatch) -> bytes:
    """What is kept of a row that Spark has parsed: its payload, or all it says."""
    values = {name: _plain(row.column(name)) for name in row.schema.names}
    payload = values.get("payload")
    if payload is None:
        return json.dumps(values, default=str, ensure_ascii=False).encode("utf-8", "replace")
    return payload if isinstance(payload, bytes) else str(payload).encode("utf-8", "replace")


def _plain(column: pa.Array) -> Any:
    """The one value of a column; Spark also hands over text that is no UTF-8, whose bytes are then written as \\xe9."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        [text] = column.cast(pa.large_binary()).to_pylist()
        return None if text is None else text.decode("utf-8", "backslashreplace")
    [value] = column.to_pylist()
    return value
