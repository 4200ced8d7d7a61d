"""By which facts a scan can skip a chunk that holds no match, told from the filter alone.

A hot chunk has bounds of its timestamps and priorities, a Bloom filter over the indexed headers, and the values that
`restrict_same_values` made equal in it. A sealed or cold one has counts and bounds of every column, the values where they
are few, and Bloom filters over the indexed headers. What is named here is tested against `judge` on real chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias
from typing import Literal as OneOf

from headgate.filters.compile.verdict import judged_field, needed_fields, required_values
from headgate.filters.like import literal_prefix
from headgate.filters.nodes import (
    TOPIC,
    And,
    Constant,
    Exists,
    Field,
    Filter,
    IsNull,
    Leaf,
    Like,
    Not,
    Or,
    TopicMatch,
)
from headgate.filters.normal import push_negation

ChunkTier: TypeAlias = OneOf["hot", "sealed"]

NOTHING: Final = "nothing"
_TIMESTAMP: Final = Field("sys", "timestamp")
_PRIORITY: Final = Field("sys", "priority")
_FILTER_VALUE: Final = Field("sys", "filter_value")
_ALWAYS_PRESENT: Final = (TOPIC, _PRIORITY, _TIMESTAMP)


def pruned_by(term: Filter, tier: ChunkTier) -> str:
    """Name the facts by which a term of a normal form, with `UTC()` bound, skips chunks; `NOTHING` if all are read.

    An AND skips by any of its terms, an OR only where every one of its terms is excluded.
    """
    match term:
        case And(terms=terms):
            found = [facts for facts in (pruned_by(t, tier) for t in terms) if facts != NOTHING]
            return _list(found, ", or ")
        case Or(terms=terms):
            found = [pruned_by(t, tier) for t in terms]
            return NOTHING if NOTHING in found else _list(found, ", and ")
        case Not():
            return pruned_by(push_negation(term), tier)
        case Constant(value=value):
            return NOTHING if value else "every chunk"
        case _:
            return _list(_hot_facts(term) if tier == "hot" else _sealed_facts(term), ", ")


def _list(facts: Iterable[str], joint: str) -> str:
    return joint.join(dict.fromkeys(facts)) or NOTHING


def has_bloom_filter(field: Field) -> bool:
    """Tell whether streams may keep a Bloom filter over the values of a field."""
    return field.scope == "header" or field == _FILTER_VALUE


def _hot_facts(leaf: Leaf) -> Iterator[str]:
    field = judged_field(leaf)
    if field in (_TIMESTAMP, _PRIORITY):
        yield "min/max"
    elif field == _FILTER_VALUE:
        yield "null counts"
        yield from _bloom_facts(leaf, field)
    elif field is not None and field.scope == "header":
        yield from _bloom_facts(leaf, field)
        yield "the value if restricted"


def _bloom_facts(leaf: Leaf, field: Field) -> Iterator[str]:
    if has_bloom_filter(field) and any(True for _ in required_values(leaf)):
        yield "Bloom filter" if field == _FILTER_VALUE else "Bloom filter if indexed"


def _sealed_facts(leaf: Leaf) -> Iterator[str]:
    field = judged_field(leaf)
    if field is None:
        if any(needed not in _ALWAYS_PRESENT for needed, _ in needed_fields(leaf)):
            yield "null counts"
        return
    if field not in _ALWAYS_PRESENT:
        yield "null counts"
    if isinstance(leaf, IsNull | Exists):
        return
    yield from _bloom_facts(leaf, field)
    yield from _range_facts(leaf)
    if field != _TIMESTAMP:
        yield "distinct values if few"


def _range_facts(leaf: Leaf) -> Iterator[str]:
    match leaf:
        case Like(pattern=pattern, escape=escape, negated=negated):
            if not negated and literal_prefix(pattern, escape):
                yield "min/max of the prefix"
        case TopicMatch(pattern=pattern, negated=negated):
            if not negated and not pattern.startswith(("*", "#")):
                yield "min/max of the prefix"
        case _:
            yield "min/max"
