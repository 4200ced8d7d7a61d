"""`/metrics`: RabbitMQ's names where it has them, and ours; read when Prometheus asks, in the thread of the broker.

/metrics                          sums, cheap however many queues there are
/metrics/per-object               one series for each queue
/metrics/detailed?family=…        only the families that are named, as rabbitmq_detailed_…
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

import headgate
from headgate.broker import Broker, BrokerQueue, VirtualHost
from headgate.errors import HeadgateError
from headgate.insights import (
    BrokerQueueFacts,
    active_alarms,
    broker_facts,
    count_dead_letters,
    count_unmatched,
    list_connections,
    list_consumers,
    list_exchanges,
    list_streams,
    node_facts,
    queue_facts_of,
    refresh,
)
from headgate.metrics import process_metrics, queue_metrics
from headgate.web.pages.site import Site
from headgate.web.pages.visit import PageTable, Visit
from headgate.web.problems import HttpProblem

pages: Final = PageTable()
Read: TypeAlias = Callable[[BrokerQueueFacts], float]

PROTOCOL: Final = "amqp091"
# RabbitMQ's name without its prefix, the help text, and the counters of a virtual host that are added up.
GLOBAL: Final = (
    ("messages_received", "Messages received from publishers.", ("publish",)),
    ("messages_confirmed", "Messages confirmed to publishers.", ("confirm",)),
    ("messages_unroutable_dropped", "Unroutable messages that were dropped.", ("drop_unroutable",)),
    ("messages_unroutable_returned", "Unroutable mandatory messages that were returned.", ("return_unroutable",)),
    ("messages_delivered", "Messages delivered to consumers or got.", ("deliver", "deliver_no_ack", "get", "get_no_ack")),
    ("messages_delivered_consume_manual_ack", "Messages delivered to consumers that acknowledge.", ("deliver",)),
    ("messages_delivered_consume_auto_ack", "Messages delivered to consumers that do not acknowledge.", ("deliver_no_ack",)),
    ("messages_delivered_get_manual_ack", "Messages got with an acknowledgement.", ("get",)),
    ("messages_delivered_get_auto_ack", "Messages got without an acknowledgement.", ("get_no_ack",)),
    ("messages_get_empty", "Gets that found an empty queue.", ("get_empty",)),
    ("messages_redelivered", "Messages delivered again.", ("redeliver",)),
    ("messages_acknowledged", "Messages acknowledged by consumers.", ("ack",)),
)  # fmt: skip
QUEUE_GAUGES: Final[Sequence[tuple[str, str, Read]]] = (
    ("queue_messages_ready", "Messages ready to be delivered.", lambda q: q.ready),
    ("queue_messages_unacked", "Messages delivered and not acknowledged.", lambda q: q.unacknowledged),
    ("queue_messages", "Ready and unacknowledged messages.", lambda q: q.messages),
    ("queue_messages_ready_bytes", "Bytes of the ready messages.", lambda q: q.ready_bytes),
)  # fmt: skip
QUEUE_COUNTERS: Final[Sequence[tuple[str, str, Read]]] = (
    ("queue_messages_published", "Messages that entered the queue.", lambda q: q.flow.counts["publish"]),
    ("queue_messages_delivered", "Messages delivered from the queue.", lambda q: q.flow.total("deliver", "deliver_no_ack", "get", "get_no_ack")),
    ("queue_messages_acked", "Messages of the queue that were acknowledged.", lambda q: q.flow.counts["ack"]),
)  # fmt: skip
# The families of /metrics/detailed, as RabbitMQ groups them.
FAMILIES: Final[Mapping[str, str]] = {
    "queue_coarse_metrics": "queue_gauges",
    "queue_metrics": "queue_counters",
    "queue_consumer_count": "consumers",
    "queue_delivery_metrics": "queue_counters",
    "connection_coarse_metrics": "connections",
    "channel_exchange_metrics": "exchanges",
    "headgate_filters": "filters",
}


class ReadMetrics(Collector):
    """Metrics that were read already."""

    def __init__(self, found: Iterable[Metric]) -> None:
        self._found = list(found)

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> list[Metric]:
        return self._found


def encode_metrics(found: Iterable[Metric]) -> Response:
    """Metrics in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(ReadMetrics(found))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


