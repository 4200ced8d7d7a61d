"""Filters in Python: `(header("region") == "EU") & (header("amount") > 1000)`.

A built filter equals the parsed text: `header("a").is_in(1, 2)` is `parse("a IN (1, 2)")`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from headgate.errors import FilterTypeError
from headgate.filters.compile.python import compile_predicate
from headgate.filters.nodes import (
    FILTER_TYPES,
    OPERAND_TYPES,
    And,
    Arith,
    ArithOp,
    Compare,
    CompareOp,
    Exists,
    Field,
    Filter,
    In,
    IsNull,
    Like,
    Literal,
    Negate,
    Operand,
    Or,
    TopicMatch,
    join_terms,
    negation,
)
from headgate.filters.parser import parse
from headgate.filters.printer import to_text
from headgate.message import Message, Scalar

Comparable: TypeAlias = "Scalar | Value"
FilterLike: TypeAlias = "str | Condition | Filter"


class Condition:
    """A filter being built: join with `&` and `|`, negate with `~`; `.filter` is the tree."""

    __slots__ = ("filter",)

    def __init__(self, filter: Filter) -> None:
        self.filter = filter

    def __and__(self, other: Condition) -> Condition:
        return Condition(join_terms(And, (self.filter, as_filter(other))))

    def __or__(self, other: Condition) -> Condition:
        return Condition(join_terms(Or, (self.filter, as_filter(other))))

    def __invert__(self) -> Condition:
        return Condition(negation(self.filter))

    def __bool__(self) -> bool:
        raise FilterTypeError(
            "a condition is neither true nor false by itself: join conditions with & | ~, not with and, or, not; "
            "for `in` write is_in([…])"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Condition) and self.filter == other.filter

    def __hash__(self) -> int:
        return hash(self.filter)

    def __repr__(self) -> str:
        return f"Condition({to_text(self.filter)!r})"


class Value:
    """A value of a message, or a value computed from it."""

    __slots__ = ("operand",)
    __hash__ = None  # type: ignore[assignment]  # == builds a condition, so a Value cannot be a key

    def __init__(self, operand: Operand) -> None:
        self.operand = operand

    def __eq__(self, other: Comparable) -> Condition:  # type: ignore[override]
        return self._compare("=", other)

    def __ne__(self, other: Comparable) -> Condition:  # type: ignore[override]
        return self._compare("<>", other)

    def __lt__(self, other: Comparable) -> Condition:
        return self._compare("<", other)

    def __le__(self, other: Comparable) -> Condition:
        return self._compare("<=", other)

    def __gt__(self, other: Comparable) -> Condition:
        return self._compare(">", other)

    def __ge__(self, other: Comparable) -> Condition:
        return self._compare(">=", other)

    def __add__(self, other: Comparable) -> Value:
        return self._compute("+", other)

    def __sub__(self, other: Comparable) -> Value:
        return self._compute("-", other)

    def __mul__(self, other: Comparable) -> Value:
        return self._compute("*", other)

    def __truediv__(self, other: Comparable) -> Value:
        return self._compute("/", other)

    def __mod__(self, other: Comparable) -> Value:
        return self._compute("%", other)

    def __radd__(self, other: Comparable) -> Value:
        return Value(_operand(other))._compute("+", self)

    def __rsub__(self, other: Comparable) -> Value:
        return Value(_operand(other))._compute("-", self)

    def __rmul__(self, other: Comparable) -> Value:
        return Value(_operand(other))._compute("*", self)

    def __rtruediv__(self, other: Comparable) -> Value:
        return Value(_operand(other))._compute("/", self)

    def __rmod__(self, other: Comparable) -> Value:
        return Value(_operand(other))._compute("%", self)

    def __neg__(self) -> Value:
        return Value(Negate(self.operand))

    def __bool__(self) -> bool:
        raise FilterTypeError("a value is not a condition: compare it with something")

    def is_in(self, *items: Comparable | Iterable[Comparable]) -> Condition:
        """`IN`: equal to one of the items, which may be one list."""
        return Condition(In(self.operand, _items(items)))

    def not_in(self, *items: Comparable | Iterable[Comparable]) -> Condition:
        """`NOT IN`: equal to none of the items."""
        return Condition(In(self.operand, _items(items), negated=True))

    def like(self, pattern: str, escape: str | None = None) -> Condition:
        """`LIKE`: `%` is any run of characters, `_` one character."""
        return Condition(Like(self.operand, pattern, escape))

    def not_like(self, pattern: str, escape: str | None = None) -> Condition:
        """`NOT LIKE`."""
        return Condition(Like(self.operand, pattern, escape, negated=True))

    def between(self, low: Comparable, high: Comparable) -> Condition:
        """`BETWEEN`, bounds included."""
        return (self >= low) & (self <= high)

    def _compare(self, op: CompareOp, other: Comparable) -> Condition:
        return Condition(Compare(op, self.operand, _operand(other)))

    def _compute(self, op: ArithOp, other: Comparable) -> Value:
        return Value(Arith(op, self.operand, _operand(other)))


class Name(Value):
    """A field of the message, which may be absent."""

    __slots__ = ()
    operand: Field

    def is_null(self) -> Condition:
        """`IS NULL`: there is no value that a filter can compare."""
        return Condition(IsNull(self.operand))

    def is_not_null(self) -> Condition:
        """`IS NOT NULL`."""
        return Condition(IsNull(self.operand, negated=True))

    def exists(self) -> Condition:
        """`EXISTS`: there is a value, even one that no filter can compare."""
        return Condition(Exists(self.operand))

    def is_true(self) -> Condition:
        """`= TRUE`."""
        return self == True  # noqa: E712


class Topic(Name):
    """The topic, which patterns match: `topic.matches("orders.#")`."""

    __slots__ = ()

    def matches(self, pattern: str) -> Condition:
        """`MATCHES`: `*` is one word, `#` any number of words."""
        return Condition(TopicMatch(pattern))


def header(name: str) -> Name:
    """Name a header, to build a condition on it.

    from headgate import header

    large = (header("region") == "EU") & (header("amount") > 1000)
    either = header("type").is_in(["created", "paid"]) | header("note").like("urgent%")
    """
    if name == "":
        raise FilterTypeError("a header needs a name")
    return Name(Field("header", name))


def amqp_property(name: str) -> Name:
    """Name an AMQP property, such as `subject` or `reply_to`."""
    return Name(Field("property", name))


topic: Final = Topic(Field("sys", "topic"))
priority: Final = Name(Field("sys", "priority"))
timestamp: Final = Name(Field("sys", "timestamp"))
message_id: Final = Name(Field("sys", "id"))
filter_value: Final = Name(Field("sys", "filter_value"))
key: Final = Name(Field("sys", "key"))


def all_of(*conditions: Condition) -> Condition:
    """Join conditions with AND."""
    if not conditions:
        raise FilterTypeError("all_of needs at least one condition")
    return Condition(join_terms(And, map(as_filter, conditions)))


def any_of(*conditions: Condition) -> Condition:
    """Join conditions with OR."""
    if not conditions:
        raise FilterTypeError("any_of needs at least one condition")
    return Condition(join_terms(Or, map(as_filter, conditions)))


def as_filter(filter: FilterLike) -> Filter:
    """Return the tree of a filter that is a text, a condition or the tree itself."""
    if isinstance(filter, Condition):
        return filter.filter
    if isinstance(filter, str):
        return parse(filter)
    if isinstance(filter, FILTER_TYPES):
        return filter
    raise FilterTypeError(f"expected a filter (text or a condition), not {filter!r}")


def compile_filter(filter: FilterLike) -> Callable[[Message], bool]:
    """Compile a filter to a function that returns True for exactly the messages it matches.

    from headgate import Message, compile_filter

    is_large = compile_filter("region = 'EU' AND amount > 1000")
    assert is_large(Message(b"order 1", headers={"region": "EU", "amount": 1200}))
    assert not is_large(Message(b"order 2", headers={"region": "EU"}))  # a missing header matches nothing
    """
    return compile_predicate(as_filter(filter))


def _operand(value: object) -> Operand:
    if isinstance(value, Value):
        return value.operand
    if isinstance(value, OPERAND_TYPES):
        return value
    return Literal(value)  # type: ignore[arg-type]  # refuses what is not a scalar


def _items(items: tuple[object, ...]) -> tuple[Operand, ...]:
    if len(items) == 1 and isinstance(items[0], list | tuple | set | frozenset):
        only = items[0]
        items = tuple(sorted(only, key=repr) if isinstance(only, set | frozenset) else only)
    return tuple(map(_operand, items))
