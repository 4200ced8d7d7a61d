"""A binding: from an exchange to a queue or another exchange, on a condition."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias
from typing import Literal as OneOf

from headgate.checks import suggest
from headgate.errors import BindingRefused, FilterError, NotPermitted
from headgate.filters import FILTER_TYPES, Condition, Filter, parse, to_text
from headgate.matching import PRESENT, Pairs, Presence
from headgate.routing.declarations import DEFAULT
from headgate.routing.values import (
    Arguments,
    arguments_key,
    arguments_of,
    compared_key,
    holds_opaque,
    key_of,
    value_of,
)

DestinationKind: TypeAlias = OneOf["queue", "exchange"]
FilterText: TypeAlias = str | Filter | Condition

X_MATCH: Final = "x-match"
X_FILTER: Final = "x-filter"
BIND_ARGUMENTS: Final = ("source", "queue", "exchange", "key", "arguments", "filter")
MATCHES: Final = ("all", "any", "all-with-x", "any-with-x")


class ToExchange(NamedTuple):
    """A member of an index that is an exchange; a queue is its bare name."""

    name: str


Target: TypeAlias = str | ToExchange


class Binding(NamedTuple):
    """A binding is all it says: to bind twice with equal arguments is to bind once."""

    source: str
    destination: str
    kind: DestinationKind
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

    @property
    def bind_arguments(self) -> dict[str, Any]:
        """The arguments of the `bind` that makes this binding."""
        target = {"source": self.source, self.kind: self.destination, "key": self.key}
        return {**target, "arguments": self.arguments}

    def __str__(self) -> str:
        return f"{self.source!r} to {self.kind} {self.destination!r}"


def describe_condition(key: str, arguments: Mapping[str, Any]) -> str:
    """The condition of a binding with this key and these arguments, in one line."""
    own = (X_MATCH, X_FILTER)
    pairs = [
        f"{name} exists" if value is None else f"{name} = {value!r}"
        for name, value in arguments.items()
        if name not in own
    ]
    joint = " or " if str(arguments.get(X_MATCH)).startswith("any") else " and "
    parts = [f"key {key}" if key else "", joint.join(pairs), arguments.get(X_FILTER) or ""]
    return "; ".join(filter(None, parts)) or "everything"


# ---- from the arguments of a bind


def check_bind_arguments(keywords: object) -> None:
    """Refuse an entry of `bind_all` that is not the arguments of a `bind`."""
    if not isinstance(keywords, Mapping):
        raise BindingRefused(
            f'bind_all: give dicts such as {{"source": "orders", "queue": "eu"}}, not {keywords!r}'
        )
    for name in keywords:
        if name not in BIND_ARGUMENTS:
            raise BindingRefused(
                f"bind_all: bind has no argument {name!r}; {suggest(name, BIND_ARGUMENTS)}"
            )
    if "source" not in keywords:
        raise BindingRefused(f"bind_all: {keywords!r} has no source, which is an exchange")


def make_binding(
    source: str,
    queue: str | None,
    exchange: str | None,
    key: str,
    arguments: Mapping[str, Any] | None,
    filter: FilterText | None,
) -> tuple[Binding, object]:
    """The binding that a `bind` or `unbind` describes, and its filter as it was given, if any.

    Only a filter that is text is in the binding already; see `with_filter`.
    """
    if (queue is None) == (exchange is None):
        raise BindingRefused(
            f"a binding from {source!r} needs a queue or an exchange, and one only"
        )
    if type(key) is not str:
        raise BindingRefused(f"a binding from {source!r}: the key is text, not {key!r}")
    if arguments is not None and not isinstance(arguments, Mapping):
        raise BindingRefused(f"a binding from {source!r}: arguments is a dict, not {arguments!r}")
    if source == DEFAULT or exchange == DEFAULT:
        raise NotPermitted(
            "the default exchange cannot be bound: it reaches every queue by its name"
        )
    if filter is not None:
        if arguments and X_FILTER in arguments:
            raise BindingRefused(f"give the filter once: as filter, or as {X_FILTER}")
        arguments = {**(arguments or {}), X_FILTER: filter if isinstance(filter, str) else ""}
    frozen = _freeze_arguments(source, arguments) if arguments else ()
    if queue is not None:
        binding = _binding_of((source, queue, "queue", key, frozen))
    else:
        binding = Binding(source, str(exchange), "exchange", key, frozen)
    if filter is None and arguments and X_FILTER in arguments:
        filter = arguments[X_FILTER]
        if filter is None:
            raise BindingRefused(
                f"{binding}: {X_FILTER} is there and holds nothing; give a filter, or leave it out"
            )
    return binding, filter


_binding_of: Final = partial(tuple.__new__, Binding)  # half of what calling Binding costs


def parse_filter(given: object, where: str) -> tuple[Filter, str]:
    """The tree and the text of a filter that was given as text, as a condition or as a tree."""
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


def _freeze_arguments(source: str, arguments: Mapping[str, Any]) -> Arguments:
    try:
        frozen = arguments_key(arguments, _argument_key)
    except TypeError as problem:  # names of several kinds have no order
        raise _refuse_names(source) from problem
    if type(frozen[0]) is not str:  # all names are of its kind
        raise _refuse_names(source)
    return frozen


def _refuse_names(source: str) -> BindingRefused:
    return BindingRefused(f"a binding from {source!r}: the names of its arguments must be text")


def _argument_key(value: object) -> Hashable:
    key = key_of(value)
    if holds_opaque(key):
        raise BindingRefused(f"the argument {value!r} is or holds what AMQP has no value for")
    return key


# ---- of a headers exchange


def x_match(binding: Binding) -> str:
    """How a headers binding joins its pairs: one of `MATCHES`, anything else is refused."""
    match = binding.argument(X_MATCH, "all")
    if match not in MATCHES:
        value = value_of(match)
        raise BindingRefused(
            f"{binding}: {X_MATCH} cannot be {value!r} ({type(value).__name__}); "
            f"it is one of {', '.join(MATCHES)}"
        )
    return str(match)


def compared_headers(binding: Binding, match: str) -> list[tuple[str, Any]]:
    """The (name, key) pairs a headers binding compares; the key is PRESENT where any value will do."""
    frozen = binding.frozen
    with_x = match.endswith("-with-x")
    return [
        (name, PRESENT if key == _VOID else compared_key(key))
        for name, key in zip(frozen[::2], frozen[1::2], strict=True)
        if name[:2] != "x-" or (with_x and name not in _OURS)
    ]


def header_conjunctions(binding: Binding) -> Sequence[Pairs]:
    """The conjunctions of pairs, one of which must hold; refuses a bad x-match."""
    frozen = binding.frozen
    # Names are sorted: with the last before x- there is no x-match and nothing to leave out. Keys of text and
    # integers are compared as they are.
    if not frozen or (frozen[-2] < "x-" and tuple not in map(type, frozen)):
        return (frozen,)
    match = x_match(binding)
    pairs = [
        (Presence(name) if key is PRESENT else name, key)
        for name, key in compared_headers(binding, match)
    ]
    return (tuple(chain.from_iterable(pairs)),) if match.startswith("all") else pairs


_VOID: Final = key_of(None)
_OURS: Final = (X_MATCH, X_FILTER)
