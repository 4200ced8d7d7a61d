"""Reading all partitions of a super stream: cursors, scans and consumers over one stream each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from headgate.columns import PlainSchema, Record, plain_schema, typed_schema
from headgate.errors import StreamOptionsError
from headgate.message import Message
from headgate.streams.read.consumer import StreamConsumer, Tail
from headgate.streams.read.cursors import Cursors
from headgate.streams.read.plan import ScanStats
from headgate.streams.read.scan import Scan
from headgate.streams.read.start import Start, names_offset

PARTITION: Final = "partition"  # the column with the number of each message's partition


class Closable(Protocol):
    def close(self) -> None: ...


class PartitionRecord(NamedTuple):
    """A message, its partition and its offset there."""

    partition: int
    offset: int
    message: Message


def close_all(parts: Iterable[Closable]) -> None:
    """Close every part even if closing another one fails; then raise that failure."""
    with ExitStack() as closing:
        for part in parts:
            closing.callback(part.close)


class SuperCursor(NamedTuple):
    """The stored positions of a named consumer, one for each partition; None where it has committed none."""

    name: str
    positions: tuple[int | None, ...]
    updated: int  # microseconds UTC


class SuperCursors:
    """The cursors of all partitions."""

    def __init__(self, partitions: list[Cursors]) -> None:
        """Use `SuperStream.cursors`."""
        self.partitions = partitions

    def get(self, name: str) -> SuperCursor | None:
        """Return the cursor of this name; None when no partition has it."""
        found = [cursors.get(name) for cursors in self.partitions]
        there = [cursor for cursor in found if cursor is not None]
        if not there:
            return None
        positions = tuple(None if cursor is None else cursor.position for cursor in found)
        return SuperCursor(name, positions, max(cursor.updated for cursor in there))

    def list(self) -> list[SuperCursor]:
        """Return all cursors, sorted by name."""
        names = {cursor.name for cursors in self.partitions for cursor in cursors.list()}
        found = (self.get(name) for name in sorted(names))
        return [cursor for cursor in found if cursor is not None]

    def delete(self, name: str) -> bool:
        """Delete a cursor in every partition; False when there was none."""
        return any([cursors.delete(name) for cursors in self.partitions])

    def close(self) -> None:
        close_all(self.partitions)


class SuperScan(Iterator[pa.RecordBatch]):
    """The scans of all partitions, one after the other."""

    def __init__(self, scans: list[Scan]) -> None:
        self._scans, self._partition = scans, 0

    @property
    def stats(self) -> ScanStats:
        """The sums over all partitions so far."""
        names = [field.name for field in fields(ScanStats)]
        return ScanStats(*(sum(getattr(s.stats, name) for s in self._scans) for name in names))

    def to_reader(self, schema: PlainSchema | None = None) -> pa.RecordBatchReader:
        """Return a reader of all partitions under one schema, as `Scan.to_reader`, with the column `partition` first."""
        if schema is None:
            asked = self._scans[0].columns
            stored = frozenset().union(*(scan.stored_names for scan in self._scans))
            schema = plain_schema(stored, [PARTITION]) if asked is None else typed_schema(asked)
        readers = [scan.to_reader(schema) for scan in self._scans]
        field = pa.field(PARTITION, pa.int32())
        plain = pa.schema([field, *readers[0].schema])
        batches = (
            pa.RecordBatch.from_arrays([_number(i, batch), *batch.columns], schema=plain)
            for i, reader in enumerate(readers)
            for batch in reader
        )
        return pa.RecordBatchReader.from_batches(plain, batches)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export `to_reader()` to any library that takes Arrow's C stream."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __next__(self) -> pa.RecordBatch:
        while self._partition < len(self._scans):
            batch = next(self._scans[self._partition], None)
            if batch is not None:
                columns = [_number(self._partition, batch), *batch.columns]
                return pa.RecordBatch.from_arrays(columns, [PARTITION, *batch.schema.names])
            self._partition += 1
        raise StopIteration


def _number(partition: int, batch: pa.RecordBatch) -> pa.Array:
    return pa.array(np.full(batch.num_rows, partition, np.int32))


class SuperConsumer(Iterator[Message]):
    """The messages of all partitions, taken in turns of some hundred.

    Only partitions that have changed are asked for more, so that idle ones cost nothing.
    """

    def __init__(
        self,
        consumers: list[StreamConsumer],
        directories: list[Path],
        follow: bool,
        timeout: timedelta | None,
    ) -> None:
        self.consumers = consumers
        self.partition: int | None = None  # of the message returned last
        self._tail = Tail(*directories, follow=follow, timeout=timeout)
        self._at = {os.path.abspath(directory): i for i, directory in enumerate(directories)}
        # The consumers that may have more messages; the first is the next.
        self._ready: dict[int, None] = dict.fromkeys(range(len(consumers)))
        self._current = consumers[0]  # whose turn it is
        self._committed: list[int | None] = [None] * len(consumers)
        self._running = RLock()

    def __iter__(self) -> SuperConsumer:
        return self

    def __next__(self) -> Message:
        record = self._current.next_buffered()
        return (self.next_record() if record is None else record).message

    def next_record(self) -> PartitionRecord:
        """Return the next message with its partition and offset; StopIteration at the end."""
        with self._running:
            return self._tail.next(self.poll)

    def poll(self) -> PartitionRecord | None:
        """Return a message from the next partition that has one by now, or None; never wait."""
        record = self._current.next_buffered() or self._take_turn()
        return (
            None
            if record is None or self.partition is None
            else PartitionRecord(self.partition, *record)
        )

    def _take_turn(self) -> Record | None:
        """Return the first message of the next turn; None when no partition has any."""
        changed = self._tail.look()
        for partition in range(len(self.consumers)) if changed is None else self._find(changed):
            self._ready.setdefault(partition)
        while self._ready:
            partition = next(iter(self._ready))
            record = self.consumers[partition].poll()
            del self._ready[partition]  # after that: a failure leaves it in its place
            if record is not None:
                self._ready[partition] = None  # behind all others
                self.partition, self._current = partition, self.consumers[partition]
                return record
        return None

    def _find(self, directories: set[str]) -> Iterator[int]:
        return (self._at[directory] for directory in directories if directory in self._at)

    def commit(self) -> None:
        """Store the position in every partition under the consumer's cursor, where it has changed."""
        for i, consumer in enumerate(self.consumers):
            position = consumer.position
            if position != self._committed[i]:
                consumer.commit()
                self._committed[i] = position

    def seek(self, start: Start, *, partition: int | None = None) -> None:
        """Go on at another place, as `start` of `consume`, in one partition or in all."""
        if partition is None and names_offset(start):
            raise StreamOptionsError(
                f"offset {start} is another message in every partition: give partition= too, or a moment"
            )
        with self._running:
            chosen = range(len(self.consumers)) if partition is None else (partition,)
            for i in chosen:
                self.consumers[i].seek(start)
                self._ready.setdefault(i)
            self.partition = None

    def lag(self) -> int:
        """Return how many messages, matching or not, are ahead in all partitions."""
        return sum(consumer.lag() for consumer in self.consumers)

    def close(self) -> None:
        self._tail.stop()
        with self._running:
            self._tail.close()
            close_all(self.consumers)

    def __enter__(self) -> SuperConsumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
