"""The SQLite dialect.

SQLite types values, not columns, and no expression on numbers fails. So the value of a header is used as it
comes out of the JSON, and a condition beside it checks its type. What differs from the language:

- an int compared with a double is compared exactly; the language compares them as doubles
- an int that overflows becomes a double, a double that overflows becomes infinite; in the language both are
  UNKNOWN. A double never turns back into an int, so asking for the type finds the overflow.
- the remainder of doubles is computed on integers
- LIKE ignores case; GLOB does not
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headgate.filters.compile.sql.fragment import (
    ALWAYS,
    HOLE,
    Sql,
    all_of,
    any_of,
    bind,
    is_plain_name,
    list_fragments,
    mark_holes,
    write,
)
from headgate.filters.compile.sql.writer import (
    Facets,
    SqlAnswer,
    SqlWriter,
    TextFacet,
    TruthFacet,
    Unanswerable,
)
from headgate.filters.like import Piece
from headgate.filters.nodes import ArithOp, CompareOp, Field
from headgate.filters.normal import EXACT_AS_DOUBLE
from headgate.filters.topics import MANY, ONE, canonical

REMAINDER: Final = (
    "SQLite has no remainder of floats: where one side of % is a float, Python checks the message"
)
PATTERN: Final = "SQLite accepts no pattern longer than 50,000 bytes"
NO_REGEX: Final = "SQLite has no regular expressions: with wildcards on both sides of a word, one of them #, Python checks the message"
LONGEST_GLOB: Final = 50_000  # bytes, SQLITE_MAX_LIKE_PATTERN_LENGTH

_GLOB_SPECIAL: Final = re.compile(r"[*?\[]")
# Characters that cannot be between the quotes of a JSON path.
_NO_PATH: Final = re.compile('["\\\\\x00-\x1f]')


@dataclass(frozen=True, slots=True)
class SqliteNumber:
    value: Sql
    integral: bool | None = None  # None: the row decides
    constant: int | float | None = None
    checks: tuple[Sql, ...] = ()  # conditions without which the value means nothing
    doubts: tuple[Sql, ...] = ()  # conditions under which SQLite computes something else

    @property
    def size(self) -> int:
        return len(self.value.text) + sum(len(part.text) for part in self.checks + self.doubts)


class SqliteWriter(SqlWriter[SqliteNumber]):
    hole = HOLE
    truths = ("'false'", "'true'")

    def finish(self, sql: Sql, first_parameter: int) -> Sql:
        return mark_holes(sql)

    # -- parts of a message ----------------------------------------------------------------------------------

    def scalar(self, field: Field) -> Sql:
        return self._json("json_extract", "value", field)

    def kind(self, field: Field) -> Sql:
        return self._json("json_type", "type", field)

    def _json(self, function: str, column: str, field: Field) -> Sql:
        document = self.layout.column(field)
        if is_plain_name(field.name):
            return Sql(f"{function}({document}, '$.\"{field.name}\"')")
        if field.name and not _NO_PATH.search(field.name):
            return write(f"{function}({document}, {{0}})", bind(f'$."{field.name}"'))
        return write(
            f"(SELECT json_each.{column} FROM json_each({document}) WHERE json_each.key = {{0}})",
            bind(field.name),
        )

    def is_number(self, field: Field) -> Sql:
        return write("{0} IN ('integer', 'real')", self.kind(field))

    def header_text(self, field: Field) -> TextFacet:
        return TextFacet(self.scalar(field), write("{0} = 'text'", self.kind(field)))

    def facets(self, field: Field) -> Facets[SqliteNumber]:
        kind = self.kind(field)
        return Facets(
            self.header_text(field),
            SqliteNumber(self.scalar(field), checks=(self.is_number(field),)),
            TruthFacet(kind, write("{0} IN ('true', 'false')", kind)),
        )

    def text_column(self, column: str) -> TextFacet:
        return TextFacet(Sql(column), Sql(f"{column} IS NOT NULL"))

    def int_column(self, column: str) -> SqliteNumber:
        return SqliteNumber(Sql(column), integral=True)

    # -- numbers ------------------------------------------------------------------------------------------

    def constant(self, value: int | float) -> SqliteNumber:
        return SqliteNumber(bind(value), isinstance(value, int), value)

    def arithmetic(
        self, op: ArithOp, left: SqliteNumber, right: SqliteNumber
    ) -> SqliteNumber | None:
        checks, doubts = left.checks + right.checks, left.doubts + right.doubts
        whole = left.integral and right.integral
        integral = False if op == "/" or False in (left.integral, right.integral) else whole
        if op == "/":
            value = write("({0} / {1})", _as_double(left), _as_double(right))
        else:
            value = write(f"({{0}} {op} {{1}})", left.value, right.value)
        if op == "%":
            doubts += () if whole else (_one_is_double(left, right),)
        elif integral is not False:
            checks += (_no_overflow(left, right, value),)
        if not integral:
            value = write("nullif(nullif({0}, 9e999), -9e999)", value)
        return SqliteNumber(value, integral, None, checks, doubts)

    def compare_numbers(self, op: CompareOp, left: SqliteNumber, right: SqliteNumber) -> SqlAnswer:
        exact = write(f"{{0}} {op} {{1}}", left.value, right.value)
        constant = right.constant
        if (constant is not None and abs(constant) < EXACT_AS_DOUBLE) or (
            left.integral and right.integral
        ):
            return _add_doubts(exact, left, right)
        as_doubles = write(f"{{0}} {op} {{1}}", _as_double(left), _as_double(right))
        if False in (left.integral, right.integral):
            return _add_doubts(as_doubles, left, right)
        ints = all_of([_is_integer(left), _is_integer(right)])
        compared = write("CASE WHEN {0} THEN {1} ELSE {2} END", ints, exact, as_doubles)
        return _add_doubts(compared, left, right)

    def number_in(
        self, number: SqliteNumber, values: Sequence[int | float], *, negated: bool
    ) -> SqlAnswer:
        word = "NOT IN" if negated else "IN"
        found = write(f"{{0}} {word} ({{1}})", number.value, list_fragments(map(bind, values)))
        return _add_doubts(found, number)

    # -- text ---------------------------------------------------------------------------------------------

    def text_needs_check(self, op: CompareOp) -> bool:
        return op in ("<>", "<", "<=")  # numbers sort before all text

    def pattern(self, text: TextFacet, pieces: tuple[Piece, ...]) -> Sql:
        glob = "*".join("".join(_glob_part(part) for part in piece) for piece in pieces)
        if len(glob.encode()) > LONGEST_GLOB:
            raise Unanswerable(PATTERN)
        return write("{0} GLOB {1}", text.value, bind(glob))

    def topic_match(self, pattern: str) -> SqlAnswer:
        words = canonical(pattern)
        wild = [at for at, word in enumerate(words) if word in (ONE, MANY)]
        if not wild:
            return SqlAnswer(self._topic("=", ".".join(words)))
        if MANY not in words:
            return SqlAnswer(all_of([self._topic_glob(words), self._dots("=", len(words) - 1)]))
        if wild == list(range(wild[0], wild[-1] + 1)):
            return SqlAnswer(self._topic_around(words))
        # Between two words, # may stand for no word: the dots around it are then one dot.
        least = sum(word != MANY for word in words) - 1
        loose = "".join(_loose_word(words, at) for at in range(len(words)))
        return SqlAnswer(all_of([self._topic("GLOB", loose), self._dots(">=", least)]), (NO_REGEX,))

    def _topic_around(self, words: tuple[str, ...]) -> Sql:
        """Write one run of wildcards with # in it: as many words as it has *, or more."""
        fixed = tuple(word for word in words if word != MANY)
        if ONE in fixed:
            return self._topic_glob(fixed)
        if not fixed:
            return ALWAYS
        several = self._topic_glob(tuple(ONE if word == MANY else word for word in words))
        if fixed == ("",):  # no topic is a single empty word
            return several
        return any_of([self._topic("=", ".".join(fixed)), several])

    def _topic_glob(self, words: tuple[str, ...]) -> Sql:
        if words == (ONE,):  # the empty topic has no word
            return self._topic("<>", "")
        return self._topic("GLOB", ".".join(map(_glob_word, words)))

    def _topic(self, op: str, value: str) -> Sql:
        return write(f"{self.layout.topic} {op} {{0}}", bind(value))

    def _dots(self, op: str, count: int) -> Sql:
        topic = self.layout.topic
        return Sql(f"length({topic}) - length(replace({topic}, '.', '')) {op} {count}")


