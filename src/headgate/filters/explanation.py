"""Explain which layer answers which part of a filter.

`explain` reads the filter alone. It names, term by term, what the routing index, each SQL dialect and the summary of a
chunk can decide, what the exact mask must test, and what the author may not have meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, assert_never

from headgate.filters.compile.sql import SqlDialect, SqlPlan, compile_sql, index_statement
from headgate.filters.compile.verdict import needed_fields, required_values
from headgate.filters.doubts import doubts
from headgate.filters.nodes import (
    TOPIC,
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
from headgate.filters.pruning import NOTHING, has_bloom_filter, pruned_by
from headgate.message import Scalar

EVERY_TERM: Final = "all of its terms together"
CHECKED: Final = "checked after the index"
BY_PRESENCE: Final = "index by presence, then checked"
DIALECTS: Final[tuple[SqlDialect, ...]] = ("sqlite", "postgres")


@dataclass(frozen=True, slots=True)
class TermPlan:
    """One condition that must hold, or one term of an OR that must, and how each layer answers it."""

    text: str
    routing: str
    hot: str  # by which facts a scan skips hot chunks
    sealed: str  # by which facts it skips sealed and cold ones
    sql: dict[SqlDialect, str]  # for each dialect: "exact", or why Python must check the rows
    within_or: bool = False


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
        terms=tuple(_plan_terms(conjuncts(normal), now_us)),
        sql=plans,
        indexes={d: tuple(index_statement(d, name) for name in headers) for d in DIALECTS},
        probes=tuple(_probes(normal)),
        residual={d: None if p.residual is None else to_text(p.residual) for d, p in plans.items()},
        warnings=tuple(doubts(node)),
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


def _plan_terms(terms: tuple[Filter, ...], now_us: int) -> Iterator[TermPlan]:
    for term, routing in zip(terms, _routing_answers(terms), strict=True):
        yield _plan_term(term, routing, now_us)
        if isinstance(term, Or):  # what each of its terms could do alone
            for each in term.terms:
                yield _plan_term(each, "", now_us, within_or=True)


def _plan_term(term: Filter, routing: str, now_us: int, within_or: bool = False) -> TermPlan:
    answers: dict[SqlDialect, str] = {}
    for dialect in DIALECTS:
        plan = compile_sql(term, dialect, now_us=now_us)
        answers[dialect] = "exact" if plan.residual is None else "; ".join(plan.reasons)
    bound = normalize(term).at(now_us).tree  # a scan knows what time it is
    hot, sealed = pruned_by(bound, "hot"), pruned_by(bound, "sealed")
    if isinstance(term, Or) and not within_or:  # its terms follow, each with its own facts
        hot, sealed = (f if f == NOTHING else EVERY_TERM for f in (hot, sealed))
    return TermPlan(to_text(term), routing, hot, sealed, answers, within_or)


def _routing_answers(terms: tuple[Filter, ...]) -> list[str]:
    """Say of each term whether the index of filters decides it: every single key, and the shortest list of keys."""
    if len(terms) == 1 and isinstance(terms[0], Or):
        ways = [_routing_answers(conjuncts(way)) for way in terms[0].terms]
        if not all(any(answer != CHECKED for answer in way) for way in ways):
            return [CHECKED]
        by_presence = any({*way} <= {CHECKED, BY_PRESENCE} for way in ways)
        return [f"index, one entry a term{', some by presence' if by_presence else ''}"]
    keys = [_index_keys(term) for term in terms]
    lists = [found for found in keys if len(found) > 1]
    shortest = min(lists, key=len, default=frozenset())
    single = any(len(found) == 1 for found in keys)
    leads = len({column for column, _ in shortest}) == 1 or not single
    answers = [
        _routing_answer(term, found, leads and found is shortest)
        for term, found in zip(terms, keys, strict=True)
    ]
    weak = None if set(answers) != {CHECKED} else _find_weak_anchor(terms)
    if weak is not None:
        at, answer = weak
        answers[at] = answer
    return answers


def _find_weak_anchor(terms: tuple[Filter, ...]) -> tuple[int, str] | None:
    """Find the term that leads to a filter without keys: a topic pattern, or else a header that must be present."""
    for at, term in enumerate(terms):
        if isinstance(term, TopicMatch) and not term.negated:
            return at, "topic trie"
    for at, term in enumerate(terms):
        if _needs_header(term):
            return at, BY_PRESENCE
    return None


def _needs_header(term: Filter) -> bool:
    match term:
        case Exists(negated=False) | IsNull(negated=True):
            return True
        case Compare() | In() | Like():
            always = (TOPIC, Field("sys", "priority"))
            return any(field not in always for field, _ in needed_fields(term))
        case _:
            return False


def _routing_answer(term: Filter, keys: frozenset[tuple[Field, Scalar]], leads: bool) -> str:
    match term:
        case Constant():
            return "decided"
        case _ if len(keys) == 1:
            return "index key"
        case _ if leads and keys:
            return "index key, one entry a value"
        case _:
            return CHECKED


def _index_keys(term: Filter) -> frozenset[tuple[Field, Scalar]]:
    """Collect the equalities of which one makes the term TRUE; none where other conditions can do so, too."""
    match term:
        case Compare(op="=", left=Field() as field, right=Literal(value=value)):
            return frozenset({(field, value)})
        case TopicMatch(pattern=pattern, negated=False) if not {"*", "#"} & {*pattern.split(".")}:
            return frozenset({(TOPIC, pattern)})
        case In(value=Field() as field, items=items, negated=False) if _literal(items):
            return frozenset((field, i.value) for i in items if isinstance(i, Literal))
        case Or(terms=terms):
            found = [_index_keys(each) for each in terms]
            return frozenset().union(*found) if all(found) else frozenset()
        case _:
            return frozenset()


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
            case Compare(left=Field() as field) | In(value=Field() as field) if has_bloom_filter(
                field
            ):
                for value in required_values(leaf):
                    yield f"{operand_text(field)}={operand_text(Literal(value))}"
