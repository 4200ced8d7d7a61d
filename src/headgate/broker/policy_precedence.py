"""Which value counts when several sources set the same thing: an argument of the queue, a policy, an operator policy.

The rules are those of RabbitMQ 4.0.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

LOWER_COUNTS: Final = frozenset(
    {
        "message-ttl", "expires", "max-length", "max-length-bytes", "max-in-memory-length",
        "max-in-memory-bytes",
    }
)  # fmt: skip
# Where a quorum queue or a stream has both, the policy counts; elsewhere the argument does.
POLICY_COUNTS: Final = {
    "classic": frozenset[str](),
    "quorum": frozenset({"overflow"}),
    "stream": frozenset(
        {"max-length-bytes", "max-age", "stream-max-segment-size-bytes", "stream-filter-size-bytes"}
    ),
}


def merge_operator(policy: Mapping[str, Any], operator: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values of a policy, limited by those of an operator policy."""
    merged = {**policy, **operator}
    for name in policy.keys() & operator.keys():
        merged[name] = _merge(name, policy[name], operator[name])
    return merged


def merge_arguments(
    kind: str, arguments: Mapping[str, Any], policy: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The arguments that are in effect for a queue: its own, combined with the values of its policies."""
    if not policy:
        return arguments
    merged = dict(arguments)
    for name, value in policy.items():
        argument = f"x-{name}"
        if argument not in arguments or name in POLICY_COUNTS[kind]:
            merged[argument] = value
        elif name == "delivery-limit" and type(arguments[argument]) is not int:
            merged[argument] = value  # RabbitMQ accepts any type here, and ignores all but numbers
        elif name in LOWER_COUNTS or name == "delivery-limit":
            merged[argument] = _merge(name, arguments[argument], value)
    return merged


def _merge(name: str, value: Any, other: Any) -> Any:
    if name in LOWER_COUNTS:
        return min(value, other)
    if name == "delivery-limit":  # negative: no limit
        return max(value, other) if min(value, other) < 0 else min(value, other)
    if name == "target-group-size":
        return max(value, other)
    return other
