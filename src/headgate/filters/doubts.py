"""What the author of a filter may not have meant, told from the filter alone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Final

from headgate.filters.nodes import (
    FALSE,
    TRUE,
    Arith,
    Compare,
    Field,
    Filter,
    In,
    Like,
    Literal,
    Node,
    fields_read,
    walk,
)
from headgate.filters.normal import normalize
from headgate.filters.printer import operand_text, to_text
from headgate.message import Scalar

_JMS: Final = {  # what JMS calls a field of the message itself
    "JMSType": "p.subject (AMQP 1.0) or p.type (AMQP 0-9-1)",
    "JMSPriority": "sys.priority",
    "JMSTimestamp": "sys.timestamp, which is in microseconds",
    "JMSMessageID": "sys.id",
    "JMSCorrelationID": "p.correlation_id",
    "JMSReplyTo": "p.reply_to",
    "JMSDestination": "sys.topic",
    "JMSExpiration": "p.absolute_expiry_time",
    "JMSXGroupID": "p.group_id",
    "JMSXGroupSeq": "p.group_sequence",
    "JMSXUserID": "p.user_id",
}
_SYSTEM: Final = frozenset(("topic", "priority", "timestamp", "id", "filter_value", "key"))
_CONTENT: Final = frozenset(("payload", "body"))


def doubts(node: Filter) -> Iterator[str]:
    """Yield everything that may be a mistake, the likely ones first."""
    yield from likely_mistakes(node)
    yield from dict.fromkeys(_leaf_doubts(node))
    yield from _mixed_kinds(node)


def likely_mistakes(node: Filter) -> Iterator[str]:
    """Yield what hardly anybody means: a constant filter, text in the place of a name, the names of JMS."""
    normal = normalize(node).tree
    if normal == FALSE and node != FALSE:
        yield "the filter can never be TRUE: it matches nothing"
    if normal == TRUE and node != TRUE:
        yield "the filter is always TRUE: it matches everything"
    for leaf in walk(node):
        match leaf:
            case (
                Compare(left=Literal(value=str(text)))
                | In(value=Literal(value=str(text)))
                | Like(value=Literal(value=str(text)))
            ) if not fields_read(leaf):
                name = operand_text(Field("header", text)) if text.isprintable() and text else "[…]"
                yield f"{to_text(leaf)} compares the text '{text}'; the header of that name is {name}, without quotes"
            case Field(scope="header", name=name) if name in _JMS:
                yield f"{name} is a header of that name here; the field of the message is {_JMS[name]}"
            case Compare() | In() | Like() if normalize(leaf).tree == FALSE:
                yield from _why_never(leaf)


def _why_never(leaf: Compare | In | Like) -> Iterator[str]:
    """Say what was meant by a comparison with text that no message makes TRUE."""
    value = leaf.left if isinstance(leaf, Compare) else leaf.value
    if value == Field("sys", "timestamp"):
        yield f"{to_text(leaf)} is never TRUE: sys.timestamp is a number; write TIMESTAMP '…'"
    elif isinstance(value, Arith) and all(map(_joins_names, walk(value))):
        name = operand_text(value).replace(" ", "")
        yield f"{to_text(leaf)} is never TRUE: it subtracts; the header of that name is [{name}]"


def _joins_names(node: Node) -> bool:
    return isinstance(node, Field) or (isinstance(node, Arith) and node.op == "-")


def _leaf_doubts(node: Filter) -> Iterator[str]:
    for leaf in walk(node):
        match leaf:
            case Field(scope="header", name=name) if name in _SYSTEM:
                yield f"{name} is a header of that name; the {name} of the message is sys.{name}"
            case Field(scope="header", name=name) if name in _CONTENT:
                yield f"{name} is a header of that name; a filter does not see the payload of a message"
            case (
                Compare(op=op, left=Field() as field, right=Literal() as literal)
                | Compare(op=op, left=Literal() as literal, right=Field() as field)
            ):
                yield from _time_doubts(field, literal)
                yield from _kind_doubts(field, (literal,) if op in ("=", "<>") else ())
            case In(value=Field() as field, items=items):
                literals = tuple(item for item in items if isinstance(item, Literal))
                yield from _kind_doubts(field, literals)
                yield from _in_doubts(leaf, literals)
        match leaf:
            case (
                Compare(op="<>", left=Field(scope="header") as field)
                | In(value=Field(scope="header") as field, negated=True)
            ):
                name = operand_text(field)
                yield (
                    f"{to_text(leaf)} does not match messages without {name}; "
                    f"add OR {name} IS NULL if it should"
                )


def _time_doubts(field: Field, literal: Literal) -> Iterator[str]:
    if field == Field("sys", "timestamp") and _is_seconds(literal.value):
        yield (
            f"sys.timestamp is in microseconds since 1970, so {literal.value} is long ago; "
            "write TIMESTAMP '…'"
        )


def _kind_doubts(field: Field, literals: tuple[Literal, ...]) -> Iterator[str]:
    name = operand_text(field)
    for literal in literals:
        if field.scope == "header" and literal.kind in ("int", "float"):
            yield (
                f"{name} is compared with the number {literal.value}: a header sent as the text "
                f"'{literal.value}' does not match"
            )
        elif (
            field.scope == "header"
            and isinstance(literal.value, str)
            and _looks_numeric(literal.value)
        ):
            yield (
                f"{name} is compared with the text '{literal.value}': a header sent as a number "
                "does not match"
            )


def _in_doubts(leaf: In, literals: tuple[Literal, ...]) -> Iterator[str]:
    kinds = {kind_class(x.kind) for x in literals}
    if len(kinds) > 1 and leaf.negated:
        yield f"{to_text(leaf)} mixes {_list_kinds(kinds)}: one comparison is always UNKNOWN, so it is never TRUE"
    elif len(kinds) > 1:
        yield f"{to_text(leaf)} mixes {_list_kinds(kinds)}; each matches only headers of its own kind"


def _mixed_kinds(node: Filter) -> Iterator[str]:
    """Warn of a header that is compared as text in one place and as a number in another."""
    compared = ((f.name, kind) for f, kind in compared_kinds(node) if f.scope == "header")
    for name, group in groupby(sorted(set(compared)), key=lambda pair: pair[0]):
        kinds = {kind for _, kind in group}
        if len(kinds) > 1:
            yield f"{name} is compared as {_list_kinds(kinds)} in the same filter; a header has one kind"


def compared_kinds(node: Filter) -> Iterator[tuple[Field, str]]:
    """Yield every field that is compared with a constant, and the class of kinds that the constant has."""
    for leaf in walk(node):
        match leaf:
            case (
                Compare(left=Field() as field, right=Literal(kind=kind))
                | Compare(left=Literal(kind=kind), right=Field() as field)
            ):
                yield field, kind_class(kind)
            case In(value=Field() as field, items=items):
                yield from ((field, kind_class(i.kind)) for i in items if isinstance(i, Literal))
            case Like(value=Field() as field):
                yield field, "string"


def kind_class(kind: str) -> str:
    """The kinds that can be compared with each other: an int and a float are numbers."""
    return "number" if kind in ("int", "float") else kind


def _is_seconds(value: Scalar) -> bool:
    # Before 1973 in microseconds, a plausible date in seconds or milliseconds.
    return not isinstance(value, str) and 10**9 <= value < 10**14


def _looks_numeric(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _list_kinds(kinds: set[str]) -> str:
    return " and ".join(sorted(kinds))
