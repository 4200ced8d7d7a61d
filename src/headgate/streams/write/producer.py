"""A producer publishes messages to a stream.

`publish` returns when the message is accepted: it is valid, and pending for the next chunk. It is confirmed, which means
written as the stream's `fsync` asks, when `flush` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Any, Final, TypeAlias, TypeGuard, Unpack, cast

from headgate.clock import now_us
from headgate.columns import OPTIONAL_FIELDS, shred_chunk, validate_batch, validate_transposed
from headgate.errors import InvalidMessage, StreamClosed
from headgate.message import (
    INT64_MAX,
    INT64_MIN,
    MAX_NAME_BYTES,
    MAX_PRIORITY,
    Message,
    MessageFields,
    as_message,
    check_many,
    validate,
    with_filter_value,
)
from headgate.streams.write.batching import (
    MAX_MESSAGE_BYTES,
    PreparedChunk,
    check_sizes,
    prepare_chunks,
)
from headgate.streams.write.publishing_ids import check_publishing_id
from headgate.streams.write.writer import Writer

FilterValue: TypeAlias = Callable[[Message], str | None]

MAX_REMEMBERED: Final = 1 << 14  # names, and topics
ZERO: Final = 0  # compared by identity: False is another object
SHORT_TEXT: Final = MAX_NAME_BYTES // 4  # a code point has at most four bytes


class Producer:
    """Publishes messages to one stream. A named producer never stores a publishing id twice.

    with Stream.open("data/orders") as orders, orders.producer("shop-1") as producer:
        for number in (3, 4, 4):  # the second 4 as after a crash
            producer.publish(b"order %d" % number, publishing_id=number)
        producer.flush()  # now they are confirmed
        assert producer.last_publishing_id == 4
        assert orders.next_offset == 4
    """

    def __init__(
        self,
        writer: Writer,
        name: str | None,
        filter_value: FilterValue | None,
        on_close: Callable[[Producer], None],
    ) -> None:
        self._writer, self.name = writer, name
        self._pending, self._items = writer.pending, writer.pending.items
        self._small, self._unmarked = writer.pending.small, False
        self._filter_value, self._on_close = filter_value, on_close
        self._closed = False
        if name is not None:
            writer.producers.open_names.add(name)
        # Names and topics repeat: those that were checked once are not checked again.
        self._good_names: set[str] = set()
        self._good_topics: set[str] = set()

    @property
    def last_publishing_id(self) -> int | None:
        """The last id that was accepted under this name, also from earlier producers; None when there is none."""
        last = -1 if self.name is None else self._pending.last_id(self.name)
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

        False when its publishing id was seen before: a message with that id is stored, or pending.
        """
        # A parameter for each field would make every call a twentieth slower.
        if fields or type(message) is not Message or self._filter_value is not None:
            message = self._complete(message, fields)
        # The quick check: whether the message is surely valid. What it does not know, `validate` decides. It is written
        # out here because it runs once a message: a call for each part of it would make publishing a third slower.
        sound, names = False, self._good_names
        try:
            if (
                (message.topic in self._good_topics or _learn(message.topic, self._good_topics))
                and type(payload := message.payload) is bytes
                and (size := len(payload)) <= MAX_MESSAGE_BYTES
                and not message.properties
            ):
                value: Any
                for name, value in message.headers.items():
                    if name not in names and not _learn(name, names):
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
                    sound = (
                        message.timestamp is None
                        and message.key is None
                        and message.id is None
                        and message.filter_value is None
                        and message.priority is ZERO
                    ) or _check_optional_fields(message, self._pending.used)
        except (AttributeError, TypeError):
            sound = False  # `validate` says what is wrong
        if not sound or self._closed or self._writer.troubled:
            self._prepare(message, sound)
            size = len(message.payload)
        if publishing_id is not None or not self._unmarked:
            return self._publish_marked(message, size, publishing_id)
        items = self._items
        items.append(message)
        if len(items) >= self._pending.attend_at or size > self._small:
            self._attend(message)
        return True

    def _publish_marked(self, message: Message, size: int, publishing_id: int | None) -> bool:
        """Accept a valid message that has a given publishing id, or whose producer may not append without a mark."""
        if publishing_id is None:
            self._unmarked = self._pending.claim_unmarked(self.name)
        elif self.name is None:
            raise _unnamed_error()
        else:
            check_publishing_id(publishing_id)
        with self._pending.numbering:
            # Again: what is added after this check is written before the stream is closed.
            self._check_open()
            if not self._pending.add(message, self.name, publishing_id):
                return False
        if len(self._items) >= self._pending.attend_at or size > self._small:
            self._attend(message)
        return True

    def _complete(self, message: Message | bytes, fields: MessageFields) -> Message:
        """Build the message of a payload; set the filter value that this producer computes, unless there is one."""
        if fields or type(message) is not Message:
            message = as_message(message, fields)
        compute = self._filter_value
        if compute is None or message.filter_value is not None:
            return message
        return with_filter_value(message, compute(message))

    def _prepare(self, message: Message, sound: bool) -> None:
        """Raise if the producer is closed, the message is not valid, or the writer cannot store messages."""
        self._check_open()
        if not sound:
            validate(message)
            check_sizes([message])
            self._pending.used.update(OPTIONAL_FIELDS)
        if self._writer.troubled:
            self._writer.retry()

    def _attend(self, message: Message) -> None:
        if self._pending.count_payload(message):
            self._writer.attend()

    def publish_many(
        self, messages: Iterable[Message | bytes], *, first_publishing_id: int | None = None
    ) -> int:
        """Accept all messages, or none when one of them is not valid; return how many were new."""
        self._check_open()
        if first_publishing_id is not None:
            if self.name is None:
                raise _unnamed_error()
            check_publishing_id(first_publishing_id)
        check_many(messages)
        batch = _as_messages(messages)
        if self._filter_value is not None:
            batch = [self._complete(message, {}) for message in batch]
        options, chunks = self._writer.options, list[PreparedChunk]()
        if len(batch) < options.chunk_messages:
            validate_batch(batch)
            check_sizes(batch)
        else:
            columns = partial(
                shred_chunk, indexed=options.indexed, now_us=now_us(), check=validate_transposed
            )
            chunks = list(prepare_chunks(batch, options, columns))
        return self._writer.accept(batch, self.name, first_publishing_id, chunks)

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
            self._closed = True
            if self.name is not None:
                self._writer.producers.open_names.discard(self.name)
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

    def _check_open(self) -> None:
        if self._closed:
            raise StreamClosed(f"producer {self.name or '(unnamed)'} was closed")