@pages.get("/metrics", needs="monitoring")
async def show_metrics(visit: Visit) -> Response:
    """The sums of everything."""
    found = list(process_metrics())
    if visit.site.broker is not None:
        refresh(visit.site.broker)
        found += broker_metrics(visit.site)
    else:
        found += await run_in_threadpool(lambda: list(stream_metrics(visit.site)))
    return encode_metrics(found + await run_in_threadpool(lambda: list(sql_metrics(visit.site))))


@pages.get("/metrics/per-object", needs="monitoring")
async def show_metrics_of_objects(visit: Visit) -> Response:
    """One series for each queue, connection and filter."""
    if visit.site.broker is None:
        return await show_metrics(visit)  # type: ignore[no-any-return]
    refresh(visit.site.broker)
    found = [*process_metrics(), *node_metrics(visit.site), *global_metrics(visit.site.broker)]
    vhosts = list(visit.site.broker.vhosts.values())
    found += object_metrics(visit.site.broker, vhosts, set(FAMILIES.values()), "rabbitmq")
    return encode_metrics(found)


@pages.get("/metrics/detailed", needs="monitoring")
async def show_detailed_metrics(visit: Visit) -> Response:
    """The families that the query names, of all virtual hosts or of those that it names."""
    broker, query = visit.site.broker, visit.request.query_params
    if broker is None:
        raise HttpProblem(404, "there is no broker here")
    refresh(broker)
    wanted = {FAMILIES[name] for name in query.getlist("family") if name in FAMILIES}
    names = query.getlist("vhost")
    vhosts = [vhost for name, vhost in broker.vhosts.items() if not names or name in names]
    return encode_metrics(object_metrics(broker, vhosts, wanted, "rabbitmq_detailed"))


# ---- sums --------------------------------------------------------------------------------------------


def broker_metrics(site: Site) -> Iterator[Metric]:
    """The sums of a broker for /metrics."""
    broker = site.running
    yield from node_metrics(site)
    yield from global_metrics(broker)
    facts = broker_facts(broker, broker.vhosts.values())
    counts = facts.flow.counts
    for name, text, value in (
        ("rabbitmq_connections", "Open connections.", facts.connections),
        ("rabbitmq_channels", "Open channels.", facts.channels),
        ("rabbitmq_consumers", "Consumers.", facts.consumers),
        ("rabbitmq_queues", "Queues.", facts.queues),
        ("rabbitmq_queue_messages_ready", "Messages ready to be delivered.", counts["messages_ready"]),
        ("rabbitmq_queue_messages_unacked", "Messages delivered and not acknowledged.", counts["messages_unacknowledged"]),
        ("rabbitmq_queue_messages", "Ready and unacknowledged messages.", counts["messages"]),
        ("rabbitmq_queue_messages_ready_bytes", "Bytes of the ready messages.", counts["message_bytes_ready"]),
        ("headgate_unmatched_messages", "Messages that no consumer's filter matches.", sum(map(count_unmatched, broker.vhosts.values()))),
        ("headgate_dead_letter_messages", "Messages in queues that dead letters go to.", sum(map(count_dead_letters, broker.vhosts.values()))),
        ("headgate_delayed_messages", "Delayed messages that are not due yet.", broker.delays.count),
    ):  # fmt: skip
        yield GaugeMetricFamily(name, text, value=value)
    yield CounterMetricFamily("headgate_delayed_published", "Delayed messages that were published.", value=broker.delays.published)  # fmt: skip
    yield CounterMetricFamily("headgate_delayed_lateness_seconds", "Time by which delayed messages were published late, in all.", value=broker.delays.late_ms / 1000)  # fmt: skip
    yield from _filter_sums(broker)


