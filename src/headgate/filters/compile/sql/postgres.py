"""The PostgreSQL dialect.

Headers are `jsonb`, whose numbers keep their point, so `1` and `1.0` stay an int and a float. PostgreSQL types
expressions, not values, and a cast that fails ends the query, so every cast stands inside a CASE: AND promises
no order of evaluation. Text is compared under COLLATE "C", which is the order of code points.

Numbers are computed so that no row can end the query with an error. An operand is an int on one row and a float on the
next, so it is written twice: exactly, as `numeric`, for rows where everything in it is an int, and as a double.
PostgreSQL raises an error where a double overflows, and where a product or quotient underflows to zero. The known
magnitudes tell whether that can happen. If it can, and one side is a constant, the limit is computed here and the
answer stays exact. Between two fields, rows with extreme values are in doubt: the condition lets them through, and
Python checks them.
"""

from __future__ import annotations

import math
import struct
import sys
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.filters.compile.sql.fragment import (
    ALWAYS,
    HOLE,
    NEVER,
    Sql,
    all_of,
    any_of,
    bind,
    is_plain_name,
    list_fragments,
    number_holes,
    space_fragments,
    write,
)
from headgate.filters.compile.sql.writer import Facets, SqlAnswer, SqlWriter, TextFacet, TruthFacet
from headgate.filters.like import Piece
from headgate.filters.nodes import ArithOp, CompareOp, Field
from headgate.filters.normal import EXACT_AS_DOUBLE
from headgate.filters.topics import MANY, ONE, canonical, regex

RANGE: Final = (
    "PostgreSQL raises an error where a float overflows or vanishes, and has no remainder of floats: "
    "where that may happen, Python checks the message"
)
_LIKE_ESCAPED: Final = str.maketrans({"%": r"\%", "_": r"\_", "\\": r"\\"})
INT_HOLE: Final = HOLE + "::bigint"
DOUBLE_HOLE: Final = HOLE + "::float8"

_LEAST: Final = 5e-324
_GREATEST: Final = sys.float_info.max
_INT: Final = (1.0, 2.0**63)  # the magnitudes an int can have, zero aside
_SAFE_TERM: Final = 2.0**1022  # two of these can be added
_SAFE_FACTOR: Final = 1e150  # two of these can be multiplied, and their inverses too
_NO_INT: Final = Sql("NULL::numeric")
_NO_DOUBLE: Final = Sql("NULL::float8")
_ALL_DOUBLES: Final = range(1, struct.unpack("<q", struct.pack("<d", _GREATEST))[0] + 1)


@dataclass(frozen=True, slots=True)
class PostgresNumber:
    integral: Sql  # the condition that everything in it is an int
    whole: Sql  # its exact value then, else NULL
    double: Sql  # its value as a double, on every row
    low: float = _LEAST  # unless it is zero, |double| lies between these
    high: float = _GREATEST
    constant: int | float | None = None
    doubts: tuple[Sql, ...] = ()

    @property
    def size(self) -> int:
        parts = (self.integral, self.whole, self.double, *self.doubts)
        return sum(len(part.text) for part in parts)


