"""Statistics of a running broker: counters by object and in all, and rates from samples every few seconds.

Queues are read only when something happened to them: the broker notes those in `changed`. So ten thousand queues that do
nothing cost nothing, and totals are kept by adding what changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from operator import add, sub
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

if TYPE_CHECKING:
    from headgate.broker.broker import Broker
    from headgate.broker.contract import BrokerQueue
    from headgate.broker.traffic import ClientChannel, OpenConnection, RouteTraffic

SAMPLE_S: Final = 5.0
CounterValues: TypeAlias = tuple[int, ...]
Rates: TypeAlias = tuple[float, ...]
_Key = TypeVar("_Key")

# What is counted of each kind of object, in the order of the tuples. The names are RabbitMQ's.
QUEUE_COUNTERS: Final = ("publish", "ack", "deliver", "deliver_no_ack", "get", "get_no_ack", "get_empty", "redeliver")  # fmt: skip
QUEUE_GAUGES: Final = ("messages_ready", "messages_unacknowledged", "message_bytes_ready", "messages")  # fmt: skip
EXCHANGE_COUNTERS: Final = ("publish_in", "publish_out", "return_unroutable", "drop_unroutable")
CHANNEL_COUNTERS: Final = ("publish", "confirm", "return_unroutable", "drop_unroutable", "ack", "deliver", "deliver_no_ack", "get", "get_no_ack", "get_empty", "redeliver")  # fmt: skip
CONNECTION_COUNTERS: Final = ("recv_oct", "send_oct")
VHOST_COUNTERS: Final = ("publish", "confirm", "return_unroutable", "drop_unroutable")


class Sampled:
    """Counts of one object, those of the last sample, and how fast they rose between the last two samples."""

    __slots__ = ("before", "counts", "rates", "sampled_at", "since")

    def __init__(self, counts: CounterValues, now: float) -> None:
        self.counts = self.before = counts
        self.rates: Rates = (0.0,) * len(counts)
        self.sampled_at = now
        self.since = now  # when the counts changed last

    def update(self, counts: CounterValues, now: float) -> None:
        if counts != self.counts:
            self.counts, self.since = counts, now

    def sample(self, now: float) -> bool:
        """Compute the rates; return whether one of them is not zero."""
        span = now - self.sampled_at
        if span <= 0:
            return True
        moved = self.counts != self.before
        self.rates = tuple((n - b) / span for n, b in zip(self.counts, self.before, strict=True))
        self.before, self.sampled_at = self.counts, now
        return moved


class Statistics:
    """The numbers of a broker; `refresh` brings them up to date, `start` has them sampled."""

    def __init__(self, broker: Broker, seconds: Callable[[], float] | None = None) -> None:
        self._broker = broker
        self._seconds = seconds or (lambda: broker.now() / 1000)
        self.started_at = broker.now()
        self.queues: dict[BrokerQueue, Sampled] = {}
        self.exchanges: dict[tuple[str, str], Sampled] = {}  # by virtual host and name
        self.channels: dict[ClientChannel, Sampled] = {}
        self.connections: dict[OpenConnection, Sampled] = {}
        # Values in the order VHOST_COUNTERS, QUEUE_COUNTERS, QUEUE_GAUGES.
        self.vhosts: dict[str, Sampled] = {}
        # The sums of all queues of a virtual host, deleted ones included.
        self._totals: dict[str, CounterValues] = {}
        self._moving: set[BrokerQueue] = set()  # queues that have a rate, or will
        self.watchers: list[Callable[[set[BrokerQueue]], None]] = []
        self._stopped = False

    def start(self) -> None:
        """Sample now and every few seconds."""
        self.sample()
        if not self._stopped:
            self._broker.call_after(SAMPLE_S, self.start)

    def stop(self) -> None:
        self._stopped = True

    def refresh(self) -> None:
        """Read the numbers of all that changed."""
        now = self._seconds()
        changed, self._broker.changed = self._broker.changed, set()
        for queue in changed:
            self._read_queue(queue, now)
        self._moving |= changed
        for watch in self.watchers:
            watch(changed)
        self._read_others(now)

    def sample(self) -> None:
        """Read everything, and compute the rates."""
        self.refresh()
        now = self._seconds()
        self._moving = {
            queue
            for queue in self._moving
            if (known := self.queues.get(queue)) is not None and known.sample(now)
        }
        for watch in self.watchers:
            watch(self._moving)
        others = (self.exchanges, self.channels, self.connections, self.vhosts)
        for known in chain.from_iterable(table.values() for table in others):
            known.sample(now)

    def _read_queue(self, queue: BrokerQueue, now: float) -> None:
        known = self.queues.get(queue)
        counts = queue_counts(queue)
        before = known.counts if known is not None else (0,) * len(counts)
        if queue.is_deleted:  # its counters stay in the totals, its gauges do not
            counts = (*before[: len(QUEUE_COUNTERS)], *(0,) * len(QUEUE_GAUGES))
            self.queues.pop(queue, None)
        elif known is None:
            known = self.queues[queue] = Sampled((0,) * len(counts), now)
        if known is not None:
            known.update(counts, now)
        total = self._totals.get(queue.vhost.name, (0,) * len(counts))
        self._totals[queue.vhost.name] = tuple(map(add, total, map(sub, counts, before)))

    def _read_others(self, now: float) -> None:
        broker = self._broker
        exchanges = {
            (vhost.name, name): counts
            for vhost in broker.vhosts.values()
            for name, counts in exchange_counts(vhost.traffic).items()
        }
        _update(self.exchanges, exchanges, now)
        _update(self.channels, dict(_channel_counts(broker)), now)
        _update(
            self.connections,
            {
                c: (c.client.received_bytes, c.client.sent_bytes)
                for c in broker.connections.values()
            },
            now,
        )
        none = (0,) * (len(QUEUE_COUNTERS) + len(QUEUE_GAUGES))
        vhosts = {}
        for vhost in broker.vhosts.values():
            parts = [counts for (name, _), counts in exchanges.items() if name == vhost.name]
            published, _, returned, dropped = (
                map(sum, zip(*parts, strict=True)) if parts else (0,) * 4
            )
            own = (published, vhost.confirms, returned, dropped)
            vhosts[vhost.name] = (*own, *self._totals.get(vhost.name, none))
        _update(self.vhosts, vhosts, now)


def _update(table: dict[_Key, Sampled], counts: Mapping[_Key, CounterValues], now: float) -> None:
    for gone in [key for key in table if key not in counts]:
        del table[gone]
    for key, values in counts.items():
        known = table.get(key)
        if known is None:
            known = table[key] = Sampled((0,) * len(values), now)
        known.update(values, now)


def queue_counts(queue: BrokerQueue) -> CounterValues:
    """The counters and gauges of a queue. Messages delivered, neither unacknowledged nor requeued, count as acknowledged."""
    traffic, unacked = queue.traffic, queue.unacked
    acked = traffic.deliver + traffic.get - unacked - traffic.requeue - traffic.reject
    return (
        queue.published,
        acked,
        traffic.deliver,
        traffic.deliver_no_ack,
        traffic.get,
        traffic.get_no_ack,
        traffic.get_empty,
        traffic.redeliver,
        len(queue),
        unacked,
        queue.ready_bytes,
        queue.messages,
    )


def exchange_counts(traffics: Iterable[RouteTraffic]) -> dict[str, CounterValues]:
    """The counters of each exchange."""
    found: dict[str, CounterValues] = {}
    for traffic in traffics:
        counts = (traffic.count, traffic.published_out, traffic.returned, traffic.dropped)
        known = found.get(traffic.exchange)
        found[traffic.exchange] = counts if known is None else tuple(map(add, known, counts))
    return found


def _channel_counts(broker: Broker) -> Iterator[tuple[ClientChannel, CounterValues]]:
    for connection in broker.connections.values():
        for channel in connection.client.channels.values():
            yield channel, channel_counts(channel)


def channel_counts(channel: ClientChannel) -> CounterValues:
    traffic = channel.traffic
    taken = traffic.deliver + traffic.get
    return (
        traffic.published_before + channel.published,
        traffic.confirm,
        traffic.returned,
        traffic.dropped,
        taken - len(channel.unacked) - traffic.requeue - traffic.reject,
        traffic.deliver,
        traffic.deliver_no_ack,
        traffic.get,
        traffic.get_no_ack,
        traffic.get_empty,
        traffic.redeliver,
    )
