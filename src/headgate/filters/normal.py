"""The normal form that every target compiles: negation at the leaves, constants folded, no term twice.

With NOT pushed down to the leaves, a filter is TRUE exactly when its leaves combine to TRUE under plain
two-valued AND and OR: UNKNOWN can be treated as FALSE, because nothing above turns it into TRUE. So a target
answers one question only: is this leaf TRUE?
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, assert_never

from headgate.filters import logic
from headgate.filters.like import plain_text
from headgate.filters.nodes import (
    FALSE,
    SYS_KINDS,
    TRUE,
    And,
    Arith,
    Compare,
    CompareOp,
    Constant,
    Exists,
    Field,
    Filter,
    In,
    IsNull,
    Leaf,
    Like,
    Literal,
    Negate,
    Not,
    Now,
    Operand,
    Or,
    TopicMatch,
    check_depth,
    depends_on_time,
)
from headgate.message import SYSTEM_FIELDS, Message, Scalar

_EMPTY: Final = Message()  # constants are evaluated against it
_REQUIRED: Final = frozenset(field.name for field in SYSTEM_FIELDS if field.required)
# Below this, a double equals one int at most, so one order holds for both.
EXACT_AS_DOUBLE: Final = 2**53


@dataclass(frozen=True, slots=True)
class NormalFilter:
    """A filter in normal form. Only `normalize` makes one, so a target compiles `tree` as it is."""

    tree: Filter
    depends_on_time: bool

    def at(self, now_us: int) -> NormalFilter:
        """Replace `UTC()` by a moment; a filter that does not ask for the time is returned as it is."""
        return normalize(bind_now(self.tree, now_us)) if self.depends_on_time else self


def normalize(node: Filter | NormalFilter) -> NormalFilter:
    """Return the filter that is TRUE for the same messages and cheapest to compile."""
    return node if isinstance(node, NormalFilter) else _normalize(node)


@lru_cache(maxsize=4096)
def _normalize(node: Filter) -> NormalFilter:
    check_depth(node)
    tree = _simplify(push_negation(node))
    return NormalFilter(tree, depends_on_time(tree))


def bind_now(node: Filter, now_us: int) -> Filter:
    """Replace `UTC()` by a moment; a filter that does not ask for the time is returned as it is."""
    if not depends_on_time(node):
        return node
    return _map_operands(node, lambda operand: _bind(operand, now_us))


def conjuncts(node: Filter) -> tuple[Filter, ...]:
    """Return the terms that must all hold."""
    return node.terms if isinstance(node, And) else (node,)


# ---- negation ----------------------------------------------------------------------------------------


def push_negation(node: Filter, *, negated: bool = False) -> Filter:
    """Remove every Not by negating the leaves; exact also for UNKNOWN, which no negation changes."""
    match node:
        case Not(term=term):
            return push_negation(term, negated=not negated)
        case And(terms=terms) | Or(terms=terms):
            joint = And if isinstance(node, And) is not negated else Or
            return joint(tuple(push_negation(term, negated=negated) for term in terms))
        case _:
            return _negate_leaf(node) if negated else node


def _negate_leaf(leaf: Leaf) -> Leaf:
    match leaf:
        case Constant(value=value):
            return Constant(not value)
        case Compare(op=op, left=left, right=right):
            return Compare(logic.OPPOSITE[op], left, right)
        case In(value=value, items=items, negated=negated):
            return In(value, items, not negated)
        case Like(value=value, pattern=pattern, escape=escape, negated=negated):
            return Like(value, pattern, escape, not negated)
        case IsNull(field=field, negated=negated):
            return IsNull(field, not negated)
        case Exists(field=field, negated=negated):
            return Exists(field, not negated)
        case TopicMatch(pattern=pattern, negated=negated):
            return TopicMatch(pattern, not negated)
        case _:
            assert_never(leaf)


# ---- simplification (of trees without Not; UNKNOWN counts as FALSE) ----------------------------------


def _simplify(node: Filter) -> Filter:
    match node:
        case And(terms=terms):
            return _join(And, map(_simplify, terms), neutral=TRUE, absorbing=FALSE)
        case Or(terms=terms):
            return _join(Or, map(_simplify, terms), neutral=FALSE, absorbing=TRUE)
        case Not():
            return _simplify(push_negation(node))
        case _:
            return _simplify_leaf(node)


def _join(
    joint: type[And] | type[Or], terms: Iterable[Filter], *, neutral: Constant, absorbing: Constant
) -> Filter:
    flat: dict[Filter, None] = {}  # in order, each once
    for term in terms:
        for part in term.terms if isinstance(term, joint) else (term,):
            if part == absorbing:
                return absorbing
            if part != neutral:
                flat[part] = None
    kept = _drop_absorbed(joint, tuple(flat))
    if joint is And and _is_contradiction(kept):
        return FALSE
    if joint is Or and _is_tautology(kept):
        return TRUE
    return kept[0] if len(kept) == 1 else joint(kept) if kept else neutral


def _drop_absorbed(joint: type[And] | type[Or], terms: tuple[Filter, ...]) -> tuple[Filter, ...]:
    """Drop absorbed terms: `a AND (a OR b)` is `a`, and `a OR (a AND b)` is `a`."""
    other = Or if joint is And else And
    plain = {term for term in terms if not isinstance(term, other)}
    return tuple(t for t in terms if not (isinstance(t, other) and not plain.isdisjoint(t.terms)))


def _is_tautology(terms: tuple[Filter, ...]) -> bool:
    """Find `x IS NULL OR x IS NOT NULL`: only leaves that are never UNKNOWN complete each other."""
    certain = {t for t in terms if isinstance(t, IsNull | Exists | TopicMatch)}
    return any(_negate_leaf(term) in certain for term in certain)


def _is_contradiction(terms: tuple[Filter, ...]) -> bool:
    """Tell whether no message makes all terms TRUE, as far as that is easy to see."""
    present = set(terms)
    if any(_negate_leaf(t) in present for t in terms if not isinstance(t, And | Or | Not)):
        return True
    absent = {t.field for t in terms if isinstance(t, IsNull) and not t.negated}
    absent |= {t.field for t in terms if isinstance(t, Exists) and t.negated}
    compared = [t for t in terms if isinstance(t, Compare | In | Like)]
    if any(_operand_of(t) in absent for t in compared):
        return True
    return any(_is_empty(bounds) for bounds in _bounds_by_operand(compared).values())


def _operand_of(leaf: Compare | In | Like) -> Operand:
    return leaf.left if isinstance(leaf, Compare) else leaf.value


def _bounds_by_operand(
    leaves: list[Compare | In | Like],
) -> dict[Operand, list[tuple[CompareOp, tuple[Scalar, ...]]]]:
    """Collect, for each operand, the comparisons with constants that order ints and floats alike."""
    bounds: dict[Operand, list[tuple[CompareOp, tuple[Scalar, ...]]]] = {}
    op: CompareOp
    values: tuple[Scalar, ...]
    for leaf in leaves:
        if isinstance(leaf, Compare) and isinstance(leaf.right, Literal):
            op, values = leaf.op, (leaf.right.value,)
        elif (
            isinstance(leaf, In)
            and not leaf.negated
            and all(isinstance(i, Literal) for i in leaf.items)
        ):
            op, values = "=", tuple(i.value for i in leaf.items if isinstance(i, Literal))
        else:
            continue
        if all(isinstance(v, str | bool) or abs(v) < EXACT_AS_DOUBLE for v in values):
            bounds.setdefault(_operand_of(leaf), []).append((op, values))
    return bounds


def _is_empty(bounds: list[tuple[CompareOp, tuple[Scalar, ...]]]) -> bool:
    """Tell whether no value satisfies all bounds; trying the equalities, or the ends of the range, is enough."""
    kinds = {_kind_class(v) for _, values in bounds for v in values}
    equalities = [values for op, values in bounds if op == "="]
    if equalities:
        candidates = min(equalities, key=len)
        return not any(all(_satisfies(c, op, values) for op, values in bounds) for c in candidates)
    if len(kinds) > 1:
        return not any(len({_kind_class(v) for v in values}) > 1 for _, values in bounds)
    lows = [(op, values[0]) for op, values in bounds if op in (">", ">=")]
    highs = [(op, values[0]) for op, values in bounds if op in ("<", "<=")]
    return any(
        low > high or (low == high and (low_op, high_op) != (">=", "<="))  # type: ignore[operator]
        for low_op, low in lows
        for high_op, high in highs
    )


def _satisfies(candidate: Scalar, op: CompareOp, values: tuple[Scalar, ...]) -> bool:
    return any(logic.compare(op, candidate, value) is True for value in values)


def _kind_class(value: Scalar) -> str:
    return "string" if isinstance(value, str) else "bool" if isinstance(value, bool) else "number"


def _simplify_leaf(leaf: Leaf) -> Filter:
    leaf = _map_operands(leaf, _fold)  # type: ignore[assignment]
    match leaf:
        case Compare(op=op, left=Literal() | Now() as left, right=right) if not isinstance(
            right, Literal | Now
        ):
            return _simplify_leaf(Compare(logic.MIRRORED[op], right, left))
        case Compare(left=Literal(), right=Literal()):
            return Constant(logic.matches_filter(leaf, _EMPTY))
        case Compare(op=op, right=Literal(kind="bool")) if op not in ("=", "<>"):
            return FALSE  # booleans have no order: UNKNOWN
        case Compare(left=left, right=right) if _never_comparable(left, right):
            return FALSE
        case In():
            return _simplify_in(leaf)
        case Like(value=Literal()):
            return Constant(logic.matches_filter(leaf, _EMPTY))
        case Like(value=value) if _known_kind(value) not in (None, "string"):
            return FALSE
        case Like(value=value, pattern=pattern, escape=escape, negated=negated):
            text = plain_text(pattern, escape)
            return leaf if text is None else Compare("<>" if negated else "=", value, Literal(text))
        case IsNull(field=Field(scope="sys", name=name), negated=negated) if name in _REQUIRED:
            return Constant(negated)
        case Exists(field=Field(scope="sys", name=name), negated=negated) if name in _REQUIRED:
            return Constant(not negated)
        case TopicMatch(pattern="#", negated=negated):
            return Constant(not negated)
        case _:
            return leaf


def _known_kind(operand: Operand) -> str | None:
    """Return the class of the kinds an operand can have; None when that depends on the message."""
    match operand:
        case Literal(value=value):
            return _kind_class(value)
        case Field(scope="sys", name=name):
            return "string" if SYS_KINDS[name] == "string" else "number"
        case Field():
            return None
        case _:
            return "number"


def _never_comparable(left: Operand, right: Operand) -> bool:
    kinds = {_known_kind(left), _known_kind(right)}
    return None not in kinds and len(kinds) > 1


def _simplify_in(leaf: In) -> Filter:
    items = tuple(dict.fromkeys(leaf.items))
    if isinstance(leaf.value, Literal) and all(isinstance(item, Literal) for item in items):
        return Constant(logic.matches_filter(leaf, _EMPTY))
    if leaf.negated and len({_kind_class(i.value) for i in items if isinstance(i, Literal)}) > 1:
        return FALSE  # whatever the value is, one of the comparisons is UNKNOWN
    comparable = tuple(item for item in items if not _never_comparable(leaf.value, item))
    if not comparable or (leaf.negated and comparable != items):
        return FALSE
    items = comparable
    if len(items) == 1:
        return _simplify_leaf(Compare("<>" if leaf.negated else "=", leaf.value, items[0]))
    return In(leaf.value, items, leaf.negated)


# ---- operands ----------------------------------------------------------------------------------------


def _map_operands(node: Filter, change: Callable[[Operand], Operand]) -> Filter:
    """Apply `change` to every whole operand of the filter."""
    match node:
        case Compare(op=op, left=left, right=right):
            return Compare(op, change(left), change(right))
        case In(value=value, items=items, negated=negated):
            return In(change(value), tuple(map(change, items)), negated)
        case Like(value=value, pattern=pattern, escape=escape, negated=negated):
            return Like(change(value), pattern, escape, negated)
        case Not(term=term):
            return Not(_map_operands(term, change))
        case And(terms=terms):
            return And(tuple(_map_operands(term, change) for term in terms))
        case Or(terms=terms):
            return Or(tuple(_map_operands(term, change) for term in terms))
        case Constant() | IsNull() | Exists() | TopicMatch():
            return node
        case _:
            assert_never(node)


def _fold(operand: Operand) -> Operand:
    """Compute constants; what is UNKNOWN (an overflow, a division by zero) stays as it is written."""
    match operand:
        case Negate(value=value):
            return _as_literal(Negate(_fold(value)))
        case Arith(op=op, left=left, right=right):
            return _as_literal(Arith(op, _fold(left), _fold(right)))
        case _:
            return operand


def _as_literal(operand: Negate | Arith) -> Operand:
    parts = (operand.value,) if isinstance(operand, Negate) else (operand.left, operand.right)
    if not all(isinstance(part, Literal) for part in parts):
        return operand
    value = logic.value_of(operand, _EMPTY)
    if value is None:
        return operand
    forms = [part.form for part in parts if isinstance(part, Literal)]
    return Literal(value, "timestamp" if "timestamp" in forms else forms[0])


def _bind(operand: Operand, now_us: int) -> Operand:
    match operand:
        case Now():
            return Literal(now_us)
        case Negate(value=value):
            return Negate(_bind(value, now_us))
        case Arith(op=op, left=left, right=right):
            return Arith(op, _bind(left, now_us), _bind(right, now_us))
        case _:
            return operand
