"""The keys of policies, and what their values must be.

Keys and the words of refusals are those of RabbitMQ 4.0.5; `filter`, `unmatched` and `unmatched-after` are ours. Keys
about clusters, federation and mirrors are accepted where RabbitMQ accepts them, and mean nothing here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from headgate.broker.name_patterns import check_pattern
from headgate.broker.refusals import PreconditionFailed
from headgate.errors import FilterError
from headgate.filters import parse

MAX_TIMER_MS: Final = 315_360_000_000  # ten years
MAX_SEGMENT_BYTES: Final = 3_000_000_000
FEDERATION: Final = (
    "federation-upstream",
    "federation-upstream-set",
    "federation-upstream-pattern",
)


class PolicyKey(NamedTuple):
    """The check of a key's value, and the name of the key in a refusal."""

    check: Callable[[Any], bool]
    called: str
    for_operators: bool = False


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_not_negative(value: Any) -> bool:
    return _is_number(value) and value >= 0


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value >= 1


def _is_time(value: Any) -> bool:
    return _is_not_negative(value) and value <= MAX_TIMER_MS


def _is_positive_time(value: Any) -> bool:
    return _is_time(value) and value >= 1


def _is_pattern(value: Any) -> bool:
    try:
        check_pattern(value)
    except PreconditionFailed:
        return False
    return True


def _is_filter(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        parse(value)
    except FilterError:
        return False
    return True


def _one_of(*values: Any) -> Callable[[Any], bool]:
    return lambda value: not isinstance(value, bool) and value in values


def _is_age(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"\d+[YMDhms]", value) is not None


_OVERFLOW: Final = _one_of("drop-head", "reject-publish", "reject-publish-dlx")
_LOCATOR: Final = _one_of("client-local", "balanced", "random", "least-leaders")
_MASTER: Final = _one_of("client-local", "random", "min-masters")

KEYS: Final[dict[str, PolicyKey]] = {
    "alternate-exchange": PolicyKey(_is_text, "alternate exchange name"),
    "consumer-timeout": PolicyKey(_is_time, "consumer timeout"),
    "consumer-disconnected-timeout": PolicyKey(_is_time, "consumer disconnected timeout"),
    "dead-letter-exchange": PolicyKey(_is_text, "dead letter exchange name"),
    "dead-letter-routing-key": PolicyKey(_is_text, "dead letter routing key"),
    "dead-letter-strategy": PolicyKey(
        _one_of("at-most-once", "at-least-once"), "dead letter strategy"
    ),
    "message-ttl": PolicyKey(_is_time, "message TTL", True),
    "expires": PolicyKey(_is_positive_time, "queue expiry", True),
    "max-length": PolicyKey(_is_not_negative, "maximum length", True),
    "max-length-bytes": PolicyKey(_is_not_negative, "maximum length in bytes", True),
    "max-in-memory-length": PolicyKey(_is_not_negative, "maximum memory in bytes", True),
    "max-in-memory-bytes": PolicyKey(_is_not_negative, "maximum memory in bytes", True),
    "queue-mode": PolicyKey(_one_of("default", "lazy"), "queue-mode value"),
    "queue-version": PolicyKey(_one_of(1, 2), "queue-version value", True),
    "overflow": PolicyKey(_OVERFLOW, "overflow value", True),
    "delivery-limit": PolicyKey(_is_number, "delivery limit", True),
    "delayed-retry-type": PolicyKey(
        _one_of("all", "failed", "returned", "disabled"), "delayed retry type", True
    ),
    "delayed-retry-min": PolicyKey(_is_positive_time, "delayed retry minimum delay", True),
    "delayed-retry-max": PolicyKey(_is_positive_time, "delayed retry maximum delay", True),
    "max-age": PolicyKey(_is_age, "max age"),
    "stream-max-segment-size-bytes": PolicyKey(
        lambda value: _is_not_negative(value) and value <= MAX_SEGMENT_BYTES, "segment size"
    ),
    "stream-filter-size-bytes": PolicyKey(
        lambda value: _is_number(value) and 16 <= value <= 255,
        "filter size. Valid range is 16-255",
    ),
    "queue-leader-locator": PolicyKey(_LOCATOR, "queue leader locator value"),
    "queue-master-locator": PolicyKey(_MASTER, "queue master locator", True),
    "initial-cluster-size": PolicyKey(_is_not_negative, "cluster size"),
    "target-group-size": PolicyKey(_is_positive, "target count", True),
    "federation-upstream": PolicyKey(_is_text, "federation upstream name"),
    "federation-upstream-set": PolicyKey(_is_text, "federation upstream set name"),
    "federation-upstream-pattern": PolicyKey(_is_pattern, "federation upstream pattern name"),
    "shards-per-node": PolicyKey(_is_not_negative, "number of shards per node"),
    "routing-key": PolicyKey(_is_text, "routing key"),
    "filter": PolicyKey(_is_filter, "filter"),
    "unmatched": PolicyKey(_one_of("keep", "dead-letter", "drop"), "way with unmatched messages"),
    "unmatched-after": PolicyKey(_is_time, "time in milliseconds"),
}

_MIRRORS: Final = frozenset(
    {"ha-mode", "ha-params", "ha-sync-mode", "ha-promote-on-shutdown", "ha-promote-on-failure"}
)
# By type of queue: a policy with one of these keys does not apply to queues of that type.
UNSUPPORTED: Final[dict[str, frozenset[str]]] = {
    "classic": frozenset(
        {
            "max-age", "stream-max-segment-size-bytes", "initial-cluster-size", "delivery-limit",
            "dead-letter-strategy", "max-in-memory-length", "max-in-memory-bytes", "target-group-size",
        }
    ),
    "quorum": _MIRRORS
    | {
        "max-priority", "queue-mode", "single-active-consumer", "queue-master-locator", "max-age",
        "stream-max-segment-size-bytes", "initial-cluster-size",
    },
    "stream": _MIRRORS
    | {
        "expires", "message-ttl", "dead-letter-exchange", "dead-letter-routing-key", "max-length",
        "max-in-memory-length", "max-in-memory-bytes", "max-priority", "overflow", "queue-mode",
        "single-active-consumer", "delivery-limit", "queue-master-locator", "dead-letter-strategy",
        "target-group-size",
    },
    "exchange": frozenset(),
}  # fmt: skip


def check_definition(definition: Any, *, of_operator: bool) -> None:
    """Refuse a definition that is empty, has unknown keys or values that cannot be used."""
    if not isinstance(definition, Mapping):
        raise PreconditionFailed(f"definition must be a dictionary: {show_value(definition)}")
    if not definition:
        raise PreconditionFailed("no policy provided")
    known = {name for name, key in KEYS.items() if key.for_operators or not of_operator}
    unknown = [
        f"{{{show_value(k)},{show_value(v)}}}" for k, v in definition.items() if k not in known
    ]
    if unknown:
        raise PreconditionFailed(f"[{','.join(unknown)}] are not recognised policy settings")
    for name, value in definition.items():
        if not KEYS[name].check(value):
            raise PreconditionFailed(f"{show_value(value)} is not a valid {KEYS[name].called}")
    if sum(name in definition for name in FEDERATION) > 1:
        raise PreconditionFailed(
            f"cannot specify {', '.join(FEDERATION[:2])} or {FEDERATION[2]} together"
        )


def show_value(value: Any) -> str:
    """A value as RabbitMQ prints it."""
    return f'<<"{value}">>' if isinstance(value, str) else json.dumps(value, default=str)
