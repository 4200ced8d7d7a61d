"""Restores a broker from its store when it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.broker.queue import ClassicQueue
from headgate.broker.redelivery import WAITING, QuorumRedelivery
from headgate.store import Contents

if TYPE_CHECKING:
    from headgate.broker.broker import Broker
    from headgate.broker.vhost import VirtualHost


def restore(broker: Broker, contents: Contents) -> None:
    """Declare the definitions in the store, and give each queue its stored rows."""
    used: set[int] = set()
    for kind in ("exchange", "queue", "binding"):
        for (defined, key), value in contents.definitions.items():
            if defined == kind:
                name, rest = key.split("\x00", 1)
                vhost = broker.vhosts.get(name) or broker.add_vhost(name)
                table = broker.codec.decode_table(value)
                if kind == "queue":
                    used |= _restore_queue(vhost, rest, table, contents)
                elif kind == "exchange":
                    _restore_exchange(vhost, rest, table)
                else:
                    _restore_binding(vhost, table)
    for vhost in broker.vhosts.values():
        for exchange in vhost.topology.exchanges.values():
            vhost.effects.apply_to_exchange(exchange)
    for lane in contents.lanes.keys() | contents.marks.keys():
        if lane not in used:  # the lane of a queue that is not durable
            broker.store.clear(lane)
    broker.reserve_lanes(max((*used, *contents.lanes, 0)))
    _restore_waiting(broker, contents)
    for vhost in broker.vhosts.values():
        for queue in vhost.queues.values():
            if isinstance(queue, ClassicQueue):  # messages that were delivered count as ready again
                queue.enforce_limits()


def _restore_waiting(broker: Broker, contents: Contents) -> None:
    """Let delayed redeliveries wait for the rest of their delay."""
    for (kind, key), value in contents.definitions.items():
        if kind != WAITING:
            continue
        name, rest = key.split("\0", 1)
        queue_name, level, position = rest.rsplit("\0", 2)
        vhost = broker.vhosts.get(name)
        queue = None if vhost is None else vhost.queues.get(queue_name)
        is_there = isinstance(queue, ClassicQueue) and QuorumRedelivery(queue).hold_again(
            int(level), int(position), int(value)
        )
        if not is_there:
            broker.store.define(kind, key, None)


def _restore_exchange(vhost: VirtualHost, name: str, table: dict[str, Any]) -> None:
    vhost.topology.declare_exchange(
        name,
        table["type"],
        auto_delete=table["auto_delete"],
        internal=table["internal"],
        arguments=table["arguments"],
    )


def _restore_binding(vhost: VirtualHost, table: dict[str, Any]) -> None:
    target = {"exchange" if table["to_exchange"] else "queue": table["destination"]}
    vhost.topology.bind(
        table["source"], key=table["routing_key"], arguments=table["arguments"], **target
    )


def _restore_queue(
    vhost: VirtualHost, name: str, table: dict[str, Any], contents: Contents
) -> set[int]:
    """Make a durable queue; return the numbers of its lanes."""
    arguments = table["arguments"]
    definition = vhost.define(name, arguments)
    if definition.type == "stream":
        vhost.add_stream_queue(name, definition, arguments).count_messages()
        return set()
    first = table["first_lane"]
    queue = ClassicQueue(
        vhost,
        name,
        definition,
        durable=True,
        auto_delete=table["auto_delete"],
        arguments=arguments,
        first_lane=first,
    )
    vhost.add_queue(queue)
    for level in range(definition.lanes):
        facts = contents.lanes.get(first + level)
        if facts is not None:
            mark = contents.marks.get(first + level, -1)
            queue.restore(level, facts, mark, contents.notes.get(first + level, ()))
    return set(range(first, first + definition.lanes))
