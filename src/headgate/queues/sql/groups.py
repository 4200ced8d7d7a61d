"""Busy groups: one member is leased, or delayed after a nack. The other members are set aside, so claims do not read them."""

from __future__ import annotations

from functools import partial
from typing import Final

from headgate.queues.engine import Operation, QueueInfo, Transaction, TransactionMode
from headgate.queues.sql.dialect import QueueDialect

_MOST_CLAIMS_BETWEEN_LOOKS: Final = 32
_LOOKED_AT: Final = 200  # READY deliveries, each time
_IN_THE_WAY: Final = 100  # members among these; reading fewer costs less than setting them aside and bringing them back
_AT_ONCE: Final = 5_000


class BusyGroups:
    """Sets members of busy groups aside where they are in the way. Triggers bring them back, see 0011_aside.sql."""

    def __init__(self, dialect: QueueDialect) -> None:
        self._dialect = dialect
        # By queue: how many claims until the next look, and between the last two.
        self._pauses: dict[int, tuple[int, int]] = {}

    def is_time_to_look(self, queue: QueueInfo) -> bool:
        """Whether this claim is to look for members of busy groups: the first few claims do, then one of many."""
        left, pause = self._pauses.get(queue.id, (0, 0))
        longer = min(2 * pause + 1, _MOST_CLAIMS_BETWEEN_LOOKS)
        self._pauses[queue.id] = (left - 1, pause) if left else (longer, longer)
        return not left

    def set_aside(self, queue: QueueInfo) -> Operation[None]:
        """Set members of busy groups aside if many of the first READY deliveries are; the next claim looks again."""
        [(count,)] = yield self._dialect.statement("busy_in_the_way", queue.id, _LOOKED_AT)
        if count >= _IN_THE_WAY:
            yield Transaction(TransactionMode.LEASE, partial(self._set_aside, queue))
            self._pauses[queue.id] = (0, 0)

    def _set_aside(self, queue: QueueInfo) -> Operation[None]:
        yield self._dialect.statement("set_aside", queue.id, _AT_ONCE)
