"""The definition of a queue: checks its x-arguments, and combines them with policies to the effective values.

No other module reads arguments that begin with `x-`. The texts of refusals are those of RabbitMQ 4.0.5.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, NamedTuple, TypeAlias
from typing import Literal as OneOf

from headgate.broker.filter_argument import ParsedFilter, read_filter
from headgate.broker.policy_keys import MAX_SEGMENT_BYTES, MAX_TIMER_MS
from headgate.broker.policy_precedence import merge_arguments
from headgate.broker.refusals import PreconditionFailed
from headgate.routing import X_FILTER

QueueType: TypeAlias = OneOf["classic", "quorum", "stream"]
UnmatchedPolicy: TypeAlias = OneOf["keep", "dead-letter", "drop"]
OverflowPolicy: TypeAlias = OneOf["drop-head", "reject-publish", "reject-publish-dlx"]
# Returns what is wrong with a value, in RabbitMQ's words, or None.
ArgumentCheck: TypeAlias = Callable[[Any], str | None]

MAX_AGE_S: Final = 1_577_880_000  # fifty years
DELIVERY_LIMIT: Final = 20  # of quorum queues
QUORUM_HIGH: Final = 4  # priorities above this one are high in a quorum queue
UNMATCHED: Final = ("keep", "dead-letter", "drop")
OVERFLOWS: Final = ("drop-head", "reject-publish", "reject-publish-dlx")
LOCATORS: Final = ("client-local", "balanced", "random", "least-leaders", "min-masters")
QUEUE_TYPES: Final = ("classic", "quorum", "stream")
_AGE: Final = re.compile(r"(\d+)([YMDhms])")
_SECONDS: Final = {"Y": 31_536_000, "M": 2_592_000, "D": 86_400, "h": 3_600, "m": 60, "s": 1}


class DelayedRetry(NamedTuple):
    """The delay of a message of a quorum queue between two deliveries."""

    type: str  # failed: rejected, or its consumer is gone; returned: given back; or all
    least_ms: int
    most_ms: int

    def delay_ms(self, deliveries: int, failed: bool) -> int:
        """The delay after this many deliveries; `failed`: rejected or its consumer lost, otherwise only given back."""
        if self.type not in ("all", "failed" if failed else "returned"):
            return 0
        return min(self.least_ms * max(1, deliveries), self.most_ms)


@dataclass(frozen=True, slots=True)
class QueueDefinition:
    """The effective settings of a queue, from its arguments and policies."""

    type: QueueType = "classic"
    message_ttl: int | None = None  # milliseconds
    expires: int | None = None  # milliseconds without use, after which the queue is deleted
    max_length: int | None = None
    max_bytes: int | None = None
    overflow: OverflowPolicy = "drop-head"
    dead_letter_exchange: str | None = None
    dead_letter_key: str | None = None
    max_priority: int = 0
    single_active: bool = False
    delivery_limit: int | None = None
    consumer_timeout: int | None = None  # milliseconds; None: that of the broker
    retry: DelayedRetry | None = None
    max_age: int | None = None  # seconds, of a stream
    segment_bytes: int | None = None
    filter_size: int | None = None
    indexed: tuple[str, ...] = ()  # headers by which filters skip chunks of a stream
    filter: ParsedFilter | None = None  # of consumers that have none, and of gets
    unmatched: UnmatchedPolicy = "keep"  # what becomes of messages that no consumer wants
    unmatched_after: int = 0  # milliseconds

    @property
    def lanes(self) -> int:
        """How many lanes of the store the queue needs: one for each priority that it distinguishes."""
        return 2 if self.type == "quorum" else self.max_priority + 1

    def level_of(self, priority: int) -> int:
        """The lane of messages that have a priority."""
        if self.type == "quorum":
            return int(priority > QUORUM_HIGH)
        return min(priority, self.max_priority)

    @property
    def is_plain(self) -> bool:
        """Whether a message needs nothing but to be appended."""
        return (
            self.message_ttl is None
            and self.max_length is None
            and self.max_bytes is None
            and not self.max_priority
            and self.type == "classic"
        )


def define_queue(
    name: str,
    vhost: str,
    arguments: Mapping[str, Any],
    *,
    durable: bool = True,
    exclusive: bool = False,
    policy: Mapping[str, Any] | None = None,
    auto_delete: bool = False,
) -> QueueDefinition:
    """Check the arguments of a declaration, and combine them with the values of policies."""
    queue = f"queue '{name}' in vhost '{vhost}'"
    where = f"for {queue}"
    kind = _queue_type(arguments, where)
    for argument, value in arguments.items():
        checks = ARGUMENTS.get(argument)
        if checks is None or (argument in _STREAMS_OWN and kind != "stream"):
            continue  # RabbitMQ ignores arguments that it does not know
        if kind not in checks.types:
            raise PreconditionFailed(
                f"invalid arg '{argument}' {where} of queue type rabbit_{kind}_queue"
            )
        problem = checks.check(value)
        if problem is not None:
            raise PreconditionFailed(problem.format(argument=argument, where=where, queue=queue))
    if "x-dead-letter-routing-key" in arguments and "x-dead-letter-exchange" not in arguments:
        raise PreconditionFailed(
            f"invalid arg 'x-dead-letter-routing-key' {where}: routing_key_but_no_dlx_defined"
        )
    refused = {"auto-delete": auto_delete, "exclusive-owner": exclusive, "non-durable": not durable}
    if kind != "classic" and any(refused.values()):
        first = next(name for name, is_set in refused.items() if is_set)
        raise PreconditionFailed(f"invalid property '{first}' {where}")
    return _effective(kind, merge_arguments(kind, arguments, policy or {}))


def check_equivalent(
    name: str, vhost: str, declared: Mapping[str, Any], repeated: Mapping[str, Any]
) -> None:
    """Refuse a second declaration whose arguments, of those that the queue's type has, differ from those of the first."""
    classic = {"x-queue-type": "classic"}
    declared, repeated = {**classic, **declared}, {**classic, **repeated}
    where = f"for queue '{name}' in vhost '{vhost}'"
    for argument, checks in ARGUMENTS.items():
        if declared["x-queue-type"] in checks.types and argument not in _STREAMS_OWN:
            check_same_argument(argument, where, declared.get(argument), repeated.get(argument))


