"""Facts about a running broker: its queues, exchanges, bindings, connections, channels and consumers, with their numbers.

All functions run in the thread of the broker. `refresh(broker)` brings the numbers up to date, which the others read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from headgate.broker import (
    CHANNEL_COUNTERS,
    CONNECTION_COUNTERS,
    EXCHANGE_COUNTERS,
    QUEUE_COUNTERS,
    QUEUE_GAUGES,
    VHOST_COUNTERS,
    Sampled,
    count_matching,
    effective_policy,
)
from headgate.routing import Binding, Exchange, declaration_arguments

if TYPE_CHECKING:
    from headgate.broker import (
        Broker,
        BrokerQueue,
        ClientChannel,
        OpenConnection,
        VirtualHost,
    )

QUEUE_NAMES: Final = QUEUE_COUNTERS + QUEUE_GAUGES
VHOST_NAMES: Final = VHOST_COUNTERS + QUEUE_NAMES[1:]  # publish is counted at the exchanges


@dataclass(frozen=True, slots=True)
class Flow:
    """Numbers by name, and how fast each rises, in one second."""

    counts: Mapping[str, int]
    rates: Mapping[str, float]

    def total(self, *names: str) -> int:
        return sum(self.counts[name] for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerQueueFacts:
    """A queue of a running broker."""

    vhost: str
    name: str
    type: str
    durable: bool
    auto_delete: bool
    exclusive: bool
    owner: str | None  # the name of the connection that alone may use it
    arguments: Mapping[str, Any]
    policy: str | None
    operator_policy: str | None
    effective_policy: Mapping[str, Any]
    messages: int  # of a stream those that are stored, else ready and unacknowledged ones
    ready: int
    unacknowledged: int
    ready_bytes: int
    consumers: int
    active_consumer: str | None  # the tag of the one that alone gets messages
    unmatched: int  # messages that no consumer's filter wants
    unmatched_since: int | None  # milliseconds since 1970
    filter: str | None
    idle_since: int | None  # milliseconds since 1970; None while it is in use
    flow: Flow


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeFacts:
    """An exchange."""

    vhost: str
    exchange: Exchange
    arguments: Mapping[str, Any]
    policy: str | None
    flow: Flow


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelFacts:
    """A channel of a connection."""

    connection: OpenConnection
    number: int
    prefetch: int
    prefetch_all: int
    confirms: bool
    transactional: bool
    unacknowledged: int
    uncommitted: int
    consumers: int
    flow: Flow

    @property
    def name(self) -> str:
        return f"{self.connection.name} ({self.number})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionFacts:
    """A connection and its numbers."""

    connection: OpenConnection
    channels: int
    state: str
    flow: Flow


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerFacts:
    """A consumer of a queue."""

    connection: OpenConnection
    channel: int
    queue: str
    tag: str
    no_ack: bool
    exclusive: bool
    prefetch: int
    priority: int
    is_active: bool
    arguments: Mapping[str, Any]
    unacknowledged: int
    filter: str | None
    filter_counts: Mapping[str, int | float]


@dataclass(frozen=True, slots=True, kw_only=True)
class VhostFacts:
    """A virtual host, with the numbers of all its exchanges and queues."""

    name: str
    queues: int
    flow: Flow


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """How much of everything there is, and the numbers of all together."""

    vhosts: int
    queues: int
    exchanges: int
    connections: int
    channels: int
    consumers: int
    flow: Flow


def refresh(broker: Broker) -> None:
    """Read the counters of all objects that changed since the last call."""
    broker.statistics.refresh()


# ---- queues


def queue_facts_of(queue: BrokerQueue) -> BrokerQueueFacts:
    """The facts about one queue."""
    broker = queue.vhost.broker
    kind = queue.definition.type
    policy, operator, effective = _policies_of(broker, queue.vhost.name, kind, queue.name)
    sampled = broker.statistics.queues.get(queue)
    owner = getattr(getattr(queue.owner, "handshake", None), "name", None)
    active = queue.consumers[0].tag if queue.consumers and _single_active(queue) else None
    is_idle = not queue.consumers and sampled is not None and not any(sampled.rates)
    return BrokerQueueFacts(
        vhost=queue.vhost.name,
        name=queue.name,
        type=kind,
        durable=queue.durable,
        auto_delete=queue.auto_delete,
        exclusive=queue.owner is not None,
        owner=owner,
        arguments=queue.arguments,
        policy=policy,
        operator_policy=operator,
        effective_policy=effective,
        messages=queue.messages,
        ready=len(queue),
        unacknowledged=queue.unacked,
        ready_bytes=queue.ready_bytes,
        consumers=len(queue.consumers),
        active_consumer=active,
        unmatched=int(getattr(queue, "unmatched", 0)),
        unmatched_since=getattr(queue, "unmatched_since", None),
        filter=getattr(queue.definition, "filter", None),
        idle_since=int(sampled.since * 1000) if is_idle and sampled is not None else None,
        flow=_flow(QUEUE_NAMES, sampled),
    )


def queues_by_name(vhosts: Iterable[VirtualHost]) -> Iterator[BrokerQueue]:
    """The queues of some virtual hosts, ordered by the names of virtual host and queue."""
    for vhost in sorted(vhosts, key=lambda vhost: vhost.name):
        yield from map(vhost.queues.__getitem__, sorted(vhost.queues))


def _single_active(queue: BrokerQueue) -> bool:
    return bool(getattr(queue.definition, "single_active", False))


def _policies_of(
    broker: Broker, vhost: str, kind: str, name: str
) -> tuple[str | None, str | None, Mapping[str, Any]]:
    """The names of policy and operator policy, and their combined values."""
    target = cast(Any, kind)
    policy = broker.policies.find(vhost, target, name)
    operator = broker.operator_policies.find(vhost, target, name)
    if policy is None and operator is None:
        return None, None, {}
    effective = effective_policy(broker, vhost, target, name)
    own, of_operator = (found.name if found is not None else None for found in (policy, operator))
    return own, of_operator, effective


# ---- exchanges and bindings


def exchange_facts(vhost: VirtualHost, exchange: Exchange) -> ExchangeFacts:
    statistics = vhost.broker.statistics
    policy, _, _ = _policies_of(vhost.broker, vhost.name, "exchange", exchange.name)
    return ExchangeFacts(
        vhost=vhost.name,
        exchange=exchange,
        arguments=exchange_arguments(exchange),
        policy=policy,
        flow=_flow(EXCHANGE_COUNTERS, statistics.exchanges.get((vhost.name, exchange.name))),
    )


def exchange_arguments(exchange: Exchange) -> dict[str, Any]:
    """The arguments it was declared with."""
    arguments: dict[str, Any] = dict(declaration_arguments(exchange).get("arguments", {}))
    if exchange.alternate is not None:
        arguments["alternate-exchange"] = exchange.alternate
    return arguments


def list_exchanges(vhosts: Iterable[VirtualHost]) -> Iterator[ExchangeFacts]:
    """The exchanges of some virtual hosts, by name."""
    for vhost in sorted(vhosts, key=lambda vhost: vhost.name):
        for _, exchange in sorted(vhost.topology.exchanges.items()):
            yield exchange_facts(vhost, exchange)


def list_bindings(vhost: VirtualHost) -> Iterator[Binding]:
    """All bindings of a virtual host, also those of the default exchange."""
    for name in sorted(vhost.queues):
        yield default_binding(name)
    yield from vhost.topology.bindings()


def default_binding(queue: str) -> Binding:
    """The binding to the default exchange that every queue has."""
    return Binding("", queue, "queue", queue)


def bindings_of_queue(vhost: VirtualHost, name: str) -> list[Binding]:
    return [default_binding(name), *vhost.topology.bindings_to("queue", name)]


# ---- connections, channels, consumers


def list_connections(broker: Broker) -> Iterator[ConnectionFacts]:
    for connection in broker.connections.values():
        yield connection_facts(broker, connection)


def connection_facts(broker: Broker, connection: OpenConnection) -> ConnectionFacts:
    return ConnectionFacts(
        connection=connection,
        channels=len(connection.client.channels),
        state="blocked" if getattr(connection.client, "is_blocked", False) else "running",
        flow=_flow(CONNECTION_COUNTERS, broker.statistics.connections.get(connection)),
    )


def list_channels(
    broker: Broker, connection: OpenConnection | None = None
) -> Iterator[ChannelFacts]:
    """The channels of one connection, or of all."""
    for opened in broker.connections.values() if connection is None else (connection,):
        for channel in opened.client.channels.values():
            yield _channel_facts(broker, opened, channel)


def _channel_facts(
    broker: Broker, connection: OpenConnection, channel: ClientChannel
) -> ChannelFacts:
    transaction = channel.transaction
    return ChannelFacts(
        connection=connection,
        number=channel.number,
        prefetch=channel.prefetch,
        prefetch_all=channel.prefetch_all,
        confirms=channel.is_confirming,
        transactional=transaction is not None,
        unacknowledged=len(channel.unacked),
        uncommitted=0 if transaction is None else len(transaction),
        consumers=len(channel.consumers),
        flow=_flow(CHANNEL_COUNTERS, broker.statistics.channels.get(channel)),
    )


def list_consumers(broker: Broker, vhost: str | None = None) -> Iterator[ConsumerFacts]:
    """The consumers of one virtual host, or of all."""
    for opened in broker.connections.values():
        if vhost in (None, opened.vhost):
            for channel in opened.client.channels.values():
                for consumer in channel.consumers.values():
                    yield _consumer_facts(opened, channel, consumer)


def _consumer_facts(
    connection: OpenConnection, channel: ClientChannel, consumer: Any
) -> ConsumerFacts:
    queue = consumer.queue
    wanted = getattr(consumer, "filter", None)
    counts = {} if wanted is None else _filter_counts(wanted)
    return ConsumerFacts(
        connection=connection,
        channel=channel.number,
        queue=queue.name,
        tag=consumer.tag,
        no_ack=consumer.no_ack,
        exclusive=consumer.exclusive,
        prefetch=getattr(consumer, "prefetch", 0),
        priority=consumer.priority,
        is_active=not _single_active(queue) or queue.consumers[:1] == [consumer],
        arguments=getattr(consumer, "arguments", {}),
        unacknowledged=getattr(consumer, "unacked", 0),
        filter=None if wanted is None else wanted.text,
        filter_counts=counts,
    )


def matching_backlog(consumer: ConsumerFacts) -> int | None:
    """How many ready messages the filter of a consumer matches; roughly where there are thousands, None: not known."""
    channel = consumer.connection.client.channels.get(consumer.channel)
    found: Any = None if channel is None else channel.consumers.get(consumer.tag)
    if found is None:
        return None
    if consumer.filter is None:
        return None if found.queue.definition.type == "stream" else len(found.queue)
    return count_matching(found.queue, found.filter)


def _filter_counts(wanted: Any) -> dict[str, int | float]:
    names = ("examined", "delivered", "skipped", "seconds")
    return {name: getattr(wanted, name) for name in names if hasattr(wanted, name)}


# ---- virtual hosts, and everything


def vhost_facts(vhost: VirtualHost) -> VhostFacts:
    flow = _vhost_flow(vhost.broker.statistics.vhosts.get(vhost.name))
    return VhostFacts(name=vhost.name, queues=len(vhost.queues), flow=flow)


def broker_facts(broker: Broker, vhosts: Iterable[VirtualHost]) -> BrokerFacts:
    """Totals of the broker, counting these virtual hosts only."""
    chosen = list(vhosts)
    names = {vhost.name for vhost in chosen}
    connections = [c for c in broker.connections.values() if c.vhost in names]
    channels = [channel for c in connections for channel in c.client.channels.values()]
    flows = [_vhost_flow(broker.statistics.vhosts.get(name)) for name in names]
    return BrokerFacts(
        vhosts=len(chosen),
        queues=sum(len(vhost.queues) for vhost in chosen),
        exchanges=sum(len(vhost.topology.exchanges) for vhost in chosen),
        connections=len(connections),
        channels=len(channels),
        consumers=sum(len(channel.consumers) for channel in channels),
        flow=_add_flows(flows),
    )


def _vhost_flow(sampled: Sampled | None) -> Flow:
    if sampled is None:
        return _flow(VHOST_NAMES, None)
    # The counter of publishes to queues, which exchanges count already.
    skipped = len(VHOST_COUNTERS)
    counts = sampled.counts[:skipped] + sampled.counts[skipped + 1 :]
    rates = sampled.rates[:skipped] + sampled.rates[skipped + 1 :]
    return Flow(
        dict(zip(VHOST_NAMES, counts, strict=True)), dict(zip(VHOST_NAMES, rates, strict=True))
    )


def _add_flows(flows: list[Flow]) -> Flow:
    return Flow(
        {name: sum(flow.counts[name] for flow in flows) for name in VHOST_NAMES},
        {name: sum(flow.rates[name] for flow in flows) for name in VHOST_NAMES},
    )


def _flow(names: tuple[str, ...], sampled: Sampled | None) -> Flow:
    if sampled is None:
        return Flow(dict.fromkeys(names, 0), dict.fromkeys(names, 0.0))
    return Flow(
        dict(zip(names, sampled.counts, strict=True)), dict(zip(names, sampled.rates, strict=True))
    )