def _add_doubts(compared: Sql, *numbers: SqliteNumber) -> SqlAnswer:
    checks = [check for number in numbers for check in number.checks]
    doubts = [doubt for number in numbers for doubt in number.doubts]
    return SqlAnswer(all_of([any_of([*doubts, compared]), *checks]), (REMAINDER,) if doubts else ())


def _as_double(number: SqliteNumber) -> Sql:
    if number.constant is not None:
        return bind(float(number.constant))
    return number.value if number.integral is False else write("CAST({0} AS REAL)", number.value)


def _is_integer(number: SqliteNumber) -> Sql:
    return ALWAYS if number.integral else write("typeof({0}) = 'integer'", number.value)


def _one_is_double(left: SqliteNumber, right: SqliteNumber) -> Sql:
    if False in (left.integral, right.integral):
        return ALWAYS
    uncertain = [number for number in (left, right) if not number.integral]
    return any_of(write("typeof({0}) = 'real'", number.value) for number in uncertain)


def _no_overflow(left: SqliteNumber, right: SqliteNumber, value: Sql) -> Sql:
    overflow = all_of([write("typeof({0}) = 'real'", value), _is_integer(left), _is_integer(right)])
    return write("NOT ({0})", overflow)


def _glob_part(part: str | None) -> str:
    return "?" if part is None else _GLOB_SPECIAL.sub(r"[\g<0>]", part)


def _glob_word(word: str) -> str:
    return "*" if word == ONE else _glob_part(word)


def _loose_word(words: tuple[str, ...], at: int) -> str:
    """Write a word and the dot after it; # takes the dot on its right, and at the end the one on its left."""
    if words[at] == MANY:
        return "*"
    last = at + 1 == len(words) or words[at + 1 :] == (MANY,)
    return _glob_word(words[at]) + ("" if last else ".")
