"""What is declared of exchanges and queues. How a queue stores its messages is not for a topology to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias, cast, get_args
from typing import Literal as OneOf

from headgate.checks import check_flag
from headgate.errors import DeclarationRefused, NotEquivalent
from headgate.routing.values import Arguments, arguments_key, arguments_of

ExchangeType: TypeAlias = OneOf[
    "direct",
    "fanout",
    "topic",
    "headers",
    "filter",
    "x-consistent-hash",
    "x-modulus-hash",
    "x-random",
    "x-local-random",
    "x-super-stream",
    "x-delayed-message",
]

EXCHANGE_TYPES: Final[tuple[ExchangeType, ...]] = get_args(ExchangeType)
DEFAULT: Final = ""  # the exchange that reaches every queue by its name
RESERVED: Final = "amq."
STANDARD: Final[dict[str, ExchangeType]] = {
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.headers": "headers",
    "amq.match": "headers",
}
# Holds messages back, which a broker can do and a topology cannot.
DELAYED: Final = "x-delayed-message"
DELAYED_TYPE: Final = "x-delayed-type"  # how it routes a message that is due
ALTERNATE: Final = "alternate-exchange"  # AMQP's name of the argument
# Names the header that a consistent hash takes instead of the routing key.
HASH_HEADER: Final = "hash-header"
HASH_PROPERTY: Final = "hash-property"  # or the property
HASH_PROPERTIES: Final = ("correlation_id", "message_id", "timestamp")


@dataclass(frozen=True, slots=True)
class Exchange:
    """A declared exchange. Messages it cannot route go on to the `alternate` exchange."""

    name: str
    type: ExchangeType = "direct"
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    alternate: str | None = None
    arguments: Arguments = ()

    @property
    def routing_type(self) -> ExchangeType:
        """The type by whose rules it routes; of a delayed exchange, the one it was declared with as its argument."""
        if self.type != DELAYED:
            return self.type
        return cast(ExchangeType, arguments_of(self.arguments)[DELAYED_TYPE])


@dataclass(frozen=True, slots=True)
class QueueDeclaration:
    """A declared queue."""

    name: str
    durable: bool = True
    auto_delete: bool = False
    arguments: Arguments = ()


def make_exchange(
    name: str,
    type: ExchangeType,
    *,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    alternate: str | None,
    arguments: Mapping[str, Any] | None,
) -> Exchange:
    """Check the arguments of a declaration; the alternate may be among AMQP's arguments."""
    check_name("exchange", name)
    if type not in EXCHANGE_TYPES:
        raise DeclarationRefused(
            f"exchange {name!r}: there is no type {type!r}; there are {', '.join(EXCHANGE_TYPES)}"
        )
    for flag, value in (("durable", durable), ("auto_delete", auto_delete), ("internal", internal)):
        check_flag(f"exchange {name!r}: {flag}", value, DeclarationRefused)
    others = dict(arguments or {})
    alternate = others.pop(ALTERNATE, alternate)
    if not isinstance(alternate, str | None):
        raise DeclarationRefused(f"exchange {name!r}: {ALTERNATE} is a name, not {alternate!r}")
    exchange = Exchange(
        name, type, durable, auto_delete, internal, alternate, arguments_key(others)
    )
    if type == DELAYED:
        inner = others.get(DELAYED_TYPE)
        if inner == DELAYED or inner not in EXCHANGE_TYPES:
            raise DeclarationRefused(
                f"exchange {name!r}: {DELAYED_TYPE} is the type by which it routes, such as 'topic', not {inner!r}"
            )
    if exchange.routing_type == "x-consistent-hash":
        _check_hash_arguments(exchange)
    return exchange


def hash_arguments(exchange: Exchange) -> tuple[Any, Any]:
    """What a consistent hash was told to hash: a header and a property, of which at most one is not None."""
    arguments = arguments_of(exchange.arguments)
    return arguments.get(HASH_HEADER), arguments.get(HASH_PROPERTY)


def _check_hash_arguments(exchange: Exchange) -> None:
    header, name = hash_arguments(exchange)
    where = f"exchange {exchange.name!r}"
    if header is not None and name is not None:
        raise DeclarationRefused(f"{where}: {HASH_HEADER} and {HASH_PROPERTY} exclude each other")
    if header is not None and (not isinstance(header, str) or not header):
        raise DeclarationRefused(f"{where}: {HASH_HEADER} is the name of a header, not {header!r}")
    if name is not None and name not in HASH_PROPERTIES:
        known = ", ".join(HASH_PROPERTIES)
        raise DeclarationRefused(f"{where}: {HASH_PROPERTY} is one of {known}, not {name!r}")


def make_queue(
    name: str, *, durable: bool, auto_delete: bool, arguments: Mapping[str, Any] | None
) -> QueueDeclaration:
    """Check the arguments of a declaration."""
    check_name("queue", name)
    for flag, value in (("durable", durable), ("auto_delete", auto_delete)):
        check_flag(f"queue {name!r}: {flag}", value, DeclarationRefused)
    return QueueDeclaration(name, durable, auto_delete, arguments_key(arguments or {}))


def check_name(what: str, name: object) -> None:
    """Refuse a name that is not text."""
    if not isinstance(name, str):
        raise DeclarationRefused(f"the name of the {what} is text, not {name!r}")


def check_equivalent(what: str, declared: Any, repeated: Any) -> None:
    """Refuse a second declaration that differs from the first."""
    for field in fields(declared):
        before, now = getattr(declared, field.name), getattr(repeated, field.name)
        if before != now:
            raise NotEquivalent(what, field.name, before, now)


def declaration_arguments(declared: Exchange | QueueDeclaration) -> dict[str, Any]:
    """The arguments that declare it again, without those that have their default."""
    keywords = {
        field.name: value
        for field in fields(declared)
        if (value := getattr(declared, field.name)) != field.default
    }
    return keywords | (
        {"arguments": arguments_of(declared.arguments)} if declared.arguments else {}
    )