def global_metrics(broker: Broker) -> Iterator[Metric]:
    """RabbitMQ's counters of all messages, by protocol."""
    flow = broker_facts(broker, broker.vhosts.values()).flow
    for name, text, parts in GLOBAL:
        family = CounterMetricFamily(f"rabbitmq_global_{name}", text, labels=["protocol"])
        family.add_metric([PROTOCOL], flow.total(*parts))
        yield family


def node_metrics(site: Site) -> Iterator[Metric]:
    """The process, its memory and disk, and alarms."""
    broker, node = site.running, site.node
    facts, alarms = node_facts(broker, node), active_alarms(broker)
    build = GaugeMetricFamily(
        "rabbitmq_build_info",
        "The version.",
        labels=["rabbitmq_version", "product_name", "product_version"],
    )
    build.add_metric([node.version, "Headgate", headgate.__version__], 1)
    yield build
    for name, text, value in (
        ("rabbitmq_process_resident_memory_bytes", "Memory of the process.", facts.memory_bytes),
        ("rabbitmq_resident_memory_limit_bytes", "Memory at which publishers are blocked.", facts.memory_limit_bytes),
        ("rabbitmq_disk_space_available_bytes", "Free disk space.", facts.disk_free_bytes),
        ("rabbitmq_disk_space_available_limit_bytes", "Free disk space below which publishers are blocked.", facts.disk_limit_bytes),
        ("rabbitmq_process_open_fds", "Open file descriptors.", facts.descriptors),
        ("rabbitmq_process_max_fds", "File descriptors at most.", facts.descriptors_limit),
        ("rabbitmq_alarms_memory_used_watermark", "1 while the memory alarm is on.", int("memory" in alarms)),
        ("rabbitmq_alarms_free_disk_space_watermark", "1 while the disk alarm is on.", int("disk" in alarms)),
        ("headgate_uptime_seconds", "How long the broker has been running.", facts.uptime_ms / 1000),
    ):  # fmt: skip
        yield GaugeMetricFamily(name, text, value=value)


def _filter_sums(broker: Broker) -> Iterator[Metric]:
    counts = [c.filter_counts for c in list_consumers(broker) if c.filter is not None]
    yield GaugeMetricFamily("headgate_filtered_consumers", "Consumers with a filter.", value=len(counts))  # fmt: skip
    for name, text in (("examined", "Messages matched against filters of current consumers."), ("delivered", "Messages delivered to current consumers with a filter.")):  # fmt: skip
        total = sum(each.get(name, 0) for each in counts)
        yield GaugeMetricFamily(f"headgate_filter_messages_{name}", text, value=total)
    seconds = sum(each.get("seconds", 0.0) for each in counts)
    yield GaugeMetricFamily("headgate_filter_seconds", "Time spent in filters of current consumers.", value=seconds)  # fmt: skip


# ---- each object -------------------------------------------------------------------------------------


def object_metrics(
    broker: Broker, vhosts: list[VirtualHost], wanted: set[str], prefix: str
) -> Iterator[Metric]:
    """Series of single queues, exchanges, connections and filters."""
    queues = [queue for vhost in vhosts for queue in vhost.queues.values()]
    if {"queue_gauges", "queue_counters", "consumers"} & wanted:
        yield from _queue_metrics(queues, wanted, prefix)
    if "exchanges" in wanted:
        yield from _exchange_metrics(vhosts, prefix)
    names = {vhost.name for vhost in vhosts}
    if "connections" in wanted:
        yield from _connection_metrics(broker, names, prefix)
    if "filters" in wanted:
        yield from _consumer_metrics(broker, names)


