"""Explain which layer answers which part of a filter.

`explain` reads the filter alone. It names, term by term, what the routing index, each SQL dialect and the summary of a
chunk can decide, what the exact mask must test, and what the author may not have meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final, assert_never

from headgate.filters.compile.sql import SqlDialect, SqlPlan, compile_sql, index_statement
from headgate.filters.compile.verdict import required_values
from headgate.filters.like import literal_prefix
from headgate.filters.nodes import (
    FALSE,
    TRUE,
    And,
    Arith,
    Compare,
    Constant,
    Exists,
    Field,
    Filter,
    In,
    IsNull,
    Like,
    Literal,
    Negate,
    Node,
    Not,
    Now,
    Or,
    TopicMatch,
    children,
    walk,
)
from headgate.filters.normal import conjuncts, normalize
from headgate.filters.printer import operand_text, to_text
from headgate.message import Scalar

DIALECTS: Final[tuple[SqlDialect, ...]] = ("sqlite", "postgres")


@dataclass(frozen=True, slots=True)
class TermPlan:
    """One condition that must hold, and how each layer answers it."""

    text: str
    routing: str
    summary: str
    sql: dict[SqlDialect, str]  # for each dialect: "exact", or why Python must check the rows


@dataclass(frozen=True, slots=True)
class Explanation:
    """How each layer answers a filter."""

    text: str  # as Headgate would write it
    normal: str
    tree: tuple[str, ...]
    terms: tuple[TermPlan, ...]
    sql: dict[SqlDialect, SqlPlan]
    # For each dialect: the statements that create the indexes it could use.
    indexes: dict[str, tuple[str, ...]]
    probes: tuple[str, ...]
    residual: dict[SqlDialect, str | None]
    warnings: tuple[str, ...]


def explain(node: Filter, *, now_us: int = 0) -> Explanation:
    """Explain a filter; `UTC()` is `now_us`."""
    normal = normalize(node).tree
    plans = {dialect: compile_sql(normal, dialect, now_us=now_us) for dialect in DIALECTS}
    headers = indexed_headers(normal)
    return Explanation(
        text=to_text(node),
        normal=to_text(normal),
        tree=tuple(_draw(node)),
        terms=tuple(_plan_term(term, now_us) for term in conjuncts(normal)),
        sql=plans,
        indexes={d: tuple(index_statement(d, name) for name in headers) for d in DIALECTS},
        probes=tuple(_probes(normal)),
        residual={d: None if p.residual is None else to_text(p.residual) for d, p in plans.items()},
        warnings=tuple(warnings(node)),
    )


# ---- the tree ----------------------------------------------------------------------------------------


def _draw(node: Node, indent: str = "", branch: str = "") -> Iterator[str]:
    yield indent + branch + _label(node)
    if branch:
        indent += "   " if branch.startswith("└") else "│  "
    below = [
        child
        for child in children(node)
        if not isinstance(node, Compare | In | Like | IsNull | Exists)
    ]
    for i, child in enumerate(below):
        yield from _draw(child, indent, "└─ " if i == len(below) - 1 else "├─ ")


def _label(node: Node) -> str:
    match node:
        case And():
            return "AND"
        case Or():
            return "OR"
        case Not():
            return "NOT"
        case Constant() | Compare() | In() | Like() | IsNull() | Exists() | TopicMatch():
            return to_text(node)
        case Literal() | Field() | Now() | Negate() | Arith():
            return operand_text(node)
        case _:
            assert_never(node)


# ---- the layers --------------------------------------------------------------------------------------


def _plan_term(term: Filter, now_us: int) -> TermPlan:
    answers: dict[SqlDialect, str] = {}
    for dialect in DIALECTS:
        plan = compile_sql(term, dialect, now_us=now_us)
        answers[dialect] = "exact" if plan.residual is None else "; ".join(plan.reasons)
    return TermPlan(to_text(term), _routing_answer(term), _summary_answer(term), answers)


def _routing_answer(term: Filter) -> str:
    match term:
        case Compare(op="=", left=Field(scope="header"), right=Literal()):
            return "index key"
        case In(value=Field(scope="header"), items=items, negated=False) if _literal(items):
            return "index key, one entry a value"
        case TopicMatch(negated=False):
            return "topic trie"
        case Constant():
            return "decided"
        case _:
            return "checked after the index"


def _summary_answer(term: Filter) -> str:
    match term:
        case Constant():
            return "decided"
        case And(terms=terms) | Or(terms=terms):
            return "; ".join(dict.fromkeys(map(_summary_answer, terms)))
        case Not(term=inner):
            return _summary_answer(inner)
        case Compare(op="=", left=Field(), right=Literal()):
            return "Bloom filter, min/max, distinct values"
        case Compare(left=Field(), right=Literal()):
            return "min/max, distinct values"
        case In(value=Field(), items=items, negated=negated) if _literal(items):
            return (
                "min/max, distinct values" if negated else "Bloom filter, min/max, distinct values"
            )
        case Like(value=Field(), pattern=pattern, escape=escape, negated=False):
            prefix = literal_prefix(pattern, escape)
            return "min/max of the prefix, distinct values" if prefix else "distinct values"
        case TopicMatch() | Like(value=Field()):
            return "distinct values"
        case IsNull() | Exists():
            return "null counts"
        case Compare() | In() | Like():
            return "only whether its headers occur at all"
        case _:
            assert_never(term)


def _literal(items: tuple[Node, ...]) -> bool:
    return all(isinstance(item, Literal) for item in items)


def indexed_headers(normal: Filter) -> tuple[str, ...]:
    """List the headers that must equal something: those that a SQL index or a stream's `indexed` should hold."""
    return tuple(
        dict.fromkeys(
            field.name
            for term in conjuncts(normal)
            for leaf in (term.terms if isinstance(term, Or) else (term,))
            for field in _equality_fields(leaf)
        )
    )