def check_same_argument(argument: str, where: str, before: Any, now: Any) -> None:
    """Refuse an argument whose value, or its type, is not that of the first declaration."""
    if type(before) is type(now) and before == now:
        return
    if before is None or now is None:
        said = f"received {_value_or_none(now)} but current is {_value_or_none(before)}"
    else:
        said = f"received '{plain_value(now)}' but current is '{plain_value(before)}'"
    raise PreconditionFailed(f"inequivalent arg '{argument}' {where}: {said}")


def type_name(value: object) -> str:
    """The name of the AMQP type of a value."""
    match value:
        case bool():
            return "bool"
        case int():
            return "signedint" if -(2**31) <= value < 2**31 else "long"
        case str():
            return "longstr"
        case bytes() | bytearray():
            return "binary"
        case Decimal():
            return "decimal"
        case float():
            return "double"
        case Mapping():
            return "table"
        case list() | tuple():
            return "array"
        case None:
            return "void"
        case _:
            return "timestamp"


def age_seconds(text: str) -> int | None:
    """The seconds of a text like `7D`, at most fifty years; None if it is no age, or zero."""
    match = _AGE.fullmatch(text)
    return (int(min(float(match[1]) * _SECONDS[match[2]], MAX_AGE_S)) or None) if match else None


# ---- the checks


