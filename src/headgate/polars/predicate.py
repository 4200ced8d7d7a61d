"""A predicate of Polars -> a filter that is TRUE for all rows the predicate selects, and for as few others as possible.

The predicate arrives as the JSON of Polars' expression tree. Parts that are unknown here, or that a filter decides differently,
are left out, which is always right: Polars applies the whole predicate to the rows that the filter leaves.

- A column shows one kind of a header. The filter compares a header of any kind, so it selects at least these rows.
- Integers are compared with integers exactly. Doubles are compared only with literals below 2^53, since a column of doubles
  shows integers as the nearest double.
- Polars and the filter order texts by code points.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from headgate.columns import PlainColumn
from headgate.errors import FilterError
from headgate.filters import (
    MAX_IN_ITEMS,
    TRUE,
    And,
    Compare,
    CompareOp,
    Filter,
    In,
    IsNull,
    Like,
    Literal,
    Or,
    join_terms,
)
from headgate.message import INT64_MAX, INT64_MIN

MOST_ITEMS: Final = 4096  # of `is_in`; with more, finding the chunks takes longer than it saves
_EXACT: Final = 2.0**53  # below it, every integer is a double
_COMPARISONS: Final[dict[str, CompareOp]] = {
    "Eq": "=",
    "EqValidity": "=",
    "NotEq": "<>",
    "Gt": ">",
    "GtEq": ">=",
    "Lt": "<",
    "LtEq": "<=",
}
_MIRRORED: Final[dict[CompareOp, CompareOp]] = {
    "=": "=",
    "<>": "<>",
    ">": "<",
    ">=": "<=",
    "<": ">",
    "<=": ">=",
}
_PATTERNS: Final = {"StartsWith": "{}%", "EndsWith": "%{}", "Contains": "%{}%"}
_BETWEEN: Final[dict[str, tuple[CompareOp, CompareOp]]] = {
    "Both": (">=", "<="),
    "Left": (">=", "<"),
    "Right": (">", "<="),
    "None": (">", "<"),
}
_ESCAPE: Final = "\\"
_INTEGERS: Final = ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Int")

Node = Any  # a part of the JSON tree: a dict with one key, or text


@dataclass(frozen=True, slots=True)
class Pushed:
    """The parts of a predicate that a scan applies: a filter, and offsets in [low, high)."""

    filter: Filter = TRUE
    low: int = 0
    high: int = INT64_MAX


def translate(predicate: str, columns: Mapping[str, PlainColumn]) -> Pushed:
    """Translate the JSON of a predicate over these columns."""
    try:
        return _translate_all(json.loads(predicate), columns)
    except (KeyError, ValueError, TypeError, AttributeError, IndexError):
        return Pushed()  # another version of Polars may write the tree in another way


def _translate_all(tree: Node, columns: Mapping[str, PlainColumn]) -> Pushed:
    terms: list[Filter] = []
    low, high = 0, INT64_MAX
    for node in _conjuncts(tree):
        bounds = _offset_bounds(node)
        if bounds is not None:
            low, high = max(low, bounds[0]), min(high, bounds[1])
        elif (term := _term(node, columns)) is not None:
            terms.append(term)
    return Pushed(join_terms(And, terms) if terms else TRUE, low, high)


def _conjuncts(node: Node) -> Iterable[Node]:
    op, left, right = _binary(node)
    if op in ("And", "LogicalAnd"):
        yield from _conjuncts(left)
        yield from _conjuncts(right)
    else:
        yield node


def _term(node: Node, columns: Mapping[str, PlainColumn]) -> Filter | None:
    """Return a filter that is TRUE wherever the node is; None: there is none."""
    try:
        return _translate(node, columns)
    except FilterError:  # a text that no message can contain, or more than a filter can hold
        return None


def _translate(node: Node, columns: Mapping[str, PlainColumn]) -> Filter | None:
    op, left, right = _binary(node)
    if op in ("And", "LogicalAnd"):
        both = [term for side in (left, right) if (term := _term(side, columns)) is not None]
        return join_terms(And, both) if both else None
    if op in ("Or", "LogicalOr"):
        first, second = _term(left, columns), _term(right, columns)
        return None if first is None or second is None else join_terms(Or, (first, second))
    if op in _COMPARISONS:
        return _comparison(_COMPARISONS[op], left, right, columns)
    column = _column(node, columns)
    if column is not None:  # a column of booleans is a predicate
        return _compare("=", column, Literal(True)) if column.views == ("bool",) else None
    return _function(node, columns)


def _comparison(
    op: CompareOp, left: Node, right: Node, columns: Mapping[str, PlainColumn]
) -> Filter | None:
    if _column(left, columns) is None:
        op, left, right = _MIRRORED[op], right, left
    column = _column(left, columns)
    return None if column is None else _compare(op, column, _literal(right, column))


def _compare(op: CompareOp, column: PlainColumn, literal: Literal | None) -> Filter | None:
    if literal is None or column.field is None:
        return None
    if literal.kind == "bool" and op not in ("=", "<>"):
        return None
    return Compare(op, column.field, literal)


def _function(node: Node, columns: Mapping[str, PlainColumn]) -> Filter | None:
    name, inputs, options = _call(node)
    column = _column(inputs[0], columns) if inputs else None
    if column is None:
        return _negated(inputs[0], columns) if name == "Not" else None
    if column.field is None:
        return None
    if name == "Not" and column.views == ("bool",):
        return Compare("=", column.field, Literal(False))
    if name == "IsNotNull":
        return IsNull(column.field, negated=True)
    if name == "IsNull" and column.field.scope == "sys":
        return IsNull(column.field)
    if name == "IsIn":
        return _membership(column, inputs[1], negated=False)
    if name == "IsBetween":
        low, high = _BETWEEN[options["closed"]]
        ends = [
            _compare(op, column, _literal(bound, column))
            for op, bound in zip((low, high), inputs[1:], strict=True)
        ]
        found = [end for end in ends if end is not None]
        return join_terms(And, found) if found else None
    if name in _PATTERNS and (name != "Contains" or options.get("literal") is True):
        return _pattern(_PATTERNS[name], column, inputs[1])
    return None


def _negated(node: Node, columns: Mapping[str, PlainColumn]) -> Filter | None:
    """Translate a negated `is_in`; a negated comparison arrives as the opposite one."""
    name, inputs, options = _call(node)
    column = _column(inputs[0], columns) if inputs else None
    if name != "IsIn" or column is None or options.get("nulls_equal"):
        return None  # with `nulls_equal`, a row without a value is in no list of values: it is selected
    return _membership(column, inputs[1], negated=True)


def _membership(column: PlainColumn, node: Node, *, negated: bool) -> Filter | None:
    values = _list(node)
    if values is None or column.field is None or not 0 < len(values) <= MOST_ITEMS:
        return None
    literals = [_value_literal(value, column) for value in values if value is not None]
    known = [literal for literal in literals if literal is not None]
    if not known or len(known) < len(values):
        return None
    lists = [
        In(column.field, tuple(known[at : at + MAX_IN_ITEMS]), negated)
        for at in range(0, len(known), MAX_IN_ITEMS)
    ]
    return join_terms(And if negated else Or, lists)


def _pattern(form: str, column: PlainColumn, node: Node) -> Filter | None:
    literal = _literal(node, column)
    if literal is None or column.field is None or not isinstance(literal.value, str):
        return None
    text = "".join(_ESCAPE + c if c in ("%", "_", _ESCAPE) else c for c in literal.value)
    return Like(column.field, form.format(text), _ESCAPE)


# ---- offsets -----------------------------------------------------------------------------------------


def _offset_bounds(node: Node) -> tuple[int, int] | None:
    """Return the offsets [low, high) that the node selects; None when it is about something else."""
    op, left, right = _binary(node)
    if op in _COMPARISONS and left == {"Column": "offset"}:
        value = _integer(right)
        return None if value is None else _bounds(_COMPARISONS[op], value)
    name, inputs, options = _call(node)
    if name == "IsBetween" and inputs[0] == {"Column": "offset"}:
        values = [_integer(bound) for bound in inputs[1:]]
        ends = [
            (0, INT64_MAX) if value is None else _bounds(op, value) or (0, INT64_MAX)
            for op, value in zip(_BETWEEN[options["closed"]], values, strict=True)
        ]
        return ends[0][0], ends[1][1]
    return None


def _bounds(op: CompareOp, value: int) -> tuple[int, int] | None:
    if op == "<>":
        return None
    low = {"=": value, ">=": value, ">": value + 1}.get(op, 0)
    high = {"=": value + 1, "<=": value + 1, "<": value}.get(op, INT64_MAX)
    return max(low, 0), min(max(high, 0), INT64_MAX)


# ---- the tree ----------------------------------------------------------------------------------------


def _binary(node: Node) -> tuple[str, Node, Node]:
    """Return operator and operands; an empty operator for another node."""
    inner = node.get("BinaryExpr") if isinstance(node, dict) else None
    return ("", None, None) if inner is None else (inner["op"], inner["left"], inner["right"])


def _call(node: Node) -> tuple[str, list[Node], dict[str, Any]]:
    """Return name, arguments and options of a function; an empty name for another node."""
    inner = node.get("Function") if isinstance(node, dict) else None
    if inner is None or not isinstance(inner["function"], dict):
        return "", [], {}
    (family, function), *_ = inner["function"].items()
    if family not in ("Boolean", "StringExpr"):
        return "", [], {}
    if isinstance(function, str):
        return function, inner["input"], {}
    (name, options), *_ = function.items()
    return name, inner["input"], options


def _column(node: Node, columns: Mapping[str, PlainColumn]) -> PlainColumn | None:
    name = node.get("Column") if isinstance(node, dict) else None
    return columns.get(name) if isinstance(name, str) else None


def _scalar(node: Node) -> tuple[str, Any]:
    """Return the type and the value of a literal; an empty type for another node."""
    inner = node.get("Literal") if isinstance(node, dict) else None
    if not isinstance(inner, dict):
        return "", None
    ((_, scalar),) = inner.items()  # Scalar, or Dyn for one whose type was not decided
    if not isinstance(scalar, dict) or len(scalar) != 1:
        return "", None
    ((kind, value),) = scalar.items()
    return kind, value


def _integer(node: Node) -> int | None:
    kind, value = _scalar(node)
    return value if kind in _INTEGERS and INT64_MIN < value < INT64_MAX else None


def _literal(node: Node, column: PlainColumn) -> Literal | None:
    kind, value = _scalar(node)
    if kind == "Datetime":
        moment, unit, zone = value
        is_moment = unit == "Microseconds" and zone == {"inner": "UTC"}
        return Literal(moment) if is_moment and pa.types.is_timestamp(column.type) else None
    if kind in ("String", "Boolean", "Float64", "Float", *_INTEGERS):
        return _value_literal(value, column)
    return None


def _value_literal(value: object, column: PlainColumn) -> Literal | None:
    """Return the value as a literal, if a filter compares the column with it exactly as Polars does."""
    kind = column.type
    if isinstance(value, bool):
        return Literal(value) if pa.types.is_boolean(kind) else None
    if isinstance(value, str):
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        return Literal(value) if is_text or kind == pa.string_view() else None
    if isinstance(value, int) and pa.types.is_integer(kind):
        return Literal(value) if INT64_MIN <= value <= INT64_MAX else None
    if isinstance(value, int | float) and pa.types.is_floating(kind):
        exact = math.isfinite(value) and abs(value) < _EXACT
        return Literal(float(value)) if exact else None
    return None


def _list(node: Node) -> list[Any] | None:
    """Return the values of a list, which Polars writes as a stream of Arrow; None when it is none."""
    kind, content = _scalar(node)
    if kind != "List" or not isinstance(content, list):
        return None
    try:
        table = pa.ipc.open_stream(bytes(content)).read_all()
        return list(table.column(0).to_pylist())
    except (pa.ArrowException, ValueError, IndexError):
        return None
