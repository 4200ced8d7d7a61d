"""What advice is about: the filters people give, or else equality on each header there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from headgate.filters import (
    Compare,
    Field,
    Filter,
    FilterLike,
    as_filter,
    fields_read,
    normalize,
    to_text,
)
from headgate.filters import Literal as Constant
from headgate.message import Scalar
from headgate.spark.jobs.sketches import SAMPLED
from headgate.spark.jobs.stats import FieldStats, StreamStats

Weighing: TypeAlias = Literal["uniform", "use"]

MOST_HEADERS: Final = 8  # looked at when nobody says which filters matter


@dataclass(frozen=True, slots=True)
class Subject:
    """One or several filters that count as one, each with its weight; the weights add up to 1."""

    name: str
    filters: tuple[Filter, ...]
    weights: tuple[float, ...]
    matches: float | None  # the share of messages that match; None while nobody has counted
    header: str | None = None  # whose equality it is
    values: tuple[Scalar, ...] = ()  # with each of these

    def mean(self, shares: Sequence[float]) -> float:
        """The weighted mean of what happened to each filter."""
        return sum(w * share for w, share in zip(self.weights, shares, strict=True))

    @property
    def fields(self) -> frozenset[Field]:
        return frozenset().union(*(fields_read(filter) for filter in self.filters))

    @property
    def headers(self) -> list[str]:
        """The headers that could be indexed for it."""
        return sorted(field.name for field in self.fields if field.scope == "header")


def filter_subject(filter: FilterLike, now_us: int) -> Subject:
    """A filter somebody cares about; a bad one is refused here."""
    tree = normalize(as_filter(filter)).at(now_us).tree
    return Subject(to_text(as_filter(filter)), (tree,), (1.0,), None)


def header_subjects(stats: StreamStats, weighing: Weighing) -> list[Subject]:
    """Equality on each header, the most present ones first."""
    found = {
        name: field for name, field in stats.headers().items() if _tells(field, stats.messages)
    }
    ranked = sorted(found, key=lambda n: (-found[n].present, found[n].distinct.estimate, n))
    return [_equality(n, found[n], stats.messages, weighing) for n in ranked[:MOST_HEADERS]]


def _tells(field: FieldStats, messages: int) -> bool:
    """A header with the same value in every message decides nothing."""
    return bool(field.kinds) and (field.distinct.estimate > 1 or field.present < messages)


def _equality(name: str, field: FieldStats, messages: int, weighing: Weighing) -> Subject:
    weighed = _by_use(field) if weighing == "use" else _evenly(field)
    filters = tuple(Compare("=", Field("header", name), Constant(each.value)) for each in weighed)
    return Subject(
        f"{name} = …",
        filters,
        tuple(each.weight for each in weighed),
        sum(each.weight * each.messages for each in weighed) / messages,
        name,
        tuple(each.value for each in weighed),
    )


class _Weighed(NamedTuple):
    value: Scalar
    weight: float
    messages: float  # how many have it


def _evenly(field: FieldStats) -> list[_Weighed]:
    values, count = field.distinct.values, _comparable(field) / field.distinct.estimate
    return [_Weighed(value, 1 / len(values), count) for value in values]


def _by_use(field: FieldStats) -> list[_Weighed]:
    """Each value as often as messages have it: the frequent ones by their count, a sample stands for the rest."""
    total, top = _comparable(field), field.heavy.top(SAMPLED)
    listed = {(type(value), value) for value, _ in top}
    others = [v for v in field.distinct.values if (type(v), v) not in listed]
    left = total - sum(count for _, count in top) if others else 0
    unlisted = max(field.distinct.estimate - len(top), 1)
    counted = total if others else sum(count for _, count in top)
    named = [_Weighed(value, count / counted, count) for value, count in top]
    return [*named, *(_Weighed(v, left / total / len(others), left / unlisted) for v in others)]


def _comparable(field: FieldStats) -> int:
    return sum(values.present for values in field.kinds.values())
