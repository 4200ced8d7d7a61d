"""Entry filters: classes that decide about a whole chunk from its metadata, before any message is decoded.

    class OnlyEurope:
        def decide(self, chunk: ChunkMetadata) -> Decision:
            return Decision.ACCEPT if chunk.properties.get("region") == "eu" else Decision.REJECT

Give one to `consume` or `scan`, or name one that a package offers under the entry point group
`headgate.entry_filters`. A filter that reads only `properties` decides alike before and after sealing.
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
    """What an entry filter decides about a chunk."""

    ACCEPT = "accept"
    REJECT = "reject"


@runtime_checkable
class EntryFilter(Protocol):
    """Decides about whole chunks."""

    def decide(self, chunk: ChunkMetadata) -> Decision: ...


EntryFilters: TypeAlias = EntryFilter | str | Iterable[EntryFilter | str] | None


def load_entry_filter(name: str) -> EntryFilter:
    """Load the entry filter that an installed package offers under this name."""
    offered = {point.name: point for point in entry_points(group=GROUP)}
    if name not in offered:
        known = ", ".join(sorted(offered)) or "none"
        raise StreamOptionsError(
            f"no installed package offers the entry filter {name!r} (group {GROUP}); there are: {known}"
        )
    return _check(offered[name].load()(), name)


def resolve_entry_filters(given: EntryFilters) -> tuple[EntryFilter, ...]:
    """Return the entry filters that are given as objects or by name."""
    if given is None:
        return ()
    if isinstance(given, str):
        return (load_entry_filter(given),)
    if isinstance(given, EntryFilter):
        return (_check(given, repr(given)),)
    if not isinstance(given, Iterable):
        raise _refuse(repr(given))
    return tuple(found for one in given for found in resolve_entry_filters(one))


def accepts(filters: Iterable[EntryFilter], chunk: ChunkMetadata) -> bool:
    """Tell whether no filter rejects the chunk."""
    return all(_decide(one, chunk) is Decision.ACCEPT for one in filters)


def _decide(filter: EntryFilter, chunk: ChunkMetadata) -> Decision:
    decision = filter.decide(chunk)
    if not isinstance(decision, Decision):
        # A bool is refused, too: whether True keeps a chunk or skips it would be a guess.
        raise StreamOptionsError(
            f"the entry filter {type(filter).__name__} decided {decision!r}; "
            "return Decision.ACCEPT to read the chunk, or Decision.REJECT to skip it"
        )
    return decision


def _check(found: object, name: str) -> EntryFilter:
    if not isinstance(found, EntryFilter) or isinstance(found, type):
        raise _refuse(name)
    return found


def _refuse(name: str) -> StreamOptionsError:
    return StreamOptionsError(
        f"{name} is not an entry filter: give an object with decide(chunk) -> Decision"
    )
