"""Checks of the arguments that callers give, and their values as operations take them, for the sync and the asyncio API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache
from typing import Final

from headgate.checks import check_flag, check_span, list_texts
from headgate.errors import QueueOptionsError, StaleLease
from headgate.filters import (
    And,
    Filter,
    FilterLike,
    TopicMatch,
    as_filter,
    check_depth,
    join_terms,
)
from headgate.message import (
    INT64_MAX,
    INT64_MIN,
    UNSTORABLE,
    HeaderValue,
    Message,
    MessageDetails,
    check_many,
    message_of_fields,
    validate,
)
from headgate.queues.engine import (
    Outcome,
    Publication,
    QueueOptions,
    Receipt,
    State,
    publication_of,
)

LEASE: Final = timedelta(seconds=30)  # unless the caller gives another
RESULT_ADDRESS: Final = "headgate:result"  # the reply_to of a message whose result is kept
RESULT_KEPT: Final = timedelta(days=1)  # unless the publisher gives another
LONGEST_SPAN: Final = timedelta(days=365_000)  # as the view `inbox` accepts it
_LONGEST_SPAN_US: Final = LONGEST_SPAN // timedelta(microseconds=1)
MOST: Final = 2**31 - 1  # an integer of every engine


def microseconds(name: str, span: timedelta | None) -> int:
    """Return the time span of the argument `name` in microseconds; None is 0."""
    if span is None:
        return 0
    check_span(name, span, QueueOptionsError)
    if not timedelta() <= span <= LONGEST_SPAN:
        raise QueueOptionsError(
            f"{name}: a time span is a timedelta from 0 to {LONGEST_SPAN.days:,} days, not {span!r}"
        )
    return span // timedelta(microseconds=1)


def check_poll(poll: timedelta) -> timedelta:
    """Return the time between polls; refuse what is no time span."""
    microseconds("poll", poll)
    return poll


def lease_us(lease: timedelta) -> int:
    """Return the length of a lease in microseconds; refuse 0."""
    span = microseconds("lease", lease)
    if not span:
        raise QueueOptionsError("a lease must be longer than nothing; try timedelta(seconds=30)")
    return span


def timeout_s(timeout: timedelta | None) -> float | None:
    """Return the time limit of a handler in seconds; None is no limit."""
    if timeout is None:
        return None
    span = microseconds("timeout", timeout)
    if not span:
        raise QueueOptionsError("a timeout must be longer than nothing; leave it out for no limit")
    return span / 1e6


def check_limit(limit: int, name: str = "limit") -> int:
    """Return the limit; refuse anything but a positive integer that every engine takes."""
    if type(limit) is not int or not 1 <= limit <= MOST:
        raise QueueOptionsError(f"{name}: give an integer from 1 to {MOST:,}, not {limit!r}")
    return limit


def check_state(state: State | None) -> State | None:
    """Return the state; refuse anything but a State or None."""
    if state is not None and not isinstance(state, State):
        names = ", ".join(f"State.{each.name}" for each in State)
        raise QueueOptionsError(f"state: give one of {names}, or None for all, not {state!r}")
    return state


def message_ids(ids: Iterable[int]) -> list[int]:
    """Return the ids as a list; refuse anything but 64-bit integers."""
    if not isinstance(ids, Iterable):
        raise QueueOptionsError(f"give a list of ids, [{ids!r}], not {ids!r}")
    listed = list(ids)
    for id in listed:
        if type(id) is not int or not INT64_MIN <= id <= INT64_MAX:
            raise QueueOptionsError(f"the id of a message is a 64-bit integer, not {id!r}")
    return listed


def optional_filter(filter: FilterLike | None) -> Filter | None:
    """Return the filter as a tree; None if there is no filter."""
    return None if filter is None else as_filter(filter)


def subscription_filter(filter: FilterLike | None, pattern: str | None) -> Filter:
    """Return one filter for messages that match the filter and whose topic matches the pattern; either may be left out."""
    terms = [as_filter(filter)] if filter is not None else []
    if pattern is not None:
        terms.append(TopicMatch(pattern))
    if not terms:
        raise QueueOptionsError("a subscription needs a filter or a topic pattern; '#' takes all")
    tree = join_terms(And, terms)
    check_depth(tree)  # it is stored as text, which must parse again
    return tree


def queue_options(
    filter_headers: Iterable[str] | None = None,
    max_attempts: int | None = None,
    dedup_window: timedelta | None = None,
    archive: bool | None = None,
    *,
    otherwise: QueueOptions,
) -> QueueOptions:
    """Return the given options; those that are None are taken from `otherwise`."""
    if archive is not None:
        check_flag("archive", archive, QueueOptionsError)
    return QueueOptions(
        filter_headers=otherwise.filter_headers
        if filter_headers is None
        else tuple(dict.fromkeys(list_texts("filter_headers", filter_headers, QueueOptionsError))),
        max_attempts=otherwise.max_attempts if max_attempts is None else max_attempts,
        dedup_window_us=otherwise.dedup_window_us
        if dedup_window is None
        else microseconds("dedup_window", dedup_window),
        archive=otherwise.archive if archive is None else archive,
    )


def publication(
    payload: bytes | Message,
    *,
    topic: str | None,
    headers: Mapping[str, HeaderValue] | None,
    priority: int,
    delay: timedelta | None,
    dedup_key: str | None,
    group: str | None,
    default_topic: str,
    fields: MessageDetails,
) -> Publication:
    """Return a valid message with its delay, dedup key and group. A Message is taken as it is."""
    is_bare = topic is None and headers is None and priority == 0 and not fields
    if is_bare and type(payload) is bytes and type(priority) is int:
        _check_topic(default_topic)  # nothing else can be invalid
        message = message_of_fields(payload, default_topic, {})
    elif isinstance(payload, Message):
        if not is_bare:
            raise QueueOptionsError(
                "a Message has its own topic, headers and priority already; leave them out, or publish its payload"
            )
        validate(message := payload)
    else:
        topic = default_topic if topic is None else topic
        validate(message := Message(payload, topic, headers, priority, **fields))
    if dedup_key is not None or group is not None:
        _check_keys(dedup_key, group)
    return Publication(
        message, 0 if delay is None else microseconds("delay", delay), dedup_key, group
    )


def ask_for_more(
    publication: Publication,
    ttl: timedelta | None,
    unique: str | None,
    result: bool | timedelta,
) -> Publication:
    """Return the publication with a time to live, a unique key, or a request for a result."""
    kept = None if result is False else RESULT_KEPT if result is True else result
    return check_publication(
        replace(
            publication,
            ttl_us=None if ttl is None else microseconds("ttl", ttl),
            unique=unique,
            result_us=None if kept is None else microseconds("result", kept),
        )
    )


def _check_wishes(publication: Publication) -> Publication:
    """Check the time to live, the unique key and the request for a result; return the publication with the address of results."""
    for name in ("ttl_us", "result_us"):
        span = getattr(publication, name)
        if span is not None and (type(span) is not int or not 0 < span <= _LONGEST_SPAN_US):
            raise QueueOptionsError(
                f"{name} must be an integer from 1 to {_LONGEST_SPAN_US:,}, not {span!r}"
            )
    if publication.unique is not None:
        storable_text("unique", publication.unique)
    message = publication.message
    if publication.result_us is None or message.reply_to == RESULT_ADDRESS:
        return publication
    if message.reply_to is not None:
        raise QueueOptionsError("a message has a result or a reply_to, not both; leave one out")
    properties = {**message.properties, "reply_to": RESULT_ADDRESS}
    return replace(publication, message=replace(message, properties=properties))


def check_publication(publication: Publication) -> Publication:
    """Return the publication; refuse one that some engine cannot store."""
    validate(publication.message)
    if publication.asks_for_more:
        publication = _check_wishes(publication)
    _check_keys(publication.dedup_key, publication.group)
    if type(publication.delay_us) is not int or not 0 <= publication.delay_us <= _LONGEST_SPAN_US:
        raise QueueOptionsError(
            f"delay_us must be an integer from 0 to {_LONGEST_SPAN_US:,}, not {publication.delay_us!r}"
        )
    return publication


def _check_keys(dedup_key: object, group: object) -> None:
    for name, value in (("dedup_key", dedup_key), ("group", group)):
        if value is not None:
            storable_text(name, value)


def storable_text(name: str, value: object) -> str:
    """Return the value; refuse anything but text that every engine can store."""
    if not isinstance(value, str) or not value or UNSTORABLE.search(value):
        raise QueueOptionsError(
            f"{name} must be text that is not empty, without NUL and lone surrogates, not {value!r}"
        )
    return value


def storable_reason(reason: str | None) -> str | None:
    """Return the reason of a failure with the characters escaped that an engine cannot store; it may quote anything."""
    if reason is None:
        return None
    return UNSTORABLE.sub(lambda found: ascii(found[0])[1:-1], str(reason))


def publications(
    messages: Iterable[bytes | Message | Publication], topic: str
) -> list[Publication]:
    """Return each message as a valid Publication; bytes get the default topic."""
    check_many(messages)
    _check_topic(topic)  # once, for all that are only bytes
    return [
        publication_of(message_of_fields(each, topic, {}))
        if type(each) is bytes
        else _as_publication(each, topic)
        for each in messages
    ]


@lru_cache(maxsize=1024)
def _check_topic(topic: str) -> None:
    validate(Message(topic=topic))


def _as_publication(message: bytes | Message | Publication, topic: str) -> Publication:
    if isinstance(message, Publication):
        return check_publication(message)
    message = message if isinstance(message, Message) else Message(message, topic)
    validate(message)
    return publication_of(message)


def check_settled(
    queue: str, receipts: Sequence[Receipt], outcomes: Sequence[Outcome], verb: str
) -> None:
    """Raise StaleLease for deliveries whose lease had ended: claimed again, acked by another consumer, or purged."""
    pairs = zip(receipts, outcomes, strict=True)
    lost = tuple(receipt.id for receipt, outcome in pairs if outcome is not Outcome.DONE)
    if lost:
        raise StaleLease(queue, lost, verb)
