"""The two orders in which a query goes through a queue, batch by batch.

The archive is *followed*: its messages stand by their turns, and all that is below the end is there and stays as it is.
What a queue holds now is *looked at*: by ids, up to the newest of one moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headgate.errors import DataLost
from headgate.queues import State
from headgate.spark.source.queue_rows import Rows, column, keys, refuse_older
from headgate.spark.source.queue_scan import TURN, Key, after, listed

TURNS_SINCE: Final = 4  # the version of the tables


@dataclass(frozen=True, slots=True)
class Order:
    """The names of the key's parts, and of the statements that ask for ranges of it."""

    names: tuple[str, ...]
    count: str
    at: str
    borders: str
    states: tuple[State, ...] = ()

    @property
    def first(self) -> Key:
        return (0,) * len(self.names)


FOLLOWED: Final = Order((TURN, "offset"), "turn_count", "turn_at", "turn_borders")


def order_of(states: Sequence[State]) -> Order:
    """In which order these states are gone through; no states: the archive."""
    if not states:
        return FOLLOWED
    return Order(("offset",), "delivery_count", "delivery_at", "delivery_borders", tuple(states))


def turns_end(rows: Rows, queue: int) -> int:
    """The turn below which nothing more comes."""
    refuse_older(rows, TURNS_SINCE)
    [(end, foreign)] = keys(rows, "turns_end", (queue,), FOLLOWED.names)
    if foreign is not None:
        raise DataLost(
            f"the archive has turn {foreign}, which this server has not come to: it was made from a dump of another; give its "
            f"messages turns of their own, once: UPDATE archive SET turn = DEFAULT WHERE turn >= {end}"
        )
    return end


def followable(rows: Rows, queue: int) -> bool:
    """Whether the queue keeps an archive, or has one from earlier."""
    turns_end(rows, queue)
    kept = bool(column(rows, "keeps_archive", queue)[0].as_py())
    return kept or end_of(rows, FOLLOWED, queue) != FOLLOWED.first


def end_of(rows: Rows, order: Order, queue: int) -> Key:
    """The key behind the last message there is; the first when there is none."""
    if order.states:
        found = keys(rows, "last_delivery", (queue,), order.names, states=listed(order.states))
    else:
        found = keys(rows, "last_in_turn", (queue, turns_end(rows, queue)), order.names)
    return after(found[0]) if found else order.first


def count_of(rows: Rows, order: Order, queue: int, low: Key, high: Key) -> int:
    """How many messages the range has."""
    gaps = {"states": listed(order.states)}
    found: int = column(rows, order.count, queue, *low, *high, **gaps)[0].as_py()
    return found


def key_at(rows: Rows, order: Order, queue: int, low: Key, high: Key, skipped: int) -> Key | None:
    """The key behind so many messages of the range; None where it has no more than these."""
    params = (queue, *low, *high, skipped)
    found = keys(rows, order.at, params, order.names, states=listed(order.states))
    return found[0] if found else None


def borders_of(
    rows: Rows, order: Order, queue: int, low: Key, high: Key, between: int
) -> list[Key]:
    """The keys of the range's first message and of every so manieth after it."""
    params = (queue, *low, *high, between)
    return keys(rows, order.borders, params, order.names, states=listed(order.states))
