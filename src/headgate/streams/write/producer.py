"""A producer: the hand that puts messages into a stream.

`publish` returns when the message is accepted: valid, and in line for the next chunk. It is confirmed, which means
written as the stream's `fsync` asks, when `flush` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, repeat
from threading import Lock
from types import TracebackType
from typing import Any, Final, TypeAlias, Unpack

from headgate.clock import now_us
from headgate.columns import shred_chunk, shred_valid, validate_batch
from headgate.errors import InvalidMessage, StreamClosed
from headgate.message import Message, MessageFields, as_message, validate
from headgate.streams.write.batching import MAX_MESSAGE_BYTES, PreparedChunk, check_sizes, prepare
from headgate.streams.write.pending import Mark
from headgate.streams.write.publishing_ids import check_publishing_id
from headgate.streams.write.quick_check import ZERO, is_int64, is_surely_valid
from headgate.streams.write.writer import Writer

FilterValue: TypeAlias = Callable[[Message], str | None]

MOST_REMEMBERED: Final = 4096


class Producer:
    """Publishes messages to one stream. A named one never stores a publishing id twice."""

    def __init__(
        self,
        writer: Writer,
        name: str | None,
        filter_value: FilterValue | None,
        on_close: Callable[[Producer], None],
    ) -> None:
        self._writer, self.name = writer, name
        self._pending, self._entries = writer.pending, writer.pending.entries
        self._small = writer.pending.small
        self._filter_value, self._on_close = filter_value, on_close
        self._closed = False
        self._simple = name is None and filter_value is None  # and open
        self._numbering = Lock()  # two threads never get the same publishing id
        self._good_names: set[str] = set()
        self._good_topics: set[str] = set()

    @property
    def last_publishing_id(self) -> int | None:
        """The last id this name was accepted with, also by producers before; None when there is none."""
        last = -1 if self.name is None else self._writer.producers.last(self.name)
        return None if last < 0 else last

    @property
    def confirmed_publishing_id(self) -> int | None:
        """The last id of this name that is in the log; None when there is none."""
        return None if self.name is None else self._writer.producers.committed.get(self.name)

    def publish(
        self,
        message: Message | bytes,
        *,
        publishing_id: int | None = None,
        **fields: Unpack[MessageFields],
    ) -> bool:
        """Accept a message, or a payload with its `topic=`, `headers=`, `key=` and Message's other fields.

        False when its publishing id was seen before, so that it is stored already.
        """
        # A parameter for each field would make every call a twentieth slower.
        if fields or type(message) is not Message:
            message = as_message(message, fields)
        if publishing_id is None and self._simple and not self._writer.troubled:
            try:
                # Whether it is surely valid and has nothing but topic, headers and payload. Without a call: this
                # runs once a message, and what makes it short for the reader would make it a third slower.
                plain, names = False, self._good_names
                if (
                    message.topic in self._good_topics
                    and message.priority is ZERO
                    and message.timestamp is None
                    and message.id is None
                    and message.filter_value is None
                    and message.key is None
                    and not message.properties
                    and type(payload := message.payload) is bytes
                    and (size := len(payload)) <= MAX_MESSAGE_BYTES
                ):
                    value: Any
                    for name, value in message.headers.items():
                        if name not in names:
                            break
                        kind = type(value)
                        if kind is str:
                            if not value.isprintable():
                                break
                        elif kind is int:
                            # Within one digit of the interpreter's integers comparing is several times faster.
                            if not -0x4000_0000 < value < 0x4000_0000 and not is_int64(value):
                                break
                        elif kind is not bool and (kind is not float or value - value != 0):
                            break
                    else:
                        plain = True
            except (AttributeError, TypeError):
                plain = False  # the check says what is wrong
            if plain:
                entries = self._entries
                entries.append(message)
                if len(entries) >= self._pending.attend_at or size > self._small:
                    self._attend(message)
                return True
        return self._publish_checked(message, publishing_id)

    def _publish_checked(self, message: Message, publishing_id: int | None) -> bool:
        message = self._prepared(message)
        self._check(message)
        with self._numbering:
            return self._writer.accept(message, self._mark(publishing_id))

    def _attend(self, message: Message) -> None:
        if self._pending.weigh(message):
            self._writer.attend()

    def publish_many(
        self, messages: Iterable[Message | bytes], *, first_publishing_id: int | None = None
    ) -> int:
        """Accept messages, all or, when one of them is not valid, none; how many of them were new."""
        self._check_open()
        batch = [
            message if type(message) is Message else as_message(message, {}) for message in messages
        ]
        if self._filter_value is not None:
            batch = [self._prepared(message) for message in batch]
        options, pieces = self._writer.options, list[PreparedChunk]()
        if len(batch) < options.chunk_messages:
            validate_batch(batch)
            check_sizes(batch)
        else:
            made = partial(shred_chunk, indexed=options.indexed, now_us=now_us(), shred=shred_valid)
            pieces = list(prepare(batch, options, made))
        with self._numbering:
            marks = self._marks(first_publishing_id, len(batch))
            return self._writer.accept_many(batch, marks, pieces)

    def flush(self) -> None:
        """Wait until everything that was published is confirmed."""
        self._check_open()
        self._writer.commit()

    def close(self) -> None:
        """Flush, and publish no more; idempotent."""
        if self._closed:
            return
        try:
            if not self._writer.closed:
                self._writer.commit()
        finally:
            self._closed, self._simple = True, False
            self._on_close(self)

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _prepared(self, message: Message) -> Message:
        """With the filter value this producer gives it, unless it has one."""
        self._check_open()
        if self._filter_value is None or message.filter_value is not None:
            return message
        return replace(message, filter_value=self._filter_value(message))

    def _check(self, message: Message) -> None:
        try:
            valid = is_surely_valid(message, self._good_names)
        except (AttributeError, TypeError):
            valid = False
        if not valid:
            validate(message)
            check_sizes([message])
        self._remember(message)

    def _remember(self, message: Message) -> None:
        """Names and topics repeat: those that were checked once need not be checked again."""
        if len(self._good_names) > MOST_REMEMBERED:
            self._good_names.clear()
        if len(self._good_topics) > MOST_REMEMBERED:
            self._good_topics.clear()
        if not self._good_names.issuperset(message.headers):
            self._good_names.update(message.headers)
        self._good_topics.add(message.topic)

    def _mark(self, publishing_id: int | None) -> Mark | None:
        if self.name is None:
            _check_unnamed(publishing_id)
            return None
        if publishing_id is None:
            publishing_id = self._writer.producers.last(self.name) + 1
        else:
            check_publishing_id(publishing_id)
        return self.name, publishing_id

    def _marks(self, first: int | None, number: int) -> Sequence[Mark | None]:
        mark = self._mark(first)
        if mark is None:
            return ()
        return list(zip(repeat(mark[0], number), count(mark[1]), strict=False))

    def _check_open(self) -> None:
        if self._closed:
            raise StreamClosed(f"producer {self.name or '(unnamed)'} was closed")


def _check_unnamed(publishing_id: int | None) -> None:
    if publishing_id is not None:
        raise InvalidMessage("publishing_id", "only a named producer can give publishing ids")
