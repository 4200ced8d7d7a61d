"""Live numbers of a broker for all open pages, read once every two seconds while a page is open."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from starlette.responses import Response, StreamingResponse

from headgate.broker import Broker, VirtualHost
from headgate.insights import (
    BrokerFacts,
    active_alarms,
    broker_facts,
    count_dead_letters,
    count_unmatched,
    node_facts,
    refresh,
    sample_unacknowledged,
    size_text,
)
from headgate.web.pages.rendering import count_text, rate_text
from headgate.web.pages.site import Site
from headgate.web.pages.visit import PageTable, Visit

pages: Final = PageTable()

EVERY_S: Final = 2.0
MOST_WATCHERS: Final = 200
RATES: Final[Mapping[str, tuple[str, ...]]] = {
    "in": ("publish",),
    "out": ("deliver", "deliver_no_ack", "get", "get_no_ack"),
    "acked": ("ack",),
}


@dataclass(frozen=True, slots=True)
class LiveSnapshot:
    """The numbers of one moment, and as texts for a page."""

    numbers: Mapping[str, int]
    rates: Mapping[str, float]
    texts: Mapping[str, str]
    alarms: Sequence[str]

    @property
    def alerts(self) -> list[str]:
        """The names of the numbers that need a hand."""
        return [name for name in ("unmatched", "alarms") if self.numbers[name]] + list(self.alarms)

    def as_json(self) -> str:
        rates = {name: round(rate, 1) for name, rate in self.rates.items()}
        return json.dumps({"rates": rates, "texts": dict(self.texts), "alerts": self.alerts})


class LiveFeed:
    """Reads the numbers of some virtual hosts, at the same interval however many pages are open."""

    def __init__(self, site: Site, vhosts: frozenset[str]) -> None:
        self._site, self._names = site, vhosts
        self._last: tuple[float, LiveSnapshot, dict[str, int]] | None = None

    def read(self) -> LiveSnapshot:
        """The numbers now, or those of at most a second ago."""
        now = time.monotonic()
        if self._last is not None and now - self._last[0] < EVERY_S / 2:
            return self._last[1]
        broker = self._site.running
        refresh(broker)
        sample_unacknowledged(broker)
        vhosts = [vhost for name, vhost in broker.vhosts.items() if name in self._names]
        facts = broker_facts(broker, vhosts)
        counts = {name: facts.flow.total(*parts) for name, parts in RATES.items()}
        rates = self._rates(counts, now, facts.flow.rates)
        snapshot = self._describe(vhosts, facts, rates)
        self._last = now, snapshot, counts
        return snapshot

    def _rates(
        self, counts: dict[str, int], now: float, sampled: Mapping[str, float]
    ) -> dict[str, float]:
        if self._last is None or now - self._last[0] > 5 * EVERY_S:  # too old to compare with
            return {name: sum(sampled[part] for part in parts) for name, parts in RATES.items()}
        then, _, before = self._last
        return {name: max(counts[name] - before[name], 0) / (now - then) for name in counts}

    def _describe(
        self, vhosts: list[VirtualHost], facts: BrokerFacts, rates: dict[str, float]
    ) -> LiveSnapshot:
        broker = self._site.running
        alarms = active_alarms(broker)
        node = node_facts(broker, self._site.node)
        numbers = {
            "ready": facts.flow.counts["messages_ready"],
            "unacked": facts.flow.counts["messages_unacknowledged"],
            "unmatched": sum(map(count_unmatched, vhosts)),
            "dead": sum(map(count_dead_letters, vhosts)),
            "connections": facts.connections,
            "alarms": len(alarms),
        }
        texts = {name: count_text(number) for name, number in numbers.items()}
        texts |= {name: rate_text(rate) for name, rate in rates.items()}
        texts |= {
            "memory": size_text(node.memory_bytes),
            "disk": size_text(node.disk_free_bytes),
            "alarms": ", ".join(alarms) or "none",
        }
        return LiveSnapshot(numbers, rates, texts, alarms)


class LiveFeeds:
    """The feeds of a broker, by the virtual hosts that their watchers may see."""

    def __init__(self) -> None:
        self._feeds: dict[frozenset[str], LiveFeed] = {}
        self.watchers = 0

    def find(self, visit: Visit) -> LiveFeed:
        names = frozenset(vhost.name for vhost in visit.vhosts())
        if names not in self._feeds and len(self._feeds) >= MOST_WATCHERS:
            self._feeds.clear()
        return self._feeds.setdefault(names, LiveFeed(visit.site, names))


_feeds: WeakKeyDictionary[Broker, LiveFeeds] = WeakKeyDictionary()


def live_feeds(site: Site) -> LiveFeeds:
    """The feeds of a broker."""
    return _feeds.setdefault(site.running, LiveFeeds())


@pages.get("/live")
async def watch(visit: Visit) -> Response:
    """The numbers as server-sent events."""
    feeds = live_feeds(visit.site)
    if feeds.watchers >= MOST_WATCHERS:
        return Response("too many pages are open", 503)
    return StreamingResponse(_events(feeds, visit), media_type="text/event-stream")


async def _events(feeds: LiveFeeds, visit: Visit) -> AsyncIterator[str]:
    feeds.watchers += 1
    try:
        while visit.is_current() and not await visit.request.is_disconnected():
            yield f"data: {feeds.find(visit).read().as_json()}\n\n"
            await asyncio.sleep(EVERY_S)
    finally:
        feeds.watchers -= 1
