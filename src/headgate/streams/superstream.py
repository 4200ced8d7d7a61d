"""A super stream: many streams that look like one. Every message goes to the partition its key hashes to.

Messages with equal keys stay in order; messages of different partitions have no order. A partition is a stream like any
other, in a sub-directory, with its own writer, segments and cursors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Unpack

from headgate.checks import check_function
from headgate.columns import validate_batch
from headgate.errors import (
    InvalidMessage,
    StreamError,
    StreamExists,
    StreamNotFound,
    StreamOptionsError,
)
from headgate.filters import FilterLike
from headgate.message import Message, MessageFields, as_message, check_many
from headgate.partitions import partition_of
from headgate.streams.directory import delete_files
from headgate.streams.format import (
    FORMAT_VERSION,
    LOCK_FILE,
    OPTIONS_FILE,
    SUPER_FILE,
    segment_files,
)
from headgate.streams.options import (
    StreamOptionFields,
    StreamOptions,
    change_options,
    load_options,
    save_options,
)
from headgate.streams.read.keywords import ConsumeOptions, GroupOptions, ScanOptions
from headgate.streams.read.partitioned import (
    SuperConsumer,
    SuperCursors,
    SuperScan,
    close_all,
)
from headgate.streams.record import copy_of, mend_record, read_record, write_record
from headgate.streams.stream import Stream
from headgate.streams.upkeep.retention import SegmentInfo
from headgate.streams.write.batching import check_sizes
from headgate.streams.write.lock import WriterLock
from headgate.streams.write.producer import FilterValue, Producer
from headgate.streams.write.writer import write_errors

MAX_PARTITIONS: Final = 1024

RoutingKey = Callable[[Message], str | None]


def key_of(message: Message) -> str | None:
    return message.key


class SuperStream:
    """A stream of several partitions. Messages with equal keys go to one partition, in order.

    from headgate import SuperStream

    with SuperStream.create("data/readings", partitions=4) as readings:
        with readings.producer() as producer:
            producer.publish(b"21.5", key="sensor-7")  # equal keys go to one partition, in order
        assert [message.payload for message in readings.consume()] == [b"21.5"]
    """

    def __init__(self, path: Path, partitions: Iterable[Stream]) -> None:
        """Use `SuperStream.create` or `SuperStream.open`."""
        self.path, self.partitions = path, tuple(partitions)

    @classmethod
    def create(
        cls, path: str | Path, partitions: int, **fields: Unpack[StreamOptionFields]
    ) -> SuperStream:
        """Create a super stream; every partition gets these fields of `StreamOptions`.

        After a creation that was interrupted, call this again: it takes over empty partitions.
        """
        directory = Path(path)
        if type(partitions) is not int or not 1 <= partitions <= MAX_PARTITIONS:
            raise StreamOptionsError(
                f"a super stream has 1 to {MAX_PARTITIONS} partitions, not {partitions!r}"
            )
        options = change_options(StreamOptions(), fields)
        with write_errors(directory):
            directory.mkdir(parents=True, exist_ok=True)
            with WriterLock(directory, "create"):
                if (directory / SUPER_FILE).exists():
                    raise StreamExists(
                        f"there is a super stream in {directory} already; open it with SuperStream.open"
                    )
                left = _left_partitions(directory)
                _delete_partitions([p for p in left[partitions:] if (p / OPTIONS_FILE).exists()])
                for i in range(partitions):
                    _create_partition(_partition_path(directory, i), options, fields)
                # Written last: a super stream with this file is complete.
                note = {"format": FORMAT_VERSION, "partitions": partitions}
                write_record(directory / SUPER_FILE, note)
        return cls.open(directory)

    @classmethod
    def open(cls, path: str | Path) -> SuperStream:
        """Open the super stream in a directory."""
        directory = Path(path)
        partitions = _read_partitions(directory)
        return cls(
            directory, [Stream.open(_partition_path(directory, i)) for i in range(partitions)]
        )

    @staticmethod
    def delete(path: str | Path) -> None:
        """Delete a super stream with all its partitions; refused while one of them is being written.

        After a deletion that was interrupted, call this again.
        """
        directory = Path(path)
        partitions = [_partition_path(directory, i) for i in range(_read_partitions(directory))]
        _delete_partitions(partitions)
        for file in (directory / SUPER_FILE, copy_of(directory / SUPER_FILE)):
            file.unlink(missing_ok=True)
        (directory / LOCK_FILE).unlink(missing_ok=True)
        with suppress(OSError):  # it holds other files
            directory.rmdir()

    def producer(
        self,
        name: str | None = None,
        *,
        routing: RoutingKey = key_of,
        filter_value: FilterValue | None = None,
    ) -> SuperProducer:
        """Return a producer that publishes each message to the partition of its key; `routing` returns the key."""
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

    def join_group(
        self,
        group: str,
        filter: FilterLike | None = None,
        *,
        follow: bool = False,
        timeout: timedelta | None = None,
        **options: Unpack[GroupOptions],
    ) -> SuperConsumer:
        """Return a consumer that shares all partitions with the other members of the group, as `Stream.join_group`."""
        with ExitStack() as undo:  # leave the group again when a partition cannot be read
            consumers = [
                undo.enter_context(s.join_group(group, filter, follow=follow, **options))
                for s in self.partitions
            ]
            undo.pop_all()
        return SuperConsumer(consumers, [s.path for s in self.partitions], follow, timeout)

    def scan(self, filter: FilterLike | None = None, **options: Unpack[ScanOptions]) -> SuperScan:
        """Return record batches of all partitions with a leading `partition` column, in offset order within each."""
        return SuperScan([s.scan(filter, **options) for s in self.partitions])

    def seal(self, *, all: bool = False) -> list[Path]:
        """Seal the full segments of every partition, with `all` also the last one; return the sealed files."""
        return [path for stream in self.partitions for path in stream.seal(all=all)]

    def trim(
        self, *, max_age: timedelta | None = None, max_bytes: int | None = None
    ) -> list[SegmentInfo]:
        """Delete the oldest segments of every partition by these limits, or by those of its options; return them.

        `max_bytes` limits each partition, not their sum.
        """
        return [
            info
            for stream in self.partitions
            for info in stream.trim(max_age=max_age, max_bytes=max_bytes)
        ]

    def cursors(self) -> SuperCursors:
        """Return the cursors of named consumers, each with its position in every partition."""
        return SuperCursors([stream.cursors() for stream in self.partitions])

    def close(self) -> None:
        close_all(self.partitions)

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


def _read_partitions(directory: Path) -> int:
    """Read the number of partitions."""
    try:
        return read_record(directory / SUPER_FILE, _partitions_in)
    except FileNotFoundError:
        known = (directory / OPTIONS_FILE).exists()
        hint = "it is a stream: use Stream" if known else "create one with SuperStream.create"
        raise StreamNotFound(f"there is no super stream in {directory}; {hint}") from None
    except ValueError as problem:
        raise StreamError(f"{directory / SUPER_FILE} cannot be read: {problem}") from problem


def _left_partitions(directory: Path) -> list[Path]:
    """Return the directory of every partition there may be; refuse when one of them holds messages."""
    paths = [_partition_path(directory, i) for i in range(MAX_PARTITIONS)]
    for path in paths:
        if path.is_dir() and segment_files(path):
            raise StreamExists(
                f"{path} holds messages, but {directory} has no {SUPER_FILE}: choose another directory, "
                "or save these messages and delete its partitions"
            )
    return paths


def _create_partition(path: Path, options: StreamOptions, fields: StreamOptionFields) -> None:
    try:
        Stream.create(path, **fields).close()
    except StreamExists:
        if load_options(path) != options:  # left by a creation that was interrupted
            with WriterLock(path, "create"):
                save_options(path, options)


def _delete_partitions(paths: Sequence[Path]) -> None:
    """Delete the streams that still exist; delete none while one of them is being written."""
    there = [path for path in paths if path.is_dir()]
    with ExitStack() as locks:
        for path in there:
            locks.enter_context(WriterLock(path, "delete"))
        for path in there:
            delete_files(path)


def _partition_path(directory: Path, partition: int) -> Path:
    return directory / f"partition-{partition}"


@dataclass(frozen=True, slots=True)
class SuperProducer:
    """Publishes each message to the partition of its key: it has a producer for every partition."""

    producers: list[Producer]
    routing: RoutingKey

    def publish(
        self,
        message: Message | bytes,
        *,
        publishing_id: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> bool:
        """Accept a message, or a payload with Message's other fields, into the partition of its key.

        False when its publishing id was seen there before.
        """
        message = as_message(message, fields)
        producer = self.producers[self._partition(message)]
        return producer.publish(message, publishing_id=publishing_id)

    def _partition(self, message: Message) -> int:
        key = self.routing(message)
        if not isinstance(key, str):
            raise InvalidMessage(
                "key",
                "a super stream needs a text as the key that chooses the partition; "
                f"set key=, or give a routing= that returns one, not {key!r}",
            )
        return partition_of(key, len(self.producers))

    def publish_many(self, messages: Iterable[Message | bytes]) -> int:
        """Accept all messages, each into the partition of its key, or none when one of them is not valid.

        With a name, each message gets the next publishing id of its partition. Returns their number.
        """
        check_many(messages)
        batch = [as_message(message, {}) for message in messages]
        validate_batch(batch)
        check_sizes(batch)
        parts: dict[int, list[Message]] = {}
        for message in batch:
            parts.setdefault(self._partition(message), []).append(message)
        return sum(self.producers[i].publish_many(part) for i, part in parts.items())

    def flush(self) -> None:
        """Wait until everything that was published is confirmed."""
        for producer in self.producers:
            producer.flush()

    def close(self) -> None:
        close_all(self.producers)

    def __enter__(self) -> SuperProducer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