def _as_messages(messages: Iterable[Message | bytes]) -> list[Message]:
    batch = list(messages)
    if set(map(type, batch)) <= {Message}:
        return cast(list[Message], batch)
    return [as_message(message, {}) for message in batch]


def _unnamed_error() -> InvalidMessage:
    return InvalidMessage("publishing_id", "only a named producer can give publishing ids")


# ---- the rest of the quick check ---------------------------------------------------------------------


def _learn(text: object, known: set[str]) -> bool:
    """Remember a name or topic that is surely valid; False when that is not sure."""
    if not _is_short_text(text):
        return False
    if len(known) >= MAX_REMEMBERED:
        known.clear()
    known.add(text)
    return True


def _check_optional_fields(message: Message, used: set[str]) -> bool:
    """Whether the fields that most messages do without are surely valid; note which of them this one has."""
    if (stamp := message.timestamp) is not None:
        if not _is_int64(stamp):
            return False
        used.add("timestamp")
    if (key := message.key) is not None:
        if not _is_short_text(key):
            return False
        used.add("key")
    if (id_ := message.id) is not None:
        if not _is_short_text(id_):
            return False
        used.add("id")
    if (word := message.filter_value) is not None:
        if not _is_short_text(word):
            return False
        used.add("filter_value")
    if (level := message.priority) is not ZERO:
        if not _is_priority(level):
            return False
        used.add("priority")
    return True


def _is_short_text(value: object) -> TypeGuard[str]:
    return type(value) is str and len(value) <= SHORT_TEXT and value.isprintable()


def _is_int64(value: object) -> bool:
    return type(value) is int and INT64_MIN <= value <= INT64_MAX


def _is_priority(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_PRIORITY
