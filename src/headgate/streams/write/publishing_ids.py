"""Named producers and their publishing ids: a message that is published twice under one id is stored once.

The ids of a producer only grow. The last one of each is in the log itself: every chunk carries those of its producers,
and every segment begins with the table of all, so that the table survives crashes, sealing and retention. Names that have
not been used for long are left out of the next segment's table, so that it does not grow for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
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


class ProducerTable:
    """The last publishing id of every named producer: accepted, appended to the log, and committed there."""

    __slots__ = ("_appended", "accepted", "committed", "open_names", "seen")

    def __init__(
        self, committed: Mapping[str, int], seen: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        """`seen`: when each producer published last, microseconds UTC."""
        self.committed, self.seen = dict(committed), dict(seen)
        self.open_names: set[str] = set()  # of producers that may publish
        self.accepted = dict(committed)
        self._appended: dict[str, int] = {}

    def last(self, name: str) -> int:
        """Return the last accepted id of a producer; -1 before the first."""
        return self.accepted.get(name, -1)

    def append(self, ids: Mapping[str, int]) -> None:
        """Note ids whose chunk is in the log and not committed yet."""
        for name, publishing_id in ids.items():
            self._appended[name] = max(publishing_id, self._appended.get(name, -1))

    def commit(self, now_us: int) -> None:
        """Note that the appended ids are committed."""
        for name, publishing_id in self._appended.items():
            self.seen[name] = now_us
            self.committed[name] = max(publishing_id, self.committed.get(name, -1))
            # Only ever raised: other threads may have accepted more ids of an open producer.
            if self.accepted.get(name, -1) < publishing_id:
                self.accepted[name] = publishing_id
        self._appended.clear()

    def forget_unused(self, horizon_us: int, deposited: Callable[[], Collection[str]]) -> None:
        """Forget producers that have published nothing since the horizon, are not open and have no deposit that waits."""
        unused = [
            name
            for name, last in self.committed.items()
            if self.seen.get(name, horizon_us) < horizon_us
            and name not in self.open_names
            and self.accepted.get(name) == last
        ]
        kept = deposited() if unused else ()
        for name in unused:
            if name not in kept:
                del self.committed[name], self.accepted[name], self.seen[name]

    def rollback(self) -> None:
        """Forget the appended ids: their chunks are no longer in the log."""
        self._appended.clear()
