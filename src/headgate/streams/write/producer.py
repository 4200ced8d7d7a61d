"""A producer publishes messages to a stream.

`publish` returns when the message is accepted: it is valid, and pending for the next chunk. It is confirmed, which means
written as the stream's `fsync` asks, when `flush` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, repeat
from threading import Lock
from types import TracebackType
from typing import Any, Final, TypeAlias, TypeGuard, Unpack, cast

from headgate.clock import now_us
from headgate.columns import shred_chunk, shred_valid, validate_batch
from headgate.errors import InvalidMessage, StreamClosed
from headgate.message import (
    INT64_MAX,
    INT64_MIN,
    MAX_NAME_BYTES,
    MAX_PRIORITY,
    Message,
    MessageFields,
    as_message,
    validate,
)
from headgate.streams.write.batching import (
    MAX_MESSAGE_BYTES,
    PreparedChunk,
    check_sizes,
    prepare_chunks,
)
from headgate.streams.write.publishing_ids import Mark, check_publishing_id
from headgate.streams.write.writer import Writer

FilterValue: TypeAlias = Callable[[Message], str | None]

MAX_REMEMBERED: Final = 4096  # names, and topics
ZERO: Final = 0  # compared by identity: False is another object
SHORT_TEXT: Final = MAX_NAME_BYTES // 4  # a code point has at most four bytes


class Producer:
    """Publishes messages to one stream. A named producer never stores a publishing id twice."""

    def __init__(
        self,
        writer: Writer,
        name: str | None,
        filter_value: FilterValue | None,
        on_close: Callable[[Producer], None],
    ) -> None:
        self._writer, self.name = writer, name
        self._pending, self._items = writer.pending, writer.pending.items
        self._small = writer.pending.small
        self._filter_value, self._on_close = filter_value, on_close
        self._closed = False
        self._simple = name is None and filter_value is None  # and open
        self._numbering = Lock()  # two threads never get one publishing id
        # Names and topics repeat: those that were checked once are not checked again.
        self._good_names: set[str] = set()
        self._good_topics: set[str] = set()

    @property
    def last_publishing_id(self) -> int | None:
        """The last id that was accepted under this name, also from earlier producers; None when there is none."""
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
        # The quick check: whether topic, payload, properties and headers are surely valid. What it does not know,
        # `validate` decides. It is written out here because it runs once a message: a call for each part of it
        # would make publishing a third slower.
        sound, names = False, self._good_names
        try:
            if (
                (message.topic in self._good_topics or self._learn_topic(message.topic))
                and type(payload := message.payload) is bytes
                and (size := len(payload)) <= MAX_MESSAGE_BYTES
                and not message.properties
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
                        # Comparing is several times faster within one digit of the interpreter's integers.
                        if not -0x4000_0000 < value < 0x4000_0000 and not _is_int64(value):
                            break
                    elif kind is not bool and (kind is not float or value - value != 0):
                        break
                else:
                    sound = True
        except (AttributeError, TypeError):
            sound = False  # `validate` says what is wrong
        if (  # the message is plain: it has no other field
            sound
            and self._simple
            and publishing_id is None
            and message.timestamp is None
            and message.key is None
            and message.id is None
            and message.filter_value is None
            and message.priority is ZERO
            and not self._writer.troubled
        ):
            items = self._items
            items.append(message)
            if len(items) >= self._pending.attend_at or size > self._small:
                self._attend(message)
            return True
        return self._publish_checked(message, sound, publishing_id)

    def _publish_checked(self, message: Message, sound: bool, publishing_id: int | None) -> bool:
        """Check the fields that the quick check leaves, and accept the message."""
        message = self._with_filter_value(message)
        if not (sound and _has_sound_fields(message)):
            validate(message)
            check_sizes([message])
            self._remember(message)
        with self._numbering:
            return self._writer.accept(message, self._mark(publishing_id))

    def _attend(self, message: Message) -> None:
        if self._pending.weigh(message):
            self._writer.attend()

    def publish_many(
        self, messages: Iterable[Message | bytes], *, first_publishing_id: int | None = None
    ) -> int:
        """Accept all messages, or none when one of them is not valid; return how many were new."""
        self._check_open()
        batch = _as_messages(messages)
        if self._filter_value is not None:
            batch = [self._with_filter_value(message) for message in batch]
        options, chunks = self._writer.options, list[PreparedChunk]()
        if len(batch) < options.chunk_messages:
            validate_batch(batch)
            check_sizes(batch)
        else:
            columns = partial(
                shred_chunk, indexed=options.indexed, now_us=now_us(), shred=shred_valid
            )
            chunks = list(prepare_chunks(batch, options, columns))
        with self._numbering:
            marks = self._marks(first_publishing_id, len(batch))
            return self._writer.accept_many(batch, marks, chunks)

    def flush(self) -> None:
        """Wait until every published message is confirmed."""
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

    def _with_filter_value(self, message: Message) -> Message:
        """Set the filter value that this producer computes, unless the message has one."""
        self._check_open()
        if self._filter_value is None or message.filter_value is not None:
            return message
        return replace(message, filter_value=self._filter_value(message))

    def _learn_topic(self, topic: object) -> bool:
        """Remember a topic that is surely valid; False when that is not sure."""
        if not _is_short_text(topic):
            return False
        self._remember_topic(topic)
        return True

    def _remember_topic(self, topic: str) -> None:
        if len(self._good_topics) > MAX_REMEMBERED:
            self._good_topics.clear()
        self._good_topics.add(topic)

    def _remember(self, message: Message) -> None:
        """Remember the topic and the header names of a valid message."""
        self._remember_topic(message.topic)
        if len(self._good_names) > MAX_REMEMBERED:
            self._good_names.clear()
        self._good_names.update(message.headers)

    def _mark(self, publishing_id: int | None) -> Mark | None:
        if self.name is None:
            if publishing_id is not None:
                raise InvalidMessage(
                    "publishing_id", "only a named producer can give publishing ids"
                )
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


def _as_messages(messages: Iterable[Message | bytes]) -> list[Message]:
    batch = list(messages)
    if set(map(type, batch)) <= {Message}:
        return cast(list[Message], batch)
    return [as_message(message, {}) for message in batch]


# ---- the rest of the quick check ---------------------------------------------------------------------


def _has_sound_fields(message: Message) -> bool:
    """Whether the fields besides topic, payload, properties and headers are surely valid."""
    return (
        (message.timestamp is None or _is_int64(message.timestamp))
        and (message.key is None or _is_short_text(message.key))
        and (message.id is None or _is_short_text(message.id))
        and (message.filter_value is None or _is_short_text(message.filter_value))
        and type(message.priority) is int
        and 0 <= message.priority <= MAX_PRIORITY
    )


def _is_short_text(value: object) -> TypeGuard[str]:
    return type(value) is str and len(value) <= SHORT_TEXT and value.isprintable()


def _is_int64(value: object) -> bool:
    return type(value) is int and INT64_MIN <= value <= INT64_MAX
