"""Named producers and their publishing ids: what was sent twice is stored once.

A producer's ids only grow. The last one of each is in the log itself: every chunk carries those of its producers,
every segment begins with the table of all, so the table survives crashes, sealing and retention.
"""

from __future__ import annotations

from headgate.errors import InvalidMessage
from headgate.message import CONTROL, INT64_MAX, MAX_NAME_BYTES


def check_producer_name(name: object) -> None:
    """A producer's name is text of 1 to 255 bytes without control characters."""
    if not isinstance(name, str) or not name:
        raise InvalidMessage("producer", f"a producer's name must be some text, not {name!r}")
    if CONTROL.search(name):
        raise InvalidMessage("producer", f"{name!r} holds control characters or lone surrogates")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise InvalidMessage("producer", f"{name[:40]!r}… is longer than {MAX_NAME_BYTES} bytes")


def check_publishing_id(publishing_id: object) -> None:
    """A publishing id is an integer from 0 to 2^63 - 1."""
    if type(publishing_id) is not int or not 0 <= publishing_id <= INT64_MAX:
        raise InvalidMessage(
            "publishing_id", f"must be an integer from 0 to 2^63 - 1, not {publishing_id!r}"
        )


class ProducerTable:
    """The last publishing id of every named producer: as accepted, and as committed to the log."""

    __slots__ = ("_accepted", "committed")

    def __init__(self, committed: dict[str, int]) -> None:
        self.committed = dict(committed)
        self._accepted = dict(committed)

    def last(self, name: str) -> int:
        """The last id that was accepted; -1 before the first."""
        return self._accepted.get(name, -1)

    def accept(self, name: str, publishing_id: int) -> bool:
        """Whether the id is new; a repeated or older one was stored before."""
        if publishing_id <= self._accepted.get(name, -1):
            return False
        self._accepted[name] = publishing_id
        return True

    def commit(self, name: str, publishing_id: int) -> None:
        """The log holds the id now."""
        self.committed[name] = max(publishing_id, self.committed.get(name, -1))
        self._accepted[name] = max(publishing_id, self._accepted.get(name, -1))