def _equality_fields(leaf: Filter) -> Iterator[Field]:
    match leaf:
        case Compare(op="=", left=Field(scope="header") as field, right=Literal()):
            yield field
        case In(value=Field(scope="header") as field, items=items, negated=False) if _literal(
            items
        ):
            yield field


def _probes(normal: Filter) -> Iterator[str]:
    for leaf in walk(normal):
        match leaf:
            case Compare(left=Field() as field) | In(value=Field() as field):
                for value in required_values(leaf):
                    yield f"{operand_text(field)}={operand_text(Literal(value))}"


# ---- warnings ----------------------------------------------------------------------------------------


def warnings(node: Filter) -> Iterator[str]:
    """Warn of what the author may not have meant."""
    normal = normalize(node).at(0).tree
    if normal == FALSE and node != FALSE:
        yield "the filter can never be TRUE: it matches nothing"
    if normal == TRUE and node != TRUE:
        yield "the filter is always TRUE: it matches everything"
    yield from dict.fromkeys(_leaf_warnings(node))
    yield from _mixed_kinds(node)


def _leaf_warnings(node: Filter) -> Iterator[str]:
    for leaf in walk(node):
        match leaf:
            case (
                Compare(op=op, left=Field() as field, right=Literal() as literal)
                | Compare(op=op, left=Literal() as literal, right=Field() as field)
            ):
                yield from _time_warnings(field, literal)
                yield from _kind_warnings(field, (literal,) if op in ("=", "<>") else ())
            case In(value=Field() as field, items=items):
                literals = tuple(item for item in items if isinstance(item, Literal))
                yield from _kind_warnings(field, literals)
                yield from _in_warnings(leaf, literals)
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


def _time_warnings(field: Field, literal: Literal) -> Iterator[str]:
    if field == Field("sys", "timestamp") and _is_seconds(literal.value):
        yield (
            f"sys.timestamp is in microseconds since 1970, so {literal.value} is long ago; "
            "write TIMESTAMP '…'"
        )


def _kind_warnings(field: Field, literals: tuple[Literal, ...]) -> Iterator[str]:
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


def _in_warnings(leaf: In, literals: tuple[Literal, ...]) -> Iterator[str]:
    kinds = {"number" if x.kind in ("int", "float") else x.kind for x in literals}
    if len(kinds) > 1 and leaf.negated:
        yield f"{to_text(leaf)} mixes {_list_kinds(kinds)}: one comparison is always UNKNOWN, so it is never TRUE"
    elif len(kinds) > 1:
        yield f"{to_text(leaf)} mixes {_list_kinds(kinds)}; each matches only headers of its own kind"


def _mixed_kinds(node: Filter) -> Iterator[str]:
    """Warn of a header that is compared as text in one place and as a number in another."""
    pairs = sorted({(field.name, kind) for field, kind in _compared_kinds(node)})
    for name, group in groupby(pairs, key=lambda pair: pair[0]):
        kinds = {kind for _, kind in group}
        if len(kinds) > 1:
            yield f"{name} is compared as {_list_kinds(kinds)} in the same filter; a header has one kind"


def _compared_kinds(node: Filter) -> Iterator[tuple[Field, str]]:
    for leaf in walk(node):
        match leaf:
            case Compare(left=Field(scope="header") as field, right=Literal(kind=kind)):
                yield field, "number" if kind in ("int", "float") else kind
            case Like(value=Field(scope="header") as field):
                yield field, "string"


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
