"""The PostgreSQL dialect.

Headers are `jsonb`, whose numbers keep their point, so `1` and `1.0` stay an int and a float. PostgreSQL types
expressions, not values, and a cast that fails ends the query, so every cast stands inside a CASE: AND promises
no order of evaluation. Text is compared under COLLATE "C", which is the order of code points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headgate.filters.compile.sql import postgres_numbers as numbers
from headgate.filters.compile.sql.fragment import (
    ALWAYS,
    HOLE,
    Sql,
    all_of,
    bind,
    listed,
    number_holes,
    spaced,
    write,
)
from headgate.filters.compile.sql.layout import is_plain_name
from headgate.filters.compile.sql.postgres_numbers import DOUBLE_HOLE, PostgresNumber
from headgate.filters.compile.sql.writer import Answer, Facets, Text, Truth, Writer
from headgate.filters.like import Piece
from headgate.filters.nodes import ArithOp, CompareOp, Field
from headgate.filters.normal import EXACT_AS_DOUBLE
from headgate.filters.topics import MANY, ONE, canonical, regex

RANGE: Final = (
    "PostgreSQL raises an error where a float overflows or vanishes, and has no remainder of floats: "
    "where that may happen, the message is looked at again"
)
_LIKE_ESCAPED: Final = str.maketrans({"%": r"\%", "_": r"\_", "\\": r"\\"})


class Postgres(Writer[PostgresNumber]):
    hole = HOLE + "::text"
    truths = ("'false'::jsonb", "'true'::jsonb")

    def finish(self, sql: Sql, first_parameter: int) -> Sql:
        return number_holes(sql, first_parameter)

    # -- what is where ------------------------------------------------------------------------------------

    def scalar(self, field: Field) -> Sql:
        return self._json("->>", field)

    def kind(self, field: Field) -> Sql:
        return self._json("->", field)

    def _json(self, arrow: str, field: Field) -> Sql:
        name = Sql(f"'{field.name}'") if is_plain_name(field.name) else bind(field.name, self.hole)
        return write(f"({self.layout.column(field)} {arrow} {{0}})", name)

    def is_number(self, field: Field) -> Sql:
        return write("jsonb_typeof{0} = 'number'", self.kind(field))

    def header_text(self, field: Field) -> Text:
        check = write("jsonb_typeof{0} = 'string'", self.kind(field))
        return Text(_collated(self.scalar(field)), check)

    def facets(self, field: Field) -> Facets[PostgresNumber]:
        json = self.kind(field)
        return Facets(
            self.header_text(field),
            numbers.of_json(json, self.scalar(field)),
            Truth(json, write("jsonb_typeof{0} = 'boolean'", json)),
        )

    def text_column(self, column: str) -> Text:
        return Text(_collated(Sql(column)), Sql(f"{column} IS NOT NULL"))

    def int_column(self, column: str) -> PostgresNumber:
        return numbers.of_int(Sql(column))

    # -- numbers ------------------------------------------------------------------------------------------

    def constant(self, value: int | float) -> PostgresNumber:
        return numbers.of_constant(value)

    def arithmetic(
        self, op: ArithOp, left: PostgresNumber, right: PostgresNumber
    ) -> PostgresNumber | None:
        return numbers.arithmetic(op, left, right)

    def compare_numbers(self, op: CompareOp, left: PostgresNumber, right: PostgresNumber) -> Answer:
        ints = write(f"{{0}} {op} {{1}}", left.whole, right.whole)
        doubles = write(f"{{0}} {op} {{1}}", left.double, right.double)
        integral = all_of([left.integral, right.integral])
        wanted = right.constant
        # As doubles, all ints keep their order to a small number.
        small = wanted is not None and abs(wanted) < EXACT_AS_DOUBLE
        compared = (
            doubles if small and integral != ALWAYS else numbers.choose(integral, ints, doubles)
        )
        return _settled(compared, left.doubts + right.doubts)

    def number_in(
        self, number: PostgresNumber, values: Sequence[int | float], *, negated: bool
    ) -> Answer:
        word = "NOT IN" if negated else "IN"
        wanted = listed(bind(float(value), DOUBLE_HOLE) for value in values)
        return _settled(write(f"{{0}} {word} ({{1}})", number.double, wanted), number.doubts)

    # -- text ---------------------------------------------------------------------------------------------

    def text_needs_check(self, op: CompareOp) -> bool:
        return True  # the text of 5 is '5'

    def pattern(self, text: Text, pieces: tuple[Piece, ...]) -> Sql:
        like = "%".join("".join(map(_like_part, piece)) for piece in pieces)
        return write("{0} LIKE {1}", text.value, bind(like, self.hole))

    def topic_match(self, pattern: str) -> Answer:
        words, topic = canonical(pattern), _collated(Sql(self.layout.topic))
        if ONE in words or MANY in words:
            return Answer(write("{0} ~ {1}", topic, bind(f"^(?:{regex(pattern)})$", self.hole)))
        return Answer(write("{0} = {1}", topic, bind(".".join(words), self.hole)))


def _collated(value: Sql) -> Sql:
    return write('{0} COLLATE "C"', value)


def _like_part(part: str | None) -> str:
    return "_" if part is None else part.translate(_LIKE_ESCAPED)


def _settled(compared: Sql, doubts: tuple[Sql, ...]) -> Answer:
    if not doubts:
        return Answer(compared)
    # In this order: what a doubt asks about is safe to compute once those before it are ruled out.
    cases = spaced(write("WHEN {0} THEN TRUE", doubt) for doubt in dict.fromkeys(doubts))
    return Answer(write("CASE {0} ELSE {1} END", cases, compared), (RANGE,))
