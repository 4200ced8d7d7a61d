"""Sealed and cold segments: both are planned with a note and a summary, and never change.

They differ in where the columns of a chunk come from.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.columns import OVERFLOW, column_name, join_views, overflow_view, read_overflow
from headgate.filters import SYS_KINDS, Facts, Field, View
from headgate.message import Scalar
from headgate.streams.format import FORMAT_VERSION
from headgate.streams.segments.gather import RowIndices
from headgate.streams.segments.pages import PageFacts
from headgate.streams.segments.segment import ChunkMetadata
from headgate.streams.segments.sliced_facts import slice_facts
from headgate.streams.segments.summary import Summary

_METADATA: Final = (
    "min:offset", "max:offset", "rows", "min:timestamp", "max:timestamp", "min:priority", "max:priority",
)  # fmt: skip


class SummarizedSegment(ABC):
    """A segment that never changes, so that any number of readers may share it."""

    sealed: Final = True
    tier: ClassVar[str]  # its name for users
    path: Path  # its file in the directory of the stream
    note: SegmentNote
    names: list[str]  # of all its columns
    footer_bytes: int  # kept in memory while it is open
    nbytes: int  # on disk
    _summary: Summary

    @property
    def first_offset(self) -> int:
        return self.note.first_offset

    @property
    def next_offset(self) -> int:
        return self.note.next_offset

    def __len__(self) -> int:
        return len(self._summary.rows)

    def facts(self, start: int = 0, end: int | None = None) -> Facts:
        return slice_facts(self._summary.facts(), start, len(self) if end is None else end)

    def chunks_between(self, low: int, high: int) -> tuple[int, int]:
        return 0, len(self)  # they are in any order

    def column_names(self, low: int, high: int) -> frozenset[str]:
        return frozenset(self.names)

    @property
    def pages(self) -> PageFacts | None:
        """What is known of the pages of every chunk; None where chunks are read whole."""
        return None

    @abstractmethod
    def chunk(self, i: int) -> SummarizedChunk: ...

    def rows_of(self, i: int) -> int:
        return int(self._summary.rows[i])

    @abstractmethod
    def lengths(self) -> npt.NDArray[np.int64]: ...

    def offset_bounds(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The lowest and the highest offset of every chunk."""
        return self._summary.numbers("min:offset"), self._summary.numbers("max:offset")

    def metadata(self, i: int) -> ChunkMetadata:
        first, last, count, since, until, least, most = (
            int(self._summary.numbers(name)[i]) for name in _METADATA
        )
        return ChunkMetadata(
            first,
            last,
            count,
            since,
            until,
            least,
            most,
            int(self.lengths()[i]),
            self._properties(i),
        )

    def _properties(self, i: int) -> Mapping[str, Scalar]:
        column = self._summary.batch.schema.get_field_index("properties")
        found: Mapping[str, Scalar] = (
            {} if column < 0 else json.loads(self._summary.batch.column(column)[i].as_py())
        )
        return found

    def producers(self) -> Mapping[str, int]:
        return self.note.producers

    def close(self) -> None:  # noqa: B027 - optional, and there is nothing to do
        """Do nothing: the file is unmapped when the last array over its memory is gone."""


class SummarizedChunk(ABC):
    """A chunk whose columns are read one at a time."""

    __slots__ = ("_overflowing", "_segment", "at")

    _segment: SummarizedSegment

    def __init__(self, segment: SummarizedSegment, at: int) -> None:
        self._segment, self.at = segment, at
        self._overflowing: list[dict[str, Any]] | None = None

    @abstractmethod
    def column(self, name: str) -> pa.Array:
        """Return a column of the segment, checked at the first call."""

    @property
    def first_offset(self) -> int:
        return int(self._segment.offset_bounds()[0][self.at])

    @property
    def num_rows(self) -> int:
        return self._segment.rows_of(self.at)

    @property
    def nbytes(self) -> int:
        return int(self._segment.lengths()[self.at])

    def offsets(self) -> npt.NDArray[np.int64]:
        offsets: npt.NDArray[np.int64] = self.column("offset").to_numpy()
        return offsets

    def metadata(self) -> ChunkMetadata:
        return self._segment.metadata(self.at)

    def view(self, field: Field, view: View) -> pa.Array | None:
        if field.scope == "sys" and SYS_KINDS[field.name] != view:
            return None
        name = column_name(field, view)
        array = self.column(name) if name in self._segment.names else None
        if field.scope == "header" and field.name in self._segment.note.overflowed:
            return join_views(array, overflow_view(self._read_overflow(), field.name, view), view)
        return array

    def take(self, rows: RowIndices | None, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        names = [n for n in self._segment.names if columns is None or n in (*columns, "offset")]
        arrays = [self.column(name) for name in names]
        batch = pa.RecordBatch.from_arrays(arrays, names)
        return batch if rows is None else batch.take(pa.array(rows))

    def _read_overflow(self) -> list[dict[str, Any]]:
        if self._overflowing is None:
            self._overflowing = read_overflow(self.column(OVERFLOW))
        return self._overflowing


@dataclass(frozen=True, slots=True)
class SegmentNote:
    """What a segment says of itself: `headgate.segment` in the footer of a sealed one."""

    first_offset: int
    next_offset: int
    indexed: tuple[str, ...]
    producers: Mapping[str, int]  # the last publishing id of each, as of the end of the segment
    overflowed: tuple[str, ...]  # headers that are in the overflow of some message
    in_order: bool  # rows are in the order of their offsets
    created: int  # microseconds UTC
    format: int = FORMAT_VERSION

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, text: bytes) -> SegmentNote:
        known = json.loads(text)
        if known["format"] != FORMAT_VERSION:
            raise ValueError(
                f"a segment of format {known['format']}, this program reads {FORMAT_VERSION}"
            )
        lists = {name: tuple(known[name]) for name in ("indexed", "overflowed")}
        return cls(**{**known, **lists})
