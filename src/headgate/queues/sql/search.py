"""A claim's filter, ready to be asked, and what is remembered of having asked it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from headgate.queues.engine import QueueInfo
from headgate.queues.sql.dialect import Condition

IN_DOUBT: Final = 2  # a delivery that may be what ended its consumer, see 0006_doubt.sql
MOST_NAMED: Final = 1_000  # ids not to take that are named in a query
FIRST_GAP: Final = 3  # the first parameter of a condition: after the queue and the limit


class Candidate(NamedTuple):
    id: int
    rank: int
    group: str | None
    doubt: int = 0


class RejectedIds(Collection[int]):
    """Ids not to take, however many.

    Few are named in the query. Of many, a claim reads what is ready and passes them over, and remembers where it was: the
    next claim goes on from there, and begins anew when it has found nothing, or has read as much as it passes over.
    """

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self._ids = set(ids)
        self._resume: tuple[int, int] | None = None
        self._read = 0

    def __contains__(self, id: object) -> bool:
        return id in self._ids

    def __iter__(self) -> Iterator[int]:
        return iter(tuple(self._ids))  # others may add to them meanwhile

    def __len__(self) -> int:
        return len(self._ids)

    def update(self, ids: Iterable[int]) -> None:
        self._ids.update(ids)

    def forget_all_but(self, seen: Collection[int]) -> None:
        """A claim read all that is ready and met only these. The others were consumed by somebody, or are leased or
        delayed and at worst rejected once more; as they may be, they are forgotten only when they are many."""
        if len(self._ids) > 2 * len(seen) + MOST_NAMED:
            self._ids = set(seen)

    @property
    def resume(self) -> tuple[int, int] | None:
        """After which rank and id the next claim looks first; None: from the beginning."""
        return self._resume if self._read <= len(self._ids) else None

    def note(self, found: Sequence[Candidate]) -> None:
        """A claim looked as far as these."""
        self._read = self._read + len(found) if self.resume is not None else 0
        self._resume = (found[-1].rank, found[-1].id) if found else None


def skipping(ids: Collection[int]) -> tuple[int, ...] | RejectedIds:
    """The ids, as a search takes them."""
    if len(ids) <= MOST_NAMED:
        return tuple(ids)
    return ids if isinstance(ids, RejectedIds) else RejectedIds(ids)


class Search(NamedTuple):
    """A claim's filter, ready to be asked."""

    queue: QueueInfo
    conditions: tuple[Condition, ...]
    skip: tuple[int, ...] | RejectedIds
    lasting: bool = False  # what does not match now never will

    def passing_over(self, given: Sequence[Candidate], found: Sequence[Candidate]) -> Search:
        """The same search without those that could not be leased, and without the rest of their groups."""
        groups = {one.group for one in given} - {None}
        tried = {one.id for one in given}
        ids = tuple(one.id for one in found if one.id in tried or one.group in groups)
        return self._replace(skip=skipping((*self.skip, *ids)))

    @property
    def reads(self) -> bool:
        """Whether it reads things that do not match."""
        return isinstance(self.skip, RejectedIds) or any(
            condition.needs_message or condition.scans for condition in self.conditions
        )

    @property
    def walks(self) -> bool:
        """Whether it must read everything to find that nothing matches, and the database alone can do it."""
        [condition, *others] = self.conditions
        return not others and condition.scans and condition.residual is None


class Examined(NamedTuple):
    """Of the deliveries up to message `upto`, in whatever state, only `known` match."""

    upto: int = 0
    known: tuple[int, ...] = ()
    # Where transactions overlap: the last message seen, and the transaction before which all must have ended until it
    # is certain that no earlier one will still appear.
    seen: int = 0
    ending: int = 0