def _queue_metrics(queues: list[BrokerQueue], wanted: set[str], prefix: str) -> Iterator[Metric]:
    facts = [queue_facts_of(queue) for queue in queues]
    labels = ["vhost", "queue"]
    if "queue_gauges" in wanted:
        unmatched = ("headgate_queue_unmatched_messages", "Messages that no consumer's filter matches.", lambda q: q.unmatched)  # fmt: skip
        gauges = [(f"{prefix}_{name}", text, read) for name, text, read in QUEUE_GAUGES]
        for name, text, read in (*gauges, unmatched):
            family = GaugeMetricFamily(name, text, labels=labels)
            _add(family, facts, read)
            yield family
    if "queue_counters" in wanted:
        for name, text, read in QUEUE_COUNTERS:
            counter = CounterMetricFamily(f"{prefix}_{name}", text, labels=labels)
            _add(counter, facts, read)
            yield counter
    if "consumers" in wanted:
        family = GaugeMetricFamily(f"{prefix}_queue_consumers", "Consumers of the queue.", labels=labels)  # fmt: skip
        _add(family, facts, lambda q: q.consumers)
        yield family


def _add(family: Any, facts: list[BrokerQueueFacts], read: Read) -> None:
    for queue in facts:
        family.add_metric([queue.vhost, queue.name], read(queue))


def _exchange_metrics(vhosts: list[VirtualHost], prefix: str) -> Iterator[Metric]:
    facts = list(list_exchanges(vhosts))
    for name, count in (("published", "publish_in"), ("routed", "publish_out")):
        family = CounterMetricFamily(
            f"{prefix}_exchange_messages_{name}",
            f"Messages {name} by the exchange.",
            labels=["vhost", "exchange"],
        )
        for each in facts:
            family.add_metric([each.vhost, each.exchange.name], each.flow.counts[count])
        yield family


def _connection_metrics(broker: Broker, vhosts: set[str], prefix: str) -> Iterator[Metric]:
    facts = [each for each in list_connections(broker) if each.connection.vhost in vhosts]
    for name, count in (("incoming", "recv_oct"), ("outgoing", "send_oct")):
        family = CounterMetricFamily(
            f"{prefix}_connection_{name}_bytes", f"Bytes {name}.", labels=["connection", "vhost"]
        )
        for each in facts:
            opened = each.connection
            family.add_metric([opened.name, opened.vhost], each.flow.counts[count])
        yield family


def _consumer_metrics(broker: Broker, vhosts: set[str]) -> Iterator[Metric]:
    consumers = [c for c in list_consumers(broker) if c.filter is not None]
    for name in ("examined", "delivered", "skipped", "seconds"):
        family = CounterMetricFamily(
            f"headgate_consumer_filter_{name}",
            f"Of the filter of a consumer: {name}.",
            labels=["vhost", "queue", "consumer"],
        )
        for each in consumers:
            if each.connection.vhost in vhosts:
                labels = [each.connection.vhost, each.queue, each.tag]
                family.add_metric(labels, each.filter_counts.get(name, 0))
        yield family


# ---- streams, queues on SQL --------------------------------------------------------------------------


def stream_metrics(site: Site) -> Iterator[Metric]:
    """Messages, bytes and segments of each stream below a directory."""
    if site.data is None:
        return
    facts = list_streams(site.data)
    for name, text in (("messages", "Messages in a stream."), ("bytes", "Bytes of a stream's files."), ("segments", "Segments of a stream.")):  # fmt: skip
        family = GaugeMetricFamily(f"headgate_stream_{name}_stored", text, labels=["stream"])
        for each in facts:
            family.add_metric([each.stream], getattr(each, name))
        yield family


def sql_metrics(site: Site) -> Iterator[Metric]:
    """The depth of queues on SQL, and what their consumers reported."""
    if site.database is None:
        return
    try:
        with site.open_database() as database:
            found = [database.find(info.name).stats() for info in database.queues()]
    except HeadgateError:
        return
    yield from queue_metrics(found)
