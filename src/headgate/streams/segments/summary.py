"""The summary of a sealed segment, as facts for the verdict. See `summarize` for what it holds.

Facts are made when a filter first asks about a field: a segment with a hundred headers costs as much to plan
as the filter has names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.columns import column_name, field_key, parse_column_name
from headgate.filters import (
    KINDS,
    SYS_KINDS,
    Chunks,
    Counts,
    DistinctSets,
    Facts,
    Field,
    FieldFacts,
    Flags,
    Kind,
    Range,
)
from headgate.message import Scalar
from headgate.streams.segments.bloom import BloomShape, hash_value, probe, salts
from headgate.streams.segments.summary_build import BLOOM_HASHES


class Summary(Mapping[Field, FieldFacts]):
    """What is known of every field in every chunk. A field that is not listed is in no message at all."""

    def __init__(
        self, batch: pa.RecordBatch, first_offset: int, overflowed: Collection[str]
    ) -> None:
        self.batch = batch
        self.rows: Counts = self.numbers("rows")
        self._first_offset = first_offset
        self._overflowed = frozenset(overflowed)
        self._known: dict[Field, FieldFacts] = {}

    def facts(self) -> Facts:
        return Facts(self.rows, self, self.probe)

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """A column of the summary as an array."""
        found: npt.NDArray[Any] = self.batch.column(name).to_numpy(zero_copy_only=False)
        return found

    # ---- as a mapping --------------------------------------------------------------------------------

    def __getitem__(self, field: Field) -> FieldFacts:
        if field not in self._known:
            self._known[field] = self._facts_of(field)
        return self._known[field]

    def __contains__(self, field: object) -> bool:
        return isinstance(field, Field)

    def __iter__(self) -> Iterator[Field]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)

    @cached_property
    def _listed(self) -> list[Field]:
        named = [name[6:] for name in self.batch.schema.names if name.startswith("count:")]
        return list({field: None for name in named if (field := parse_column_name(name)[0])})

    def _facts_of(self, field: Field) -> FieldFacts:
        kinds: tuple[Kind, ...] = (SYS_KINDS[field.name],) if field.scope == "sys" else KINDS
        ranges = {
            kind: self._range(column_name(field, kind))
            for kind in kinds
            if self._has("count", column_name(field, kind))
        }
        marked = column_name(field, "opaque") if field.scope != "sys" else ""
        return FieldFacts(
            ranges,
            covered=self._covered(field),
            opaque=self.numbers(f"count:{marked}") if self._has("count", marked) else None,
            distinct=self._distinct(field, ranges),
        )

    def _has(self, fact: str, column: str) -> bool:
        return bool(self.batch.schema.get_field_index(f"{fact}:{column}") >= 0)

    def _range(self, column: str) -> Range:
        low, high = self.numbers(f"min:{column}"), self.numbers(f"max:{column}")
        if low.dtype == np.uint8:
            low, high = low.astype(np.int64), high.astype(np.int64)
        return Range(self.numbers(f"count:{column}"), low, high)

    def _covered(self, field: Field) -> Flags | None:
        if field.scope != "header" or field.name not in self._overflowed:
            return None
        whole: Flags = self.numbers("count:overflow") == 0
        return whole

    # ---- sets ----------------------------------------------------------------------------------------

    def _distinct(self, field: Field, ranges: Mapping[Kind, Range]) -> DistinctSets | None:
        names = {kind: column_name(field, kind) for kind in ranges}
        if not any(self._has("set", name) for name in names.values()):
            return None
        if len(names) == 1:
            return self._sets(*names.values())
        return DistinctSets.of(self._joined_sets(names, ranges))

    def _sets(self, column: str) -> DistinctSets:
        lists = self.batch.column(f"set:{column}")
        return DistinctSets(
            lists.values.dictionary.to_pylist(),
            lists.values.indices.to_numpy().astype(np.intp),
            lists.offsets.to_numpy().astype(np.intp),
            lists.is_valid().to_numpy(zero_copy_only=False),
        )

    def _joined_sets(
        self, names: Mapping[Kind, str], ranges: Mapping[Kind, Range]
    ) -> Iterator[list[Scalar] | None]:
        """The values of all kinds together; unknown where a kind that occurs has no set."""
        columns = {
            kind: self.batch.column(f"set:{name}").to_pylist() if self._has("set", name) else None
            for kind, name in names.items()
        }
        for chunk in range(len(self.rows)):
            held = [kind for kind in names if ranges[kind].count[chunk]]
            sets = [found[chunk] if (found := columns[kind]) else None for kind in held]
            known = [values for values in sets if values is not None]
            yield list(chain.from_iterable(known)) if len(known) == len(sets) else None

    # ---- Bloom filters -------------------------------------------------------------------------------

    def probe(self, field: Field, value: Scalar, chunks: Chunks) -> Flags | None:
        """Whether each chunk may hold the value; None when the field has no Bloom filters."""
        name = f"bloom:{field_key(field)}"
        if self.batch.schema.get_field_index(name) < 0:
            return None
        column = self.batch.column(name)
        shape = BloomShape(column.type.byte_width, BLOOM_HASHES)
        filters = np.frombuffer(column.buffers()[1], np.uint8).reshape(-1, shape.nbytes)
        chunk_salts = salts(self._first_offset + chunks.astype(np.int64))
        found = probe(shape, filters[chunks], chunk_salts, hash_value(field, value))
        covered = self[field].covered
        return found if covered is None else found | ~covered[chunks]
