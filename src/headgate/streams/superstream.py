"""A super stream: many streams that look like one. Every message goes to the partition its key hashes to.

Messages with the same key stay in order; between partitions there is none. A partition is a stream like any other,
in a sub-directory, with its own writer, segments and cursors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Any, Final, NamedTuple, Unpack

import numpy as np
import pyarrow as pa

from headgate.checks import check_function
from headgate.columns import Record
from headgate.errors import (
    InvalidMessage,
    StreamError,
    StreamExists,
    StreamNotFound,
    StreamOptionsError,
)
from headgate.filters import FilterLike
from headgate.message import Message, MessageFields, as_message
from headgate.streams.format import FORMAT_VERSION, SUPER_FILE
from headgate.streams.options import StreamOptionFields
from headgate.streams.read.consumer import StreamConsumer, Tail
from headgate.streams.read.plan import ScanStats
from headgate.streams.read.scan import Scan
from headgate.streams.record import mend_record, read_record, write_record
from headgate.streams.stream import ConsumeOptions, ScanOptions, Stream
from headgate.streams.write.producer import FilterValue, Producer

MAX_PARTITIONS: Final = 1024

RoutingKey = Callable[[Message], str | None]


class PartitionRecord(NamedTuple):
    """A message, its partition and its offset there."""

    partition: int
    offset: int
    message: Message


def key_of(message: Message) -> str | None:
    return message.key


class SuperStream:
    """N streams under one name."""

    def __init__(self, path: Path, partitions: Iterable[Stream]) -> None:
        """Use `SuperStream.create` or `SuperStream.open`."""
        self.path, self.partitions = path, tuple(partitions)

    @classmethod
    def create(
        cls, path: str | Path, partitions: int, **fields: Unpack[StreamOptionFields]
    ) -> SuperStream:
        """Create a super stream; every partition gets these fields of `StreamOptions`."""
        directory = Path(path)
        if type(partitions) is not int or not 1 <= partitions <= MAX_PARTITIONS:
            raise StreamOptionsError(
                f"a super stream has 1 to {MAX_PARTITIONS} partitions, not {partitions!r}"
            )
        if (directory / SUPER_FILE).exists():
            raise StreamExists(f"there is a super stream in {directory} already; open it instead")
        directory.mkdir(parents=True, exist_ok=True)
        streams = [_create_partition(directory, i, fields) for i in range(partitions)]
        # Written last: a super stream with this file is complete.
        note = {"format": FORMAT_VERSION, "partitions": partitions}
        write_record(directory / SUPER_FILE, note)
        return cls(directory, streams)

    @classmethod
    def open(cls, path: str | Path) -> SuperStream:
        """Open the super stream in a directory."""
        directory = Path(path)
        try:
            partitions = read_record(directory / SUPER_FILE, _partitions_in)
        except FileNotFoundError:
            raise StreamNotFound(
                f"there is no super stream in {directory}; create one with SuperStream.create"
            ) from None
        except ValueError as problem:
            raise StreamError(f"{directory / SUPER_FILE} cannot be read: {problem}") from problem
        return cls(
            directory, [Stream.open(_partition_path(directory, i)) for i in range(partitions)]
        )

    def producer(
        self,
        name: str | None = None,
        *,
        routing: RoutingKey = key_of,
        filter_value: FilterValue | None = None,
    ) -> SuperProducer:
        """Return a producer that publishes each message to the partition of its key, which `routing` returns."""
        check_function("routing", routing, StreamOptionsError, "lambda message: message.topic")
        with ExitStack() as undo:  # close the others when one is refused
            producers = [
                undo.enter_context(stream.producer(name, filter_value=filter_value))
                for stream in self.partitions
            ]
            # The locks of all partitions are held: no other process writes the file now.
            mend_record(self.path / SUPER_FILE, _partitions_in)
            undo.pop_all()
        return SuperProducer(producers, routing)

    def consume(
        self,
        filter: FilterLike | None = None,
        *,
        follow: bool = False,
        timeout: timedelta | None = None,
        **options: Unpack[ConsumeOptions],
    ) -> SuperConsumer:
        """Return a consumer of all partitions, in offset order within each; the options are those of `Stream.consume`."""
        consumers = [s.consume(filter, follow=follow, **options) for s in self.partitions]
        return SuperConsumer(consumers, [s.path for s in self.partitions], follow, timeout)

    def scan(self, filter: FilterLike | None = None, **options: Unpack[ScanOptions]) -> SuperScan:
        """Return record batches of all partitions with a leading `partition` column, in offset order within each."""
        return SuperScan([s.scan(filter, **options) for s in self.partitions])

    def seal(self, *, all: bool = False) -> list[Path]:
        """Seal full segments, or `all`, of every partition."""
        return [path for stream in self.partitions for path in stream.seal(all=all)]

    def close(self) -> None:
        _close_all(self.partitions)

    def __enter__(self) -> SuperStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _partitions_in(known: dict[str, Any]) -> int:
    if known["format"] != FORMAT_VERSION:
        raise ValueError(f"a super stream of format {known['format']}")
    return int(known["partitions"])


def _create_partition(directory: Path, partition: int, fields: StreamOptionFields) -> Stream:
    path = _partition_path(directory, partition)
    try:
        return Stream.create(path, **fields)
    except StreamExists as problem:
        raise StreamExists(
            f"{path} is a stream already, but {directory} has no {SUPER_FILE}: its creation was interrupted; "
            f"delete its partitions and create it again"
        ) from problem


def _close_all(parts: Iterable[Stream | Producer | StreamConsumer]) -> None:
    """Close every part even if closing another one fails; then raise that failure."""
    with ExitStack() as closing:
        for part in parts:
            closing.callback(part.close)


def _partition_path(directory: Path, partition: int) -> Path:
    return directory / f"partition-{partition}"


@dataclass(frozen=True, slots=True)
class SuperProducer:
    """One producer a partition."""

    producers: list[Producer]
    routing: RoutingKey

    def publish(
        self,
        message: Message | bytes,
        *,
        publishing_id: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> bool:
        """Accept a message, or a payload with Message's other fields, into the partition of its key."""
        message = as_message(message, fields)
        key = self.routing(message)
        if not isinstance(key, str):
            raise InvalidMessage(
                "key",
                "a super stream needs a text as the key that chooses the partition; "
                f"set key=, or give a routing= that returns one, not {key!r}",
            )
        producer = self.producers[partition_of(key, len(self.producers))]
        return producer.publish(message, publishing_id=publishing_id)

    def flush(self) -> None:
        """Wait until everything that was published is confirmed."""
        for producer in self.producers:
            producer.flush()

    def close(self) -> None:
        _close_all(self.producers)

    def __enter__(self) -> SuperProducer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class SuperScan(Iterator[pa.RecordBatch]):
    """The scans of all partitions, one after the other."""

    def __init__(self, scans: list[Scan]) -> None:
        self._scans, self._partition = scans, 0

    @property
    def stats(self) -> ScanStats:
        """The sums over all partitions so far."""
        names = [field.name for field in fields(ScanStats)]
        return ScanStats(*(sum(getattr(s.stats, name) for s in self._scans) for name in names))

    def __next__(self) -> pa.RecordBatch:
        while self._partition < len(self._scans):
            batch = next(self._scans[self._partition], None)
            if batch is not None:
                column = pa.array(np.full(batch.num_rows, self._partition, np.int32))
                names = ["partition", *batch.schema.names]
                return pa.RecordBatch.from_arrays([column, *batch.columns], names)
            self._partition += 1
        raise StopIteration


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
                consumer.commit(position)
                self._committed[i] = position

    def lag(self) -> int:
        """Return how many messages, matching or not, are ahead in all partitions."""
        return sum(consumer.lag() for consumer in self.consumers)

    def close(self) -> None:
        self._tail.stop()
        with self._running:
            self._tail.close()
            _close_all(self.consumers)

    def __enter__(self) -> SuperConsumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


