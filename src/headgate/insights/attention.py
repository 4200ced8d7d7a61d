"""What needs a hand in a running broker: a linter over its queues, consumers and alarms.

It runs in the thread of the broker, and costs little for each queue.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from typing import Literal as OneOf
from weakref import WeakKeyDictionary

from headgate.filters import parse_stored
from headgate.insights.broker import ConsumerFacts, list_consumers
from headgate.insights.node import active_alarms
from headgate.insights.queues import QueueFacts, list_queues
from headgate.quantities import counted

if TYPE_CHECKING:
    from headgate.broker import Broker, BrokerQueue, VirtualHost
    from headgate.queues import Database

MOST: Final = 50
LONG_QUEUE: Final = 100_000  # messages in a queue without a limit
LEAST_EXAMINED: Final = 1_000  # messages that a filter was tested on, and none of which matched
MANY_HELD: Final = 1_000  # messages that a consumer without a prefetch keeps unacknowledged
MANY_GROWING: Final = 100  # messages that a consumer keeps unacknowledged, more in each sample
MOST_ADVISED: Final = 20  # filters of a queue on SQL that are checked for an index
SAMPLES: Final = 4  # samples of a consumer in a row, each with more messages than the one before
SAMPLE_S: Final = 1.5  # the least time between two samples
_LIMITS: Final = ("x-max-length", "x-max-length-bytes", "x-message-ttl", "x-expires")
_POLICY_LIMITS: Final = tuple(name.removeprefix("x-") for name in _LIMITS)


@dataclass(frozen=True, slots=True)
class Attention:
    """Something that needs a hand, what it is about, and what to do."""

    kind: OneOf["alarm", "queue", "consumer", "sql"]
    vhost: str
    name: str
    problem: str
    advice: str
    urgent: bool = False


def find_attention(broker: Broker, vhosts: Iterable[VirtualHost]) -> list[Attention]:
    """Find what needs a hand, alarms first, and of each kind the first few."""
    sample_unacknowledged(broker)
    history = _samples[broker]
    chosen = list(vhosts)
    names = {vhost.name for vhost in chosen}
    consumers = (c for c in list_consumers(broker) if c.connection.vhost in names)
    found = [
        *_alarms(broker),
        *islice((each for vhost in chosen for each in _check_queues(vhost)), MOST),
        *islice(
            (each for consumer in consumers for each in _check_consumer(consumer, history)), MOST
        ),
    ]
    return sorted(found, key=lambda each: not each.urgent)


def count_unmatched(vhost: VirtualHost) -> int:
    """The messages of a virtual host that no consumer's filter matches."""
    return sum(int(getattr(queue, "unmatched", 0)) for queue in vhost.queues.values())


def count_dead_letters(vhost: VirtualHost) -> int:
    """The messages in the queues that dead letters are sent to."""
    return sum(map(len, dead_letter_queues(vhost.queues.values())))


def dead_letter_queues(queues: Iterable[BrokerQueue]) -> list[BrokerQueue]:
    """The queues that the dead letters of some queues of one virtual host are sent to, each once."""
    found: dict[str, BrokerQueue | None] = {}
    exchanges: set[str] = set()
    vhost = None
    for queue in queues:
        vhost, exchange = queue.vhost, queue.definition.dead_letter_exchange
        if exchange == "":
            name = queue.definition.dead_letter_key or queue.name
            found[name] = vhost.queues.get(name)
        elif exchange is not None:
            exchanges.add(exchange)
    if vhost is not None and exchanges:
        for binding in vhost.topology.bindings():
            if binding.source in exchanges:
                found[binding.destination] = vhost.queues.get(binding.destination)
    return [queue for queue in found.values() if queue is not None]


def _alarms(broker: Broker) -> Iterator[Attention]:
    for name in active_alarms(broker):
        advice = "publishers are blocked until it ends: let consumers catch up, or free some space"
        yield Attention("alarm", "", name, f"{name} alarm", advice, urgent=True)


def _check_queues(vhost: VirtualHost) -> Iterator[Attention]:
    for queue in vhost.queues.values():
        ready = len(queue)
        if ready:
            yield from _check_queue(vhost, queue, ready)


def _check_queue(vhost: VirtualHost, queue: BrokerQueue, ready: int) -> Iterator[Attention]:
    unmatched = int(getattr(queue, "unmatched", 0))
    if unmatched:
        yield Attention(
            "queue",
            vhost.name,
            queue.name,
            f"{counted(unmatched, 'message')} that no consumer's filter matches",
            "add a consumer without a filter, or set x-unmatched",
            urgent=True,
        )
    if queue.definition.type == "stream":
        return
    if not queue.consumers:
        yield Attention(
            "queue",
            vhost.name,
            queue.name,
            f"{counted(ready, 'message')} and no consumer",
            "start a consumer, or delete the queue if nothing reads it any more",
            urgent=ready >= LONG_QUEUE,
        )
    if ready >= LONG_QUEUE and not _is_bounded(queue):
        yield Attention(
            "queue",
            vhost.name,
            queue.name,
            f"{ready:,} messages and no limit",
            "set max-length or message-ttl by a policy",
        )


