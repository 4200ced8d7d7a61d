"""What needs a hand in a running broker: a linter over its queues, consumers and alarms.

Everything is asked in the thread of the broker, and costs little for each queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast
from typing import Literal as OneOf

from headgate.insights.broker import ConsumerFacts, list_consumers
from headgate.insights.node import active_alarms

if TYPE_CHECKING:
    from headgate.broker import Broker, BrokerQueue, VirtualHost

MOST: Final = 50
LONG: Final = 100_000  # messages in a queue without a limit
EXAMINED: Final = 1_000  # messages that a filter has seen and none of which it wanted
HELD: Final = 1_000  # messages that a consumer keeps without a limit
_LIMITS: Final = ("x-max-length", "x-max-length-bytes", "x-message-ttl", "x-expires")
_POLICY_LIMITS: Final = tuple(name.removeprefix("x-") for name in _LIMITS)


@dataclass(frozen=True, slots=True)
class Attention:
    """Something that needs a hand, what it is about, and what to do."""

    kind: OneOf["alarm", "queue", "consumer"]
    vhost: str
    name: str
    problem: str
    advice: str
    urgent: bool = False


def find_attention(broker: Broker, vhosts: Iterable[VirtualHost]) -> list[Attention]:
    """The first of what needs a hand, alarms before all."""
    chosen = list(vhosts)
    names = {vhost.name for vhost in chosen}
    consumers = (c for c in list_consumers(broker) if c.connection.vhost in names)
    found = [
        *_alarms(broker),
        *islice((each for vhost in chosen for each in _check_queues(vhost)), MOST),
        *islice((each for consumer in consumers for each in _check_consumer(consumer)), MOST),
    ]
    return sorted(found, key=lambda each: not each.urgent)


def count_unmatched(vhost: VirtualHost) -> int:
    """The messages of a virtual host that no consumer's filter matches."""
    return sum(int(getattr(queue, "unmatched", 0)) for queue in vhost.queues.values())


def count_dead_letters(vhost: VirtualHost) -> int:
    """The messages in the queues that dead letters are sent to."""
    names: set[str] = set()
    exchanges: set[str] = set()
    for queue in vhost.queues.values():
        exchange = queue.definition.dead_letter_exchange
        if exchange == "":
            names.add(queue.definition.dead_letter_key or queue.name)
        elif exchange is not None:
            exchanges.add(exchange)
    if exchanges:
        names |= {b.destination for b in vhost.topology.bindings() if b.source in exchanges}
    return sum(len(vhost.queues[name]) for name in names if name in vhost.queues)


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
            f"{unmatched:,} messages that no consumer's filter matches",
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
            f"{ready:,} messages and no consumer",
            "start a consumer, or delete the queue if nothing reads it any more",
            urgent=ready >= LONG,
        )
    if ready >= LONG and not _is_bounded(queue):
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


def _check_consumer(consumer: ConsumerFacts) -> Iterator[Attention]:
    vhost = consumer.connection.vhost
    examined = consumer.filter_counts.get("examined", 0)
    if examined >= EXAMINED and not consumer.filter_counts.get("delivered", 0):
        yield Attention(
            "consumer",
            vhost,
            consumer.queue,
            f"filter of {consumer.tag} matched none of {examined:,.0f} messages: {consumer.filter}",
            "try it in the playground: is a name or a value misspelt?",
        )
    if not consumer.prefetch and consumer.unacknowledged >= HELD:
        yield Attention(
            "consumer",
            vhost,
            consumer.queue,
            f"{consumer.tag} holds {consumer.unacknowledged:,} messages unacknowledged, without a prefetch",
            "set basic.qos, so that other consumers get some and memory stays small",
        )
