"""Named producers and their publishing ids: a message that is published twice under one id is stored once.

The ids of a producer only grow. The last one of each is in the log itself: every chunk carries those of its producers,
and every segment begins with the table of all, so that the table survives crashes, sealing and retention.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from headgate.errors import InvalidMessage
from headgate.message import CONTROL, INT64_MAX, MAX_NAME_BYTES

# The name of a producer and the publishing id of a message.
Mark: TypeAlias = tuple[str, int]


def check_producer_name(name: object) -> None:
    """Refuse a name that is not text of 1 to 255 bytes without control characters."""
    if not isinstance(name, str) or not name:
        raise InvalidMessage("producer", f"a producer's name must be some text, not {name!r}")
    if CONTROL.search(name):
        raise InvalidMessage("producer", f"{name!r} holds control characters or lone surrogates")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise InvalidMessage("producer", f"{name[:40]!r}… is longer than {MAX_NAME_BYTES} bytes")


def check_publishing_id(publishing_id: object) -> None:
    """Refuse an id that is not an integer from 0 to 2^63 - 1."""
    if type(publishing_id) is not int or not 0 <= publishing_id <= INT64_MAX:
        raise InvalidMessage(
            "publishing_id", f"must be an integer from 0 to 2^63 - 1, not {publishing_id!r}"
        )


def last_ids(marks: Sequence[object]) -> dict[str, int]:
    """Return the last publishing id of each producer: of tuples that begin with a mark, among anything else."""
    return {mark[0]: mark[1] for mark in marks if type(mark) is tuple}


class ProducerTable:
    """The last publishing id of every named producer: accepted, appended to the log, and committed there."""

    __slots__ = ("_appended", "accepted", "committed")

    def __init__(self, committed: Mapping[str, int]) -> None:
        self.committed = dict(committed)
        self.accepted = dict(committed)
        self._appended: dict[str, int] = {}

    def last(self, name: str) -> int:
        """Return the last accepted id of a producer; -1 before the first."""
        return self.accepted.get(name, -1)

    def accept(self, mark: Mark, number: int = 1) -> int:
        """Accept consecutive ids from this one on; return the number of repeated ones, whose messages are stored already."""
        name, first = mark
        repeated = min(max(self.last(name) + 1 - first, 0), number)
        if repeated < number:
            self.accepted[name] = first + number - 1
        return repeated

    def append(self, ids: Mapping[str, int]) -> None:
        """Note ids whose chunk is in the log and not committed yet."""
        self._appended.update(ids)

    def commit(self) -> None:
        """Note that the appended ids are committed."""
        for name, publishing_id in self._appended.items():
            self.committed[name] = max(publishing_id, self.committed.get(name, -1))
            self.accepted[name] = max(publishing_id, self.accepted.get(name, -1))
        self._appended.clear()

    def rollback(self) -> None:
        """Forget the appended ids: their chunks are no longer in the log."""
        self._appended.clear()