class PostgresWriter(SqlWriter[PostgresNumber]):
    hole = HOLE + "::text"
    truths = ("'false'::jsonb", "'true'::jsonb")

    def finish(self, sql: Sql, first_parameter: int) -> Sql:
        return number_holes(sql, first_parameter)

    # -- parts of a message ----------------------------------------------------------------------------------

    def scalar(self, field: Field) -> Sql:
        return self._json("->>", field)

    def kind(self, field: Field) -> Sql:
        return self._json("->", field)

    def _json(self, arrow: str, field: Field) -> Sql:
        name = Sql(f"'{field.name}'") if is_plain_name(field.name) else bind(field.name, self.hole)
        return write(f"({self.layout.column(field)} {arrow} {{0}})", name)

    def is_number(self, field: Field) -> Sql:
        return write("jsonb_typeof{0} = 'number'", self.kind(field))

    def header_text(self, field: Field) -> TextFacet:
        check = write("jsonb_typeof{0} = 'string'", self.kind(field))
        return TextFacet(_collate(self.scalar(field)), check)

    def facets(self, field: Field) -> Facets[PostgresNumber]:
        json = self.kind(field)
        return Facets(
            self.header_text(field),
            json_number(json, self.scalar(field)),
            TruthFacet(json, write("jsonb_typeof{0} = 'boolean'", json)),
        )

    def text_column(self, column: str) -> TextFacet:
        return TextFacet(_collate(Sql(column)), Sql(f"{column} IS NOT NULL"))

    def int_column(self, column: str) -> PostgresNumber:
        return int_number(Sql(column))

    # -- numbers ------------------------------------------------------------------------------------------

    def constant(self, value: int | float) -> PostgresNumber:
        return constant_number(value)

    def arithmetic(
        self, op: ArithOp, left: PostgresNumber, right: PostgresNumber
    ) -> PostgresNumber | None:
        return compute(op, left, right)

    def compare_numbers(
        self, op: CompareOp, left: PostgresNumber, right: PostgresNumber
    ) -> SqlAnswer:
        ints = write(f"{{0}} {op} {{1}}", left.whole, right.whole)
        doubles = write(f"{{0}} {op} {{1}}", left.double, right.double)
        integral = all_of([left.integral, right.integral])
        constant = right.constant
        # As doubles, all ints keep their order to a small number.
        small = constant is not None and abs(constant) < EXACT_AS_DOUBLE
        compared = doubles if small and integral != ALWAYS else choose(integral, ints, doubles)
        return _add_doubts(compared, left.doubts + right.doubts)

    def number_in(
        self, number: PostgresNumber, values: Sequence[int | float], *, negated: bool
    ) -> SqlAnswer:
        word = "NOT IN" if negated else "IN"
        constants = list_fragments(bind(float(value), DOUBLE_HOLE) for value in values)
        return _add_doubts(write(f"{{0}} {word} ({{1}})", number.double, constants), number.doubts)

    # -- text ---------------------------------------------------------------------------------------------

    def text_needs_check(self, op: CompareOp) -> bool:
        return True  # the text of 5 is '5'

    def pattern(self, text: TextFacet, pieces: tuple[Piece, ...]) -> Sql:
        like = "%".join("".join(map(_like_part, piece)) for piece in pieces)
        return write("{0} LIKE {1}", text.value, bind(like, self.hole))

    def topic_match(self, pattern: str) -> SqlAnswer:
        words, topic = canonical(pattern), _collate(Sql(self.layout.topic))
        if ONE in words or MANY in words:
            return SqlAnswer(write("{0} ~ {1}", topic, bind(f"^(?:{regex(pattern)})$", self.hole)))
        return SqlAnswer(write("{0} = {1}", topic, bind(".".join(words), self.hole)))


def _collate(value: Sql) -> Sql:
    return write('{0} COLLATE "C"', value)


def _like_part(part: str | None) -> str:
    return "_" if part is None else part.translate(_LIKE_ESCAPED)


def _add_doubts(compared: Sql, doubts: tuple[Sql, ...]) -> SqlAnswer:
    if not doubts:
        return SqlAnswer(compared)
    # In this order: a doubt is safe to compute once those before it are excluded.
    cases = space_fragments(write("WHEN {0} THEN TRUE", doubt) for doubt in dict.fromkeys(doubts))
    return SqlAnswer(write("CASE {0} ELSE {1} END", cases, compared), (RANGE,))


# ---- numbers -----------------------------------------------------------------------------------------


def constant_number(value: int | float) -> PostgresNumber:
    double = float(value)
    size = abs(double) or 1.0  # zero is exempt from the bounds, any value will do
    whole = bind(value, INT_HOLE) if isinstance(value, int) else _NO_INT
    integral = ALWAYS if isinstance(value, int) else NEVER
    return PostgresNumber(integral, whole, bind(double, DOUBLE_HOLE), size, size, constant=value)


