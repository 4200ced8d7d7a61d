"""Checks of declared exchanges, queues and bindings, and of repeated declarations; the refusals are RabbitMQ's."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, get_args

from headgate.broker.filter_argument import describe_problem
from headgate.broker.queue_definition import (
    check_equivalent,
    check_same_argument,
    plain_value,
    type_name,
)
from headgate.broker.refusals import AccessRefused, PreconditionFailed, ResourceLocked
from headgate.errors import BindingRefused, FilterSyntaxError
from headgate.routing import DELAYED, DELAYED_TYPE, Binding, Exchange, ExchangeType

if TYPE_CHECKING:
    from headgate.broker.contract import BrokerQueue

ALTERNATE: Final = "alternate-exchange"


def binding_name(binding: Binding) -> str:
    """A name under which a binding is stored: equal for equal bindings."""
    digest = hashlib.sha256(repr((binding.key, binding.frozen)).encode()).hexdigest()[:32]
    return "\x00".join((binding.source, binding.kind, binding.destination, digest))


def binding_problem(problem: BindingRefused, arguments: Mapping[str, Any]) -> str:
    """What is wrong with a binding, in RabbitMQ's words where it has them."""
    if isinstance(problem.__cause__, FilterSyntaxError):
        return describe_problem(problem.__cause__)
    if "x-match" not in arguments or "x-match cannot be" not in str(problem):
        return str(problem)
    match = arguments["x-match"]
    if isinstance(match, str):
        return f'Invalid x-match field value <<"{match}">>; expected all, any, all-with-x, or any-with-x'
    return f"Invalid x-match field type {type_name(match)} (value {plain_value(match)}); expected longstr"


def check_not_default(*names: str) -> None:
    """Refuse the default exchange, which clients cannot declare, bind or delete."""
    if "" in names:
        raise AccessRefused("operation not permitted on the default exchange")


def check_queue_of(source: Exchange, queue: BrokerQueue) -> None:
    """Refuse a queue of a type that cannot be bound to an exchange."""
    kind = queue.definition.type
    if source.routing_type == "x-local-random" and kind != "classic":
        raise PreconditionFailed(f"Queue type rabbit_{kind}_queue not valid for this exchange type")


def check_exchange_type(type: str) -> None:
    """Refuse a type of exchange that does not exist."""
    if type == "":
        raise PreconditionFailed("invalid exchange type ''")
    if type not in get_args(ExchangeType):
        raise PreconditionFailed(f"unknown exchange type '{type}'")


def check_alternate(name: str, vhost: str, arguments: Mapping[str, Any]) -> None:
    """Refuse an alternate exchange that is not given as text."""
    alternate = arguments.get(ALTERNATE, "")
    if not isinstance(alternate, str):
        raise PreconditionFailed(
            f"invalid type '{type_name(alternate)}' for arg '{ALTERNATE}' in exchange '{name}' in vhost '{vhost}'"
        )


def check_same_exchange(
    vhost: str,
    known: Exchange,
    given: Mapping[str, Any],
    arguments: Mapping[str, Any],
    alternate: str | None,
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
    same = [(ALTERNATE, alternate)]
    if known.type == DELAYED:
        same.append((DELAYED_TYPE, known.routing_type))
    for argument, before in same:
        check_same_argument(argument, where, before, arguments.get(argument))


def check_same_queue(
    known: BrokerQueue,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
    arguments: Mapping[str, Any],
) -> None:
    """Refuse a second declaration of a queue that differs from the first."""
    vhost = known.vhost.name
    if exclusive != (known.owner is not None):
        raise ResourceLocked(known.name, vhost)
    for field, now, before in (
        ("durable", durable, known.durable),
        ("auto_delete", auto_delete, known.auto_delete),
    ):
        if now != before:
            raise PreconditionFailed(
                f"inequivalent arg '{field}' for queue '{known.name}' in vhost '{vhost}': "
                f"received '{str(now).lower()}' but current is '{str(before).lower()}'"
            )
    check_equivalent(known.name, vhost, known.arguments, arguments)