def _is_bounded(queue: BrokerQueue) -> bool:
    if any(name in queue.arguments for name in _LIMITS):
        return True
    broker = queue.vhost.broker
    for policies in (broker.policies, broker.operator_policies):
        policy = policies.find(queue.vhost.name, cast(Any, queue.definition.type), queue.name)
        if policy is not None and any(name in policy.definition for name in _POLICY_LIMITS):
            return True
    return False


def _check_consumer(consumer: ConsumerFacts, history: UnackedHistory) -> Iterator[Attention]:
    vhost = consumer.connection.vhost
    examined = consumer.filter_counts.get("examined", 0)
    if examined >= LEAST_EXAMINED and not consumer.filter_counts.get("delivered", 0):
        yield Attention(
            "consumer",
            vhost,
            consumer.queue,
            f"filter of {consumer.tag} matched none of {examined:,.0f} messages: {consumer.filter}",
            "try it in the playground: is a name or a value misspelt?",
        )
    if history.is_growing(_key(consumer)):
        yield Attention(
            "consumer",
            vhost,
            consumer.queue,
            f"{consumer.tag} holds {consumer.unacknowledged:,} messages unacknowledged, more with every look",
            "does it acknowledge what it has handled? set basic.qos to bound what it holds",
        )
    elif not consumer.prefetch and consumer.unacknowledged >= MANY_HELD:
        yield Attention(
            "consumer",
            vhost,
            consumer.queue,
            f"{consumer.tag} holds {consumer.unacknowledged:,} messages unacknowledged, without a prefetch",
            "set basic.qos, so that other consumers get some and memory stays small",
        )


# ---- what consumers hold, over time -------------------------------------------------------------------

_Key: TypeAlias = tuple[str, int, str]  # connection, channel, consumer tag


class UnackedHistory:
    """The latest samples of how many messages every consumer holds unacknowledged."""

    def __init__(self) -> None:
        self._looks: list[Mapping[_Key, int]] = []
        self._looked_at = -SAMPLE_S

    def add(self, found: Iterable[ConsumerFacts], now: float) -> None:
        """Add a sample of what consumers hold, unless the last one is very recent."""
        if now - self._looked_at >= SAMPLE_S:
            self._looked_at = now
            held = {_key(each): each.unacknowledged for each in found if each.unacknowledged}
            self._looks = [*self._looks[1 - SAMPLES :], held]

    def is_growing(self, consumer: _Key) -> bool:
        """Whether a consumer held more with every sample, and holds many now."""
        held = [look.get(consumer, 0) for look in self._looks]
        return (
            len(held) == SAMPLES
            and held[-1] >= MANY_GROWING
            and all(a < b for a, b in pairwise(held))
        )


_samples: WeakKeyDictionary[Any, UnackedHistory] = WeakKeyDictionary()  # by broker


def sample_unacknowledged(broker: Broker) -> None:
    """Sample how many messages every consumer holds; several samples tell whether the number grows."""
    _samples.setdefault(broker, UnackedHistory()).add(list_consumers(broker), time.monotonic())


def _key(consumer: ConsumerFacts) -> _Key:
    return consumer.connection.name, consumer.channel, consumer.tag


# ---- queues on SQL -----------------------------------------------------------------------------------


def find_sql_attention(database: Database) -> list[Attention]:
    """What needs a hand in queues on SQL."""
    found = (each for queue in list_queues(database) for each in _check_sql_queue(database, queue))
    return list(islice(found, MOST))


def _check_sql_queue(database: Database, queue: QueueFacts) -> Iterator[Attention]:
    yield from _missing_indexes(database, queue)
    for name, usage in queue.consumers.items():
        if usage.unmatched >= LEAST_EXAMINED and usage.unmatched > usage.rows:
            yield Attention(
                "sql",
                "",
                queue.name,
                f"{name or 'a consumer'} gave back {usage.unmatched:,} messages that its predicate refuses, more than it took",
                "say it as a filter, or publish a header that a filter can ask for",
            )
    if queue.ready >= LONG_QUEUE and not queue.consumers and not queue.paused:
        yield Attention(
            "sql",
            "",
            queue.name,
            f"{queue.ready:,} messages and no consumer",
            "start one: headgate work",
        )


def _missing_indexes(database: Database, queue: QueueFacts) -> Iterator[Attention]:
    """Filters of consumers that read everything that is ready, where an index would answer them."""
    by_filter: dict[str, list[str]] = {}
    for name, usage in queue.consumers.items():
        if usage.filter is not None:
            by_filter.setdefault(usage.filter, []).append(name or "a consumer")
    for filter, names in islice(by_filter.items(), MOST_ADVISED):
        advice = database.find(queue.name).index_advise(parse_stored(filter))
        if advice.scans and advice.suggestions:
            others = f" and {len(names) - 1} more" if len(names) > 1 else ""
            yield Attention(
                "sql",
                "",
                queue.name,
                f"claims of {names[0]}{others} read everything that is ready: no index for {filter}",
                f"headgate queue index add {quote(queue.name)} {quote(advice.suggestions[0])}",
            )