def int_number(column: Sql) -> PostgresNumber:
    return PostgresNumber(ALWAYS, column, write("({0})::float8", column), *_INT)


def json_number(json: Sql, scalar: Sql) -> PostgresNumber:
    number = write("jsonb_typeof{0} = 'number'", json)
    has_no_point = write("strpos({0}, '.') = 0", scalar)
    return PostgresNumber(
        has_no_point,
        write("CASE WHEN {0} AND {1} THEN {2}::numeric END", number, has_no_point, json),
        write("CASE WHEN {0} THEN {1}::float8 END", number, json),
    )


def choose(condition: Sql, then: Sql, otherwise: Sql) -> Sql:
    if condition in (ALWAYS, NEVER):
        return then if condition == ALWAYS else otherwise
    return write("CASE WHEN {0} THEN {1} ELSE {2} END", condition, then, otherwise)


def compute(op: ArithOp, left: PostgresNumber, right: PostgresNumber) -> PostgresNumber | None:
    """Compute a result; None when it is UNKNOWN on every row."""
    if op in ("/", "%") and right.constant == 0:
        return None
    integral = NEVER if op == "/" else all_of([left.integral, right.integral])
    doubts = left.doubts + right.doubts
    whole = _NO_INT if integral == NEVER else _whole(op, left.whole, right.whole)
    as_double = write("({0})::float8", whole)
    if integral == ALWAYS:
        return PostgresNumber(integral, whole, as_double, *_INT, doubts=doubts)
    result = _doubles(op, left, right, integral)
    magnitudes = (result.low, result.high)
    if integral != NEVER:
        magnitudes = (min(result.low, _INT[0]), max(result.high, _INT[1]))
    double = choose(integral, as_double, result.value)
    return PostgresNumber(integral, whole, double, *magnitudes, doubts=doubts + result.doubts)


def _whole(op: ArithOp, left: Sql, right: Sql) -> Sql:
    if op == "%":
        return write("(({0})::numeric % NULLIF(({1})::numeric, 0))", left, right)
    # Clamped just outside of int64, then turned to NULL: this writes the sum once, so that nesting stays small.
    # LEAST and GREATEST ignore a NULL, which then ends up outside as well.
    return write(
        "NULLIF(NULLIF(GREATEST(LEAST("
        f"({{0}})::numeric {op} ({{1}})::numeric"
        ", 9223372036854775808), -9223372036854775809), 9223372036854775808), -9223372036854775809)",
        left,
        right,
    )


# ---- doubles -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Double:
    value: Sql
    low: float
    high: float
    doubts: tuple[Sql, ...] = ()


def _doubles(op: ArithOp, left: PostgresNumber, right: PostgresNumber, integral: Sql) -> _Double:
    if op == "%":
        present = [
            write("{0} IS NOT NULL", side.double) for side in (left, right) if side.constant is None
        ]
        not_integral = ALWAYS if integral == NEVER else write("NOT ({0})", integral)
        return _Double(_NO_DOUBLE, _LEAST, _GREATEST, (all_of([not_integral, *present]),))
    if op in ("+", "-"):
        return _sum(op, left, right)
    return _product(left, right) if op == "*" else _quotient(left, right)


def _sum(op: ArithOp, left: PostgresNumber, right: PostgresNumber) -> _Double:
    value = write(f"({{0}} {op} {{1}})", left.double, right.double)
    if math.isfinite(left.high + right.high):
        return _Double(value, _LEAST, left.high + right.high)
    doubts = [_is_out_of_range(side, _LEAST, _SAFE_TERM) for side in (left, right)]
    return _Double(value, _LEAST, 2 * _SAFE_TERM, (any_of(doubts),))


