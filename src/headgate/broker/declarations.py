"""Exchanges and bindings as the broker compares, stores and refuses them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from headgate.broker.definition import type_name
from headgate.broker.refusals import PreconditionFailed
from headgate.errors import BindingRefused
from headgate.routing import Binding, Exchange

ALTERNATE: Final = "alternate-exchange"


def binding_name(binding: Binding) -> str:
    """A name under which a binding is stored: equal for equal bindings."""
    digest = hashlib.sha256(repr((binding.key, binding.frozen)).encode()).hexdigest()[:32]
    return "\x00".join((binding.source, binding.kind, binding.destination, digest))


def binding_problem(problem: BindingRefused, arguments: Mapping[str, Any]) -> str:
    """What is wrong with a binding, in RabbitMQ's words where it has them."""
    match = arguments.get("x-match")
    if match is None or "x-match cannot be" not in str(problem):
        return str(problem)
    if isinstance(match, str):
        return f'Invalid x-match field value <<"{match}">>; expected all, any, all-with-x, or any-with-x'
    return f"Invalid x-match field type {type_name(match)} (value {match}); expected longstr"


def check_same_exchange(
    vhost: str, known: Exchange, given: Mapping[str, Any], arguments: Mapping[str, Any]
) -> None:
    """Refuse a second declaration of an exchange that differs from the first."""
    where = f"for exchange '{known.name}' in vhost '{vhost}'"
    for field, value in given.items():
        before = getattr(known, field)
        if value != before:
            received, current = str(value).lower(), str(before).lower()
            raise PreconditionFailed(
                f"inequivalent arg '{field}' {where}: received '{received}' but current is '{current}'"
            )
    alternate = arguments.get(ALTERNATE)
    if alternate != known.alternate:
        raise PreconditionFailed(
            f"inequivalent arg '{ALTERNATE}' {where}: received {_or_none(alternate)} but current is "
            f"{_or_none(known.alternate)}"
        )


def _or_none(value: str | None) -> str:
    return "none" if value is None else f"the value '{value}' of type 'longstr'"
