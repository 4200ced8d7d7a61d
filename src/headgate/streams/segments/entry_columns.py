"""Arrays that grow with the index of a hot segment: reading on costs as much as was appended, not as there is."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from headgate.streams.segments.hot_chunk import DAMAGED


def extended(known: npt.NDArray[Any], fresh: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return `known` and behind it `fresh`, in time that only `fresh` decides: there is room behind what it returns."""
    if not len(fresh):
        return known
    size, room = len(known) + len(fresh), known.base
    if not isinstance(room, np.ndarray) or room.dtype != known.dtype or len(room) < size:
        room = np.empty(size + size // 2, known.dtype)
        room[: len(known)] = known
    room[len(known) : size] = fresh
    return room[:size]


class EntryColumns(NamedTuple):
    """Fields of all entries as arrays of their own: a field of an entry is slow to read, and these are read often."""

    position: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    first_offset: npt.NDArray[np.int64]
    last_offset: npt.NDArray[np.int64]
    damaged: npt.NDArray[np.bool_]


_NONE: Final = np.zeros(0, np.int64)
NO_COLUMNS: Final = EntryColumns(_NONE, _NONE, _NONE, _NONE, np.zeros(0, np.bool_))


def read_columns(entries: npt.NDArray[Any], before: EntryColumns = NO_COLUMNS) -> EntryColumns:
    """Return the columns of the entries; `before` has those of the first ones."""
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
