"""A binding: from an exchange, to a queue or another exchange, on a condition."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias
from typing import Literal as OneOf

from headgate.errors import BindingRefused, FilterError
from headgate.filters import FILTER_TYPES, Condition, Filter, parse, to_text
from headgate.matching import PRESENT, Presence, Wanted
from headgate.routing.values import (
    Arguments,
    arguments_key,
    arguments_of,
    holds_opaque,
    key_of,
    value_of,
)

Kind: TypeAlias = OneOf["queue", "exchange"]
FilterText: TypeAlias = str | Filter | Condition

X_MATCH: Final = "x-match"
X_FILTER: Final = "x-filter"
MATCHES: Final = ("all", "any", "all-with-x", "any-with-x")


class ToExchange(NamedTuple):
    """A member of an index that is an exchange; a queue is its bare name."""

    name: str


Target: TypeAlias = str | ToExchange


class Binding(NamedTuple):
    """Equal when everything about it is: to bind the same twice is to bind it once."""

    source: str
    destination: str
    kind: Kind
    key: str
    frozen: Arguments = ()

    @property
    def arguments(self) -> dict[str, Any]:
        return arguments_of(self.frozen)

    @property
    def target(self) -> Target:
        return self.destination if self.kind == "queue" else ToExchange(self.destination)

    def argument(self, name: str, default: Any = None) -> Any:
        """The key of one argument's value."""
        names = self.frozen[::2]
        return self.frozen[2 * names.index(name) + 1] if name in names else default

    def with_filter(self, text: str) -> Binding:
        return self._replace(frozen=arguments_key({**self.arguments, X_FILTER: text}))

    @property
    def filter_text(self) -> str | None:
        text: str | None = self.argument(X_FILTER)
        return text

    def __str__(self) -> str:
        return f"{self.source!r} to {self.kind} {self.destination!r}"


def key_to_bind(value: object) -> Hashable:
    """What an argument of a binding is compared by."""
    key = key_of(value)
    if holds_opaque(key):
        raise BindingRefused(f"the argument {value!r} is or holds what AMQP has no value for")
    return key


def filter_and_text(given: object, where: str) -> tuple[Filter, str]:
    """The tree and the text of a filter, however it was given."""
    try:
        if isinstance(given, str):
            return parse(given), given
        if isinstance(given, Condition):
            given = given.filter
        if isinstance(given, FILTER_TYPES):
            return given, to_text(given)
    except FilterError as problem:
        raise BindingRefused(f"{where}: the filter cannot be used: {problem}") from problem
    kind = type(given).__name__
    raise BindingRefused(f"{where}: {X_FILTER} must be the text of a filter, not {kind} {given!r}")


def x_match(binding: Binding) -> str:
    """How a headers binding joins its pairs; anything but the four words is refused."""
    match = binding.argument(X_MATCH, "all")
    if match not in MATCHES:
        given = value_of(match)
        raise BindingRefused(
            f"{binding}: {X_MATCH} cannot be {given!r} ({type(given).__name__}); "
            f"it is one of {', '.join(MATCHES)}"
        )
    return str(match)


def wanted_headers(binding: Binding, match: str) -> list[tuple[str, Any]]:
    """The pairs a headers binding compares: (name, key), or (name, PRESENT) where it asks no more."""
    frozen = binding.frozen
    with_x = match.endswith("-with-x")
    return [
        (name, PRESENT if key == _VOID else key)
        for name, key in zip(frozen[::2], frozen[1::2], strict=True)
        if name[:2] != "x-" or (with_x and name not in _OURS)
    ]


def ways_into(binding: Binding) -> Sequence[Wanted]:
    """The conjunctions of pairs any of which will do; refuses a bad x-match."""
    frozen = binding.frozen
    # Names are sorted: with the last before x- there is no x-match and nothing to leave out.
    if not frozen or (frozen[-2] < "x-" and _VOID not in frozen):
        return (frozen,)
    match = x_match(binding)
    wanted = [
        (Presence(name) if key is PRESENT else name, key)
        for name, key in wanted_headers(binding, match)
    ]
    return (tuple(chain.from_iterable(wanted)),) if match.startswith("all") else wanted


_VOID: Final = key_of(None)
_OURS: Final = (X_MATCH, X_FILTER)