def _integer(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return f"invalid arg '{{argument}}' {{where}}: \"expected integer, got {type_name(value)}\""
    return None


def _invalid(reason: str) -> str:
    return "invalid arg '{argument}' {where}: " + reason.replace("{", "{{").replace("}", "}}")


def _not_negative(value: Any) -> str | None:
    if problem := _integer(value):
        return problem
    return _invalid(f"{{value_negative,{value}}}") if value < 0 else None


def _positive(value: Any) -> str | None:
    if problem := _not_negative(value):
        return problem
    return _invalid(f"{{value_zero,{value}}}") if value == 0 else None


def _timer(value: Any) -> str | None:
    if problem := _not_negative(value):
        return problem
    return _invalid(f"{{value_too_large,{value}}}") if value > MAX_TIMER_MS else None


def _expiry(value: Any) -> str | None:
    return _timer(value) or _positive(value)


def _priority(value: Any) -> str | None:
    if problem := _not_negative(value):
        return problem
    return _invalid(f"{{max_value_exceeded,{value}}}") if value > 255 else None


def _exchange(value: Any) -> str | None:
    if isinstance(value, str):
        return None
    return f"invalid type '{type_name(value)}' for arg '{{argument}}' in {{queue}}"


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return None
    return _invalid(f"{{unacceptable_type,{type_name(value)}}}")


def _one_of(*words: str, reason: str) -> ArgumentCheck:
    def check(value: Any) -> str | None:
        if not isinstance(value, str):
            return _invalid(f"{{unacceptable_type,{type_name(value)}}}")
        return None if value in words else _invalid(reason.format(value))

    return check


def _boolean(value: Any) -> str | None:
    if isinstance(value, bool):
        return None
    return _invalid(f"{{unacceptable_type,{type_name(value)}}}")


def _version(value: Any) -> str | None:
    if problem := _not_negative(value):
        return problem
    return None if value in (1, 2) else _invalid(f"\"unsupported queue version '{value}'\"")


def _max_age(value: Any) -> str | None:
    if not isinstance(value, str):
        return _invalid(f"{{unacceptable_type,{type_name(value)}}}")
    return None if age_seconds(value) is not None else _invalid("invalid_max_age")


def _segment_bytes(value: Any) -> str | None:
    if problem := _not_negative(value):
        return problem
    return "Exceeded max value for {argument}" if value > MAX_SEGMENT_BYTES else None


def _filter_size(value: Any) -> str | None:
    if problem := _integer(value):
        return problem
    return None if 16 <= value <= 255 else "Invalid value for  {argument}"


def _names(value: Any) -> str | None:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return None
    return _invalid(f'"expected array of longstr, got {type_name(value)}"')


def _filter(value: Any) -> str | None:
    read_filter(value, "for a queue")
    return None


def _anything(value: Any) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of queues: what its value must be, and the types of queue that have it."""

    check: ArgumentCheck
    types: tuple[str, ...] = QUEUE_TYPES


_CLASSIC: Final = ("classic",)
_QUORUM: Final = ("quorum",)
_STREAM: Final = ("stream",)
_BOTH: Final = ("classic", "quorum")
_STREAMS_OWN: Final = (
    "x-stream-filter-size-bytes",
)  # ignored elsewhere, and when it is declared again

ARGUMENTS: Final[dict[str, Argument]] = {
    "x-queue-type": Argument(_anything),
    "x-message-ttl": Argument(_timer, _BOTH),
    "x-expires": Argument(_expiry, _BOTH),
    "x-max-length": Argument(_not_negative, _BOTH),
    "x-max-length-bytes": Argument(_not_negative),
    "x-overflow": Argument(_one_of(*OVERFLOWS, reason="invalid_overflow"), _BOTH),
    "x-dead-letter-exchange": Argument(_exchange, _BOTH),
    "x-dead-letter-routing-key": Argument(_text, _BOTH),
    "x-dead-letter-strategy": Argument(
        _one_of("at-most-once", "at-least-once", reason="invalid_dlx_strategy"), _QUORUM
    ),
    "x-max-priority": Argument(_priority, _CLASSIC),
    "x-single-active-consumer": Argument(_boolean, _BOTH),
    "x-queue-mode": Argument(
        _one_of("default", "lazy", reason="\"unsupported queue mode '{}'\""), _CLASSIC
    ),
    "x-queue-version": Argument(_version, _CLASSIC),
    "x-queue-master-locator": Argument(_anything, _CLASSIC),
    "x-queue-leader-locator": Argument(_one_of(*LOCATORS, reason="invalid_queue_locator_arg")),
    "x-delivery-limit": Argument(_anything, _QUORUM),
    "x-consumer-timeout": Argument(_not_negative),
    "x-delayed-retry-type": Argument(
        _one_of("all", "failed", "returned", "disabled", reason="invalid_delayed_retry_type"),
        _QUORUM,
    ),
    "x-delayed-retry-min": Argument(_positive, _QUORUM),
    "x-delayed-retry-max": Argument(_positive, _QUORUM),
    "x-quorum-initial-group-size": Argument(_positive, _QUORUM),
    "x-max-in-memory-length": Argument(_not_negative, _QUORUM),
    "x-max-in-memory-bytes": Argument(_not_negative, _QUORUM),
    X_FILTER: Argument(_filter),
    "x-unmatched": Argument(
        _one_of(*UNMATCHED, reason=f"\"expected {', '.join(UNMATCHED)}, got '{{}}'\""), _BOTH
    ),
    "x-unmatched-after": Argument(_timer, _BOTH),
    "x-max-age": Argument(_max_age, _STREAM),
    "x-stream-max-segment-size-bytes": Argument(_segment_bytes, _STREAM),
    "x-stream-filter-size-bytes": Argument(_filter_size, _STREAM),
    "x-stream-indexed": Argument(_names, _STREAM),
    "x-initial-cluster-size": Argument(_positive, _STREAM),
}


def _queue_type(arguments: Mapping[str, Any], where: str) -> QueueType:
    value = arguments.get("x-queue-type", "classic")
    if not isinstance(value, str):
        raise PreconditionFailed(
            f"invalid arg 'x-queue-type' {where}: {{unacceptable_type,{type_name(value)}}}"
        )
    if value not in QUEUE_TYPES:
        raise PreconditionFailed(
            f"invalid arg 'x-queue-type' {where}: \"unsupported queue type '{value}'\""
        )
    return value  # type: ignore[return-value]


def _effective(kind: QueueType, arguments: Mapping[str, Any]) -> QueueDefinition:
    get = arguments.get
    limit = get("x-delivery-limit")
    if isinstance(limit, bool) or not isinstance(
        limit, int
    ):  # RabbitMQ accepts such a value, and ignores it
        limit = DELIVERY_LIMIT
    overflow = get("x-overflow", "drop-head")
    if (
        kind == "quorum" and overflow == "reject-publish-dlx"
    ):  # accepted by RabbitMQ, which does not have it
        overflow = "drop-head"
    age = get("x-max-age")
    return QueueDefinition(
        type=kind,
        message_ttl=get("x-message-ttl"),
        expires=get("x-expires"),
        max_length=get("x-max-length"),
        max_bytes=get("x-max-length-bytes"),
        overflow=overflow,
        dead_letter_exchange=get("x-dead-letter-exchange"),
        dead_letter_key=get("x-dead-letter-routing-key"),
        max_priority=get("x-max-priority", 0),
        single_active=get("x-single-active-consumer", False),
        delivery_limit=limit if kind == "quorum" and limit >= 0 else None,
        consumer_timeout=get("x-consumer-timeout"),
        retry=_retry(
            get("x-delayed-retry-type"), get("x-delayed-retry-min"), get("x-delayed-retry-max")
        ),
        max_age=None if age is None else age_seconds(age),
        segment_bytes=get("x-stream-max-segment-size-bytes"),
        filter_size=get("x-stream-filter-size-bytes"),
        indexed=tuple(get("x-stream-indexed", ())),
        filter=read_filter(get(X_FILTER, ""), ""),
        unmatched=get("x-unmatched", "keep"),
        unmatched_after=get("x-unmatched-after", 0),
    )


def _retry(type: str | None, least: int | None, most: int | None) -> DelayedRetry | None:
    if type in (None, "disabled") or least is None:
        return None
    return DelayedRetry(type, least, most or least)


def plain_value(value: Any) -> str:
    """A value as RabbitMQ prints it."""
    if value is None:
        return "undefined"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _value_or_none(value: Any) -> str:
    return (
        "none"
        if value is None
        else f"the value '{plain_value(value)}' of type '{type_name(value)}'"
    )
