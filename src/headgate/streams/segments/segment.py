"""What readers see of a stream: segments made of chunks, whether hot, sealed or cold.

A segment knows facts about all its chunks from its index or summary, and opens a chunk only when they do not decide.
A chunk returns typed columns one at a time, so that a filter reads only the columns it compares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as member
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate.filters import Columns, Facts, Field
from headgate.message import Scalar

if TYPE_CHECKING:
    from headgate.streams.segments.pages import PageFacts

FILTER_VALUE: Final = Field("sys", "filter_value")


@dataclass(frozen=True, slots=True)
class ChunkMetadata:
    """What an entry filter decides on, known without decoding a message.

    `properties` are the values that `restrict_same_values` made equal in the whole chunk.
    """

    first_offset: int
    last_offset: int
    count: int
    min_timestamp: int  # microseconds since 1970 UTC
    max_timestamp: int
    min_priority: int
    max_priority: int
    nbytes: int
    properties: Mapping[str, Scalar] = member(default_factory=dict)


class Chunk(Columns, Protocol):
    """Some messages as columns. A column is checked against its CRC when it is first read."""

    @property
    def first_offset(self) -> int: ...

    @property
    def nbytes(self) -> int:
        """The length on disk of the whole chunk."""
        ...

    def offsets(self) -> npt.NDArray[np.int64]:
        """The offset of every row."""
        ...

    def metadata(self) -> ChunkMetadata: ...

    def take(
        self, rows: npt.NDArray[np.intp] | None, columns: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """Return rows (None: all) with `offset` first, and those of `columns` that the chunk has (None: all).

        Every chunk has `timestamp`, `topic`, `priority` and `payload`.
        """
        ...


class Chunks(Protocol):
    """The messages of a run of offsets [first_offset, next_offset), as chunks."""

    @property
    def first_offset(self) -> int: ...

    @property
    def next_offset(self) -> int: ...

    def __len__(self) -> int:
        """The number of chunks."""
        ...

    def chunk(self, i: int) -> Chunk: ...

    def producers(self) -> Mapping[str, int]:
        """Every named producer's last publishing id, as of the end of these chunks."""
        ...


class Segment(Chunks, Protocol):
    """A run of offsets [first_offset, next_offset) in a log with its index, a sealed file or a cold one."""

    @property
    def sealed(self) -> bool: ...

    def facts(self, start: int = 0, end: int | None = None) -> Facts:
        """What is known of the chunks [start, end); the probe asks the Bloom filters of this segment."""
        ...

    def chunks_between(self, low: int, high: int) -> tuple[int, int]:
        """Return a range of chunks that holds all offsets in [low, high)."""
        ...

    @property
    def pages(self) -> PageFacts | None:
        """What is known of the pages of every chunk; None where chunks are read whole."""
        ...

    def metadata(self, i: int) -> ChunkMetadata:
        """The chunk's metadata from the index alone."""
        ...

    def column_names(self, low: int, high: int) -> frozenset[str]:
        """The names of the columns of all chunks that may have offsets in [low, high)."""
        ...

    def lengths(self) -> npt.NDArray[np.int64]:
        """The length on disk of every chunk."""
        ...

    def offset_bounds(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The lowest and the highest offset of every chunk."""
        ...

    def close(self) -> None: ...
