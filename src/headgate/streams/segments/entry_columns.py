"""Arrays that grow with the index of a hot segment. Appending to one costs as much as what is appended."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from headgate.streams.segments.hot_chunk import DAMAGED


def extended(known: npt.NDArray[Any], fresh: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return `known` with `fresh` behind it, in time proportional to `fresh`.

    Results share memory, with room behind: only the last one may be extended again.
    """
    if not len(fresh):
        return known
    size, room = len(known) + len(fresh), known.base
    if not isinstance(room, np.ndarray) or room.dtype != known.dtype or len(room) < size:
        room = np.empty(size + size // 2, known.dtype)
        room[: len(known)] = known
    room[len(known) : size] = fresh
    return room[:size]


class EntryColumns(NamedTuple):
    """Fields of all entries, each as one array: reading a field of an entry is slow, and these are read often."""

    position: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    first_offset: npt.NDArray[np.int64]
    last_offset: npt.NDArray[np.int64]
    damaged: npt.NDArray[np.bool_]


_NONE: Final = np.zeros(0, np.int64)
NO_COLUMNS: Final = EntryColumns(_NONE, _NONE, _NONE, _NONE, np.zeros(0, np.bool_))


def read_columns(entries: npt.NDArray[Any], before: EntryColumns = NO_COLUMNS) -> EntryColumns:
    """Return the columns of the entries; `before` are the columns of the first entries."""
    fresh = entries[len(before.position) :]
    if not len(fresh):
        return before
    first = fresh["first_offset"]
    columns = (
        fresh["position"],
        fresh["length"],
        first,
        first + fresh["count"].astype(np.int64) - 1,
        (fresh["flags"] & DAMAGED) != 0,
    )
    return EntryColumns(*map(extended, before, columns))
