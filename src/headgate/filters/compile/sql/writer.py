"""What each SQL dialect writes in its own way, and the conditions that all write alike.

An operand has up to three facets, one for each class of values that can be compared: text, number, truth. Two
operands are compared facet by facet, and the condition is TRUE where one of these comparisons is. Every value
in it is a primary of SQL's grammar, every condition binds at least as tightly as a comparison.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from headgate.filters import logic
from headgate.filters.compile.sql.fragment import (
    ALWAYS,
    NEVER,
    Layout,
    Sql,
    all_of,
    any_of,
    bind,
    list_fragments,
    write,
)
from headgate.filters.like import Piece
from headgate.filters.nodes import ArithOp, CompareOp, Field


class Unanswerable(Exception):
    """SQL cannot answer this leaf; the argument is the reason."""


@dataclass(frozen=True, slots=True)
class SqlAnswer:
    """A condition that holds wherever the filter does, and only there unless `reasons` say why not."""

    where: Sql
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TextFacet:
    value: Sql
    check: Sql = ALWAYS  # the condition that it is text
    constant: str | None = None


@dataclass(frozen=True, slots=True)
class TruthFacet:
    value: Sql
    check: Sql = ALWAYS
    constant: bool | None = None


class Number(Protocol):
    """A number as one dialect writes it; its fields belong to that dialect."""

    @property
    def size(self) -> int:
        """Characters of SQL."""
        ...

    @property
    def constant(self) -> int | float | None: ...


N = TypeVar("N", bound=Number)


@dataclass(frozen=True, slots=True)
class Facets(Generic[N]):
    text: TextFacet | None = None
    number: N | None = None
    truth: TruthFacet | None = None


class SqlWriter(ABC, Generic[N]):
    """Writes conditions in one dialect, for one layout."""

    hole: str  # how text is bound
    truths: tuple[str, str]  # how false and true are written, to be compared with a Truth

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    # -- parts of a message ----------------------------------------------------------------------------------

    @abstractmethod
    def scalar(self, field: Field) -> Sql:
        """The value of a header or property, NULL when there is none to compare."""

    @abstractmethod
    def kind(self, field: Field) -> Sql:
        """An expression that is not NULL when the header or property exists, whatever it holds."""

    @abstractmethod
    def is_number(self, field: Field) -> Sql:
        """The condition that a header or property holds a number."""

    @abstractmethod
    def header_text(self, field: Field) -> TextFacet:
        """A header's text; its value is the expression to index."""

    @abstractmethod
    def facets(self, field: Field) -> Facets[N]:
        """The facets of a header or property."""

    @abstractmethod
    def text_column(self, column: str) -> TextFacet: ...

    @abstractmethod
    def int_column(self, column: str) -> N: ...

    # -- numbers ------------------------------------------------------------------------------------------

    @abstractmethod
    def constant(self, value: int | float) -> N: ...

    @abstractmethod
    def arithmetic(self, op: ArithOp, left: N, right: N) -> N | None:
        """None when the result is UNKNOWN whatever the message is."""

    @abstractmethod
    def compare_numbers(self, op: CompareOp, left: N, right: N) -> SqlAnswer:
        """`left` is no constant."""

    @abstractmethod
    def number_in(self, number: N, values: Sequence[int | float], *, negated: bool) -> SqlAnswer:
        """Write IN for numbers that are exact as int and as double."""

    # -- text ---------------------------------------------------------------------------------------------

    @abstractmethod
    def text_needs_check(self, op: CompareOp) -> bool:
        """Tell whether a comparison with a text constant can be TRUE for a value that is not text."""

    @abstractmethod
    def pattern(self, text: TextFacet, pieces: tuple[Piece, ...]) -> Sql:
        """Write the condition that the text matches a LIKE pattern; may raise Unanswerable."""

    @abstractmethod
    def topic_match(self, pattern: str) -> SqlAnswer: ...

    @abstractmethod
    def finish(self, sql: Sql, first_parameter: int) -> Sql:
        """Turn the holes into the placeholders of this dialect."""

    # -- written alike -----------------------------------------------------------------------------------

    def compare_text(self, op: CompareOp, left: TextFacet, right: TextFacet) -> Sql:
        compared = write(f"{{0}} {op} {{1}}", left.value, right.value)
        if right.constant is not None and not self.text_needs_check(op):
            return compared
        return all_of([compared, left.check, right.check])

    def text_in(self, text: TextFacet, values: Iterable[str], *, negated: bool) -> Sql:
        word = "NOT IN" if negated else "IN"
        found = write(
            f"{{0}} {word} ({{1}})", text.value, list_fragments(bind(v, self.hole) for v in values)
        )
        return (
            all_of([found, text.check])
            if self.text_needs_check("<>" if negated else "=")
            else found
        )

    def compare_truths(self, op: CompareOp, left: TruthFacet, right: TruthFacet) -> Sql:
        if op not in ("=", "<>"):
            return NEVER
        if right.constant is not None:
            truth = right.constant is (op == "=")
            return write(f"{{0}} = {self.truths[truth]}", left.value)
        return all_of(
            [write(f"{{0}} {op} {{1}}", left.value, right.value), left.check, right.check]
        )

    def compare(self, op: CompareOp, left: Facets[N], right: Facets[N]) -> SqlAnswer:
        """Write the comparison of two operands; NEVER when they have no facet in common."""
        if is_constant(left):
            left, right, op = right, left, logic.MIRRORED[op]
        answers = []
        if left.text is not None and right.text is not None:
            answers.append(SqlAnswer(self.compare_text(op, left.text, right.text)))
        if left.number is not None and right.number is not None:
            answers.append(self.compare_numbers(op, left.number, right.number))
        if left.truth is not None and right.truth is not None:
            answers.append(SqlAnswer(self.compare_truths(op, left.truth, right.truth)))
        return either(answers)

    def prefix_range(self, value: Sql, prefix: str) -> list[Sql]:
        """Write the condition that the text begins with the prefix as a range, which an index can answer."""
        if not prefix:
            return []
        bounds = [write("{0} >= {1}", value, bind(prefix, self.hole))]
        end = after_prefix(prefix)
        if end is not None:
            bounds.append(write("{0} < {1}", value, bind(end, self.hole)))
        return bounds


def is_constant(facets: Facets[N]) -> bool:
    """Tell whether an operand is a literal."""
    parts = (facets.text, facets.number, facets.truth)
    return any(facet is not None and facet.constant is not None for facet in parts)


def both(answers: Sequence[SqlAnswer]) -> SqlAnswer:
    """Join answers with AND."""
    return SqlAnswer(all_of(a.where for a in answers), _reasons(answers))


def either(answers: Sequence[SqlAnswer]) -> SqlAnswer:
    """Join answers with OR."""
    return SqlAnswer(any_of(a.where for a in answers), _reasons(answers))


def after_prefix(prefix: str) -> str | None:
    """Return the least text that is greater than everything with this prefix; None when there is none."""
    kept = prefix.rstrip("\U0010ffff")
    if not kept:
        return None
    # The code points between are surrogates, which no text can hold.
    following = "\ue000" if kept[-1] == "\ud7ff" else chr(ord(kept[-1]) + 1)
    return kept[:-1] + following


def _reasons(answers: Iterable[SqlAnswer]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(reason for answer in answers for reason in answer.reasons))
