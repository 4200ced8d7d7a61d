"""Entry filters: classes that decide about a whole chunk from its metadata, before any message is decoded.

    class OnlyEurope:
        def decide(self, chunk: ChunkMetadata) -> Decision:
            return Decision.ACCEPT if chunk.properties.get("region") == "eu" else Decision.REJECT

Give one to `consume` or `scan`, or name one that a package offers under the entry point group
`headgate.entry_filters`. A filter that asks only for `properties` answers the same before and after sealing.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from importlib.metadata import entry_points
from typing import Final, Protocol, TypeAlias, runtime_checkable

from headgate.errors import StreamOptionsError
from headgate.streams.segments.segment import ChunkMetadata

GROUP: Final = "headgate.entry_filters"


class Decision(Enum):
    ACCEPT = "accept"
    REJECT = "reject"


@runtime_checkable
class EntryFilter(Protocol):
    def decide(self, chunk: ChunkMetadata) -> Decision: ...


EntryFilters: TypeAlias = EntryFilter | str | Iterable[EntryFilter | str] | None


def load_entry_filter(name: str) -> EntryFilter:
    """An instance of the entry filter a package offers under this name."""
    offered = {point.name: point for point in entry_points(group=GROUP)}
    if name not in offered:
        known = ", ".join(sorted(offered)) or "none"
        raise StreamOptionsError(
            f"no installed package offers the entry filter {name!r} (group {GROUP}); there are: {known}"
        )
    return _checked(offered[name].load()(), name)


def resolve_entry_filters(given: EntryFilters) -> tuple[EntryFilter, ...]:
    """What was given for `entry_filter`, as filters."""
    if given is None:
        return ()
    if isinstance(given, str):
        return (load_entry_filter(given),)
    if isinstance(given, EntryFilter):
        return (_checked(given, repr(given)),)
    if not isinstance(given, Iterable):
        raise _unusable(repr(given))
    return tuple(found for one in given for found in resolve_entry_filters(one))


def accepts(filters: Iterable[EntryFilter], chunk: ChunkMetadata) -> bool:
    """Whether no filter rejects the chunk."""
    return all(one.decide(chunk) is not Decision.REJECT for one in filters)


def _checked(found: object, name: str) -> EntryFilter:
    if not isinstance(found, EntryFilter) or isinstance(found, type):
        raise _unusable(name)
    return found


def _unusable(name: str) -> StreamOptionsError:
    return StreamOptionsError(
        f"{name} is no entry filter: an object with decide(chunk) -> Decision is needed"
    )
