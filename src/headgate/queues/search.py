"""A claim's filter, ready to be asked, and what is remembered of having asked it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from headgate.queues.contract import QueueInfo
from headgate.queues.dialect import Condition

IN_DOUBT: Final = 2  # a delivery that may be what ended its consumer, see 0006_doubt.sql
FIRST_GAP: Final = 3  # the first parameter of a condition: after the queue and the limit


class Candidate(NamedTuple):
    id: int
    rank: int
    group: str | None
    doubt: int = 0


class Search(NamedTuple):
    """A claim's filter, ready to be asked."""

    queue: QueueInfo
    conditions: tuple[Condition, ...]
    skip: tuple[int, ...]
    lasting: bool = False  # what does not match now never will

    def passing_over(self, given: Sequence[Candidate], found: Sequence[Candidate]) -> Search:
        """The same search without those that could not be leased, and without the rest of their groups."""
        groups = {one.group for one in given} - {None}
        tried = {one.id for one in given}
        ids = tuple(one.id for one in found if one.id in tried or one.group in groups)
        return self._replace(skip=(*self.skip, *ids))

    @property
    def reads(self) -> bool:
        """Whether it reads things that do not match."""
        return any(condition.needs_message or condition.scans for condition in self.conditions)

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