# ---- the partition of a key --------------------------------------------------------------------------

# MurmurHash3 (x86, 32 bits) of the key's UTF-8 bytes, as an unsigned number, modulo the number of partitions: the hash of
# RabbitMQ's stream clients, so that theirs and ours choose the same partition.
SEED: Final = 104729
_MASK: Final = 0xFFFFFFFF


@lru_cache(maxsize=1 << 16)
def partition_of(key: str, partitions: int) -> int:
    """Return the partition of a key, counted from 0."""
    return murmur3_32(key.encode(), SEED) % partitions


def murmur3_32(data: bytes, seed: int) -> int:
    """Return the 32-bit MurmurHash3 of the data."""
    state = seed
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        state ^= _scramble(int.from_bytes(data[at : at + 4], "little"))
        state = (_rotate(state, 13) * 5 + 0xE6546B64) & _MASK
    if whole < len(data):
        state ^= _scramble(int.from_bytes(data[whole:], "little"))
    return _finalize(state ^ len(data))


def _scramble(block: int) -> int:
    return _rotate(block * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK


def _rotate(word: int, bits: int) -> int:
    return (word << bits | word >> (32 - bits)) & _MASK


def _finalize(state: int) -> int:
    """Make every bit of the input affect every bit of the output."""
    state = (state ^ state >> 16) * 0x85EBCA6B & _MASK
    state = (state ^ state >> 13) * 0xC2B2AE35 & _MASK
    return state ^ state >> 16
