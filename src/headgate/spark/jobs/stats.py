"""What is in a stream: how many messages, how large, which headers with which values."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import field as member
from functools import reduce
from typing import Any, Final

import numpy as np

from headgate.columns import parse_field_key
from headgate.filters import Kind
from headgate.message import Scalar
from headgate.spark.jobs.sketches import (
    NO_VALUES,
    Distinct,
    Heavy,
    distinct_from_json,
    distinct_json,
    heavy_from_json,
    heavy_json,
    merge_distinct,
    merge_heavy,
)

SIZE_CLASSES: Final = 33  # class i holds payloads shorter than 2**i bytes


@dataclass(frozen=True, slots=True)
class Values:
    """The values of one kind of one field."""

    present: int
    distinct: Distinct
    heavy: Heavy
    low: Scalar | None
    high: Scalar | None


@dataclass(frozen=True, slots=True)
class FieldStats:
    """The values of one field; `opaque` are those no filter can compare."""

    kinds: dict[Kind, Values] = member(default_factory=dict)
    opaque: int = 0

    @property
    def present(self) -> int:
        return self.opaque + sum(values.present for values in self.kinds.values())

    @property
    def distinct(self) -> Distinct:
        """The different values of all kinds; 1 and 1.0 are one, as for a filter."""
        return reduce(merge_distinct, (v.distinct for v in self.kinds.values()), NO_VALUES)

    @property
    def heavy(self) -> Heavy:
        return reduce(merge_heavy, (values.heavy for values in self.kinds.values()), Heavy())


@dataclass(frozen=True, slots=True)
class Tier:
    """The segments of one tier: hot, sealed or cold."""

    segments: int = 0
    chunks: int = 0
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class StreamStats:
    """What is in a stream, or in a part of it."""

    messages: int = 0
    payload_bytes: int = 0
    largest_payload: int = 0
    size_classes: tuple[int, ...] = (0,) * SIZE_CLASSES
    first_us: int | None = None
    last_us: int | None = None
    tiers: dict[str, Tier] = member(default_factory=dict)
    fields: dict[str, FieldStats] = member(default_factory=dict)  # by `field_key`

    @property
    def nbytes(self) -> int:
        """The length of all chunks."""
        return sum(tier.nbytes for tier in self.tiers.values())

    def headers(self) -> dict[str, FieldStats]:
        """By their own names."""
        named = {parse_field_key(key): found for key, found in self.fields.items()}
        return {field.name: found for field, found in named.items() if field.scope == "header"}

    def size_below(self, share: float) -> int:
        """A payload size that this share of the messages stays below, to a power of two."""
        reached = np.cumsum(self.size_classes) >= share * self.messages
        return 2 ** int(np.argmax(reached)) if self.messages else 0


# ---- the sum of parts --------------------------------------------------------------------------------


def merged(parts: Iterable[StreamStats]) -> StreamStats:
    """The sum of disjoint parts of a stream."""
    return reduce(_merge, parts, StreamStats())


def _merge(one: StreamStats, other: StreamStats) -> StreamStats:
    firsts = [us for us in (one.first_us, other.first_us) if us is not None]
    lasts = [us for us in (one.last_us, other.last_us) if us is not None]
    classes = zip(one.size_classes, other.size_classes, strict=True)
    return StreamStats(
        messages=one.messages + other.messages,
        payload_bytes=one.payload_bytes + other.payload_bytes,
        largest_payload=max(one.largest_payload, other.largest_payload),
        size_classes=tuple(a + b for a, b in classes),
        first_us=min(firsts, default=None),
        last_us=max(lasts, default=None),
        tiers={
            name: _merge_tiers(one.tiers.get(name, Tier()), other.tiers.get(name, Tier()))
            for name in {**one.tiers, **other.tiers}
        },
        fields={
            key: merge_fields(
                one.fields.get(key, FieldStats()), other.fields.get(key, FieldStats())
            )
            for key in {**one.fields, **other.fields}
        },
    )


def _merge_tiers(one: Tier, other: Tier) -> Tier:
    return Tier(one.segments + other.segments, one.chunks + other.chunks, one.nbytes + other.nbytes)


def merge_fields(one: FieldStats, other: FieldStats) -> FieldStats:
    """One field in two parts of a stream."""
    kinds = dict(one.kinds)
    for kind, values in other.kinds.items():
        kinds[kind] = _merge_values(kinds[kind], values) if kind in kinds else values
    return FieldStats(kinds, one.opaque + other.opaque)


def _merge_values(one: Values, other: Values) -> Values:
    return Values(
        one.present + other.present,
        merge_distinct(one.distinct, other.distinct),
        merge_heavy(one.heavy, other.heavy),
        min((v for v in (one.low, other.low) if v is not None), default=None),
        max((v for v in (one.high, other.high) if v is not None), default=None),
    )


# ---- on the way to the driver ------------------------------------------------------------------------


def to_json(stats: StreamStats) -> str:
    plain = {name: getattr(stats, name) for name in _PLAIN}
    tiers = {name: [t.segments, t.chunks, t.nbytes] for name, t in stats.tiers.items()}
    fields = {key: _field_json(found) for key, found in stats.fields.items()}
    return json.dumps({**plain, "tiers": tiers, "fields": fields})


_PLAIN: Final = (
    "messages", "payload_bytes", "largest_payload", "size_classes", "first_us", "last_us",
)  # fmt: skip


def _field_json(field: FieldStats) -> dict[str, Any]:
    kinds = {
        kind: {
            "present": values.present,
            "distinct": distinct_json(values.distinct),
            "heavy": heavy_json(values.heavy),
            "low": values.low,
            "high": values.high,
        }
        for kind, values in field.kinds.items()
    }
    return {"kinds": kinds, "opaque": field.opaque}


def from_json(text: str) -> StreamStats:
    known = json.loads(text)
    return StreamStats(
        **{name: known[name] for name in _PLAIN if name != "size_classes"},
        size_classes=tuple(known["size_classes"]),
        tiers={name: Tier(*numbers) for name, numbers in known["tiers"].items()},
        fields={key: _field_from_json(found) for key, found in known["fields"].items()},
    )


def _field_from_json(known: dict[str, Any]) -> FieldStats:
    kinds: dict[Kind, Values] = {
        kind: Values(
            found["present"],
            distinct_from_json(found["distinct"]),
            heavy_from_json(found["heavy"]),
            found["low"],
            found["high"],
        )
        for kind, found in known["kinds"].items()
    }
    return FieldStats(kinds, known["opaque"])
