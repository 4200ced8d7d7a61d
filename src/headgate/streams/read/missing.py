"""What a reader does about messages it cannot have: those that are damaged, and those that are not there.

`on_corrupt`: "error" stops at what cannot be read and says which offsets that is; "skip" goes on past it, with a warning
in the log and a count in `stats.messages_lost`; a function goes on as well, and is called with each StreamCorrupt.

`on_lost`: where a reader is to begin, or go on, at an offset that retention has dropped or that was never given away:
"error" says so, "first" goes on with the oldest message there is, "next" with the next to come.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from headgate.errors import PositionLost, StreamCorrupt, StreamOptionsError
from headgate.streams.segments.segment import Segment

OnCorrupt: TypeAlias = Literal["error", "skip"] | Callable[[StreamCorrupt], object]
OnLost: TypeAlias = Literal["error", "first", "next"]

_log: Final = logging.getLogger(__name__)


def check_choices(on_corrupt: object, on_lost: object) -> None:
    """Refuse what is no way to go on."""
    if on_corrupt not in ("error", "skip") and not callable(on_corrupt):
        raise StreamOptionsError(
            f'on_corrupt: {on_corrupt!r} is not "error", "skip" or a function that is told of each damage'
        )
    if on_lost not in ("error", "first", "next"):
        raise StreamOptionsError(f'on_lost: {on_lost!r} is not "error", "first" or "next"')


def pass_over(damage: StreamCorrupt, on_corrupt: OnCorrupt) -> None:
    """Go on past the damage; raise it where that was not asked for."""
    if on_corrupt == "error":
        raise damage
    if callable(on_corrupt):
        on_corrupt(damage)
    else:
        _log.warning("skipped: %s", damage)


def kept_position(
    who: str, position: int, first_offset: int, next_offset: int, on_lost: OnLost
) -> int:
    """The position, if the stream has it; where it is lost, what was asked for in its place."""
    if first_offset <= position <= next_offset:
        return position
    lost = PositionLost(who, position, first_offset, next_offset)
    if on_lost == "error":
        raise lost
    chosen = first_offset if on_lost == "first" else next_offset
    _log.warning("%s; it goes on at offset %d", lost, chosen)
    return chosen


# ---- which offsets -----------------------------------------------------------------------------------


def unreadable_chunk(
    segment: Segment, at: int, low: int, high: int, damage: StreamCorrupt
) -> StreamCorrupt:
    """The damage with the offsets in [low, high) that the chunk has; exactly, if its offsets can be read."""
    first, last = (int(bound[at]) for bound in segment.offset_bounds())
    known = segment.metadata(at)
    try:
        offsets = np.sort(segment.chunk(at).offsets())
    except StreamCorrupt:
        span = (max(first, low), min(last, high - 1))
        count = min(known.count or last - first + 1, span[1] - span[0] + 1)
        return StreamCorrupt(damage.file, damage.position, damage.problem, [span], count)
    asked = offsets[(offsets >= low) & (offsets < high)]
    return StreamCorrupt(damage.file, damage.position, damage.problem, runs_of(asked))


def runs_of(offsets: npt.NDArray[Any]) -> list[tuple[int, int]]:
    """Ascending offsets as pairs of the first and the last of each run."""
    if not len(offsets):
        return []
    ends = np.flatnonzero(np.diff(offsets) != 1)
    firsts, lasts = offsets[np.r_[0, ends + 1]], offsets[np.r_[ends, len(offsets) - 1]]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))
