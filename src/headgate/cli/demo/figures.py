"""The findings of the demonstration, as values for the terminal and the page."""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate.streams.read import ScanStats


@dataclass(frozen=True, slots=True)
class Received:
    """How many messages a subscriber received, and how many the reference predicate selects."""

    subscriber: str
    way: str
    filter: str
    expected: int
    got: int
    exact: bool  # equal payloads, not only equal numbers

    @property
    def right(self) -> bool:
        return self.exact and self.expected == self.got


@dataclass(frozen=True, slots=True)
class Skipped:
    """How much of a stream one subscriber's filter read, in one state of its segments."""

    subscriber: str
    filter: str
    state: str
    stats: ScanStats
    seconds: float

    @property
    def share_read(self) -> float:
        return self.stats.bytes_read / max(1, self.stats.bytes_total)


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast a step was. One that only starts something has no messages."""

    step: str
    messages: int
    seconds: float

    @property
    def per_second(self) -> float:
        return self.messages / max(self.seconds, 1e-9)


@dataclass(slots=True)
class Findings:
    """All findings of a run, added step by step."""

    messages: int
    received: list[Received] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    rates: list[Rate] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)  # bytes on disk by tier
    explained: str = ""
    seconds: float = 0.0

    @property
    def right(self) -> bool:
        return bool(self.received) and all(received.right for received in self.received)

    @property
    def skipped_by_filter(self) -> list[list[Skipped]]:
        """What each filter read of the stream, in all states of it."""
        groups: dict[str, list[Skipped]] = {}
        for entry in self.skipped:
            groups.setdefault(entry.filter, []).append(entry)
        return list(groups.values())

    @property
    def verdict(self) -> str:
        """Whether every subscriber received what the reference selects, in one sentence."""
        if self.right:
            total = sum(received.got for received in self.received)
            count = len(self.received)
            return f"Every number equals the reference: {count} subscribers, {total:,} messages."
        wrong = [received for received in self.received if not received.right]
        names = (
            ", ".join(f"{one.subscriber} ({one.way})" for one in wrong) or "there is no subscriber"
        )
        return f"NOT equal to the reference: {names}."