def _product(left: PostgresNumber, right: PostgresNumber) -> _Double:
    value = write("({0} * {1})", left.double, right.double)
    if left.constant is not None:
        left, right = right, left
    low, high = left.low * right.low, left.high * right.high
    if low > 0 and math.isfinite(high):
        return _Double(value, low, high)
    if right.constant is not None:
        factor = abs(float(right.constant))
        return _guard_product(value, left, lambda x: x * factor)
    return _doubtful(value, left, right)


def _quotient(left: PostgresNumber, right: PostgresNumber) -> _Double:
    value = write("({0} / NULLIF({1}, 0))", left.double, right.double)
    if left.constant == 0:
        return _Double(value, 1.0, 1.0)
    low, high = left.low / right.high, left.high / right.low
    if low > 0 and math.isfinite(high):
        return _Double(value, low, high)
    if right.constant is not None:
        divisor = abs(float(right.constant))
        return _guard_product(value, left, lambda x: x / divisor)
    if left.constant is not None:
        return _guard_quotient(value, right, abs(float(left.constant)))
    return _doubtful(value, left, right)


def _guard_product(
    value: Sql, side: PostgresNumber, magnitude: Callable[[float], float]
) -> _Double:
    """Write `value` where it is finite; 0 where `side` is too small for it, NULL where it is too large."""
    underflow = _first(lambda x: magnitude(x) > 0)
    overflow = _first(lambda x: not math.isfinite(magnitude(x)))
    return _between(value, side, (underflow, Sql("0::float8")), (overflow, _NO_DOUBLE))


def _guard_quotient(value: Sql, divisor: PostgresNumber, dividend: float) -> _Double:
    """Write a constant divided by a field: NULL where the field is too small, 0 where it is too large."""
    overflow = _first(lambda x: math.isfinite(dividend / x))
    underflow = _first(lambda x: dividend / x == 0)
    return _between(value, divisor, (overflow, _NO_DOUBLE), (underflow, Sql("0::float8")))


def _between(
    value: Sql, side: PostgresNumber, below: tuple[float, Sql], beyond: tuple[float, Sql]
) -> _Double:
    """Write `value` between two limits, and other values below the first and from the second on."""
    size = write("abs({0})", side.double)
    cases = []
    if below[0] > side.low:
        cases.append(write("WHEN {0} < {1} THEN {2}", size, bind(below[0], DOUBLE_HOLE), below[1]))
    if beyond[0] <= side.high:
        cases.append(
            write("WHEN {0} >= {1} THEN {2}", size, bind(beyond[0], DOUBLE_HOLE), beyond[1])
        )
    if cases:
        value = write("CASE {0} ELSE {1} END", space_fragments(cases), value)
    return _Double(value, _LEAST, _GREATEST)


def _doubtful(value: Sql, left: PostgresNumber, right: PostgresNumber) -> _Double:
    doubts = any_of(
        _is_out_of_range(side, 1 / _SAFE_FACTOR, _SAFE_FACTOR) for side in (left, right)
    )
    return _Double(value, _SAFE_FACTOR**-2, _SAFE_FACTOR**2, (doubts,))


def _is_out_of_range(side: PostgresNumber, low: float, high: float) -> Sql:
    parts = []
    if side.high > high:
        parts.append(write("abs({0}) > {1}", side.double, bind(high, DOUBLE_HOLE)))
    if side.low < low:
        size = write("abs({0})", side.double)
        parts.append(write("({0} > 0 AND {0} < {1})", size, bind(low, DOUBLE_HOLE)))
    return any_of(parts)


def _first(holds: Callable[[float], bool]) -> float:
    """Find the least positive double from which on it holds, or infinity; doubles sort like their bits."""
    at = bisect_left(_ALL_DOUBLES, True, key=lambda bits: holds(_double(bits)))
    return _double(_ALL_DOUBLES[at]) if at < len(_ALL_DOUBLES) else math.inf


def _double(bits: int) -> float:
    value: float = struct.unpack("<d", struct.pack("<q", bits))[0]
    return value
