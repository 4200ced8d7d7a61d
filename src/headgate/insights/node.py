"""Facts about the process and the machine that a broker runs on."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headgate.broker import Broker


@dataclass(frozen=True, slots=True)
class ListeningPort:
    """A port that the broker listens on."""

    protocol: str
    host: str
    port: int
    tls: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """Facts that the server gives, because the broker does not know them."""

    name: str = field(default_factory=lambda: f"headgate@{socket.gethostname().partition('.')[0]}")
    product: str = "RabbitMQ"
    version: str = "4.0.5"
    data: Path | None = None
    # The server adds them as it begins to listen.
    listeners: list[ListeningPort] = field(default_factory=list)
    # When each certificate that is in use expires, by its file.
    certificates: Callable[[], Mapping[str, datetime]] = dict


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """The process of a broker, its memory, disk and descriptors."""

    pid: int
    uptime_ms: int
    memory_bytes: int
    memory_limit_bytes: int
    memory_alarm: bool
    disk_free_bytes: int
    disk_limit_bytes: int
    disk_alarm: bool
    descriptors: int
    descriptors_limit: int
    sockets: int
    processors: int
    python: str


def node_facts(broker: Broker, options: NodeOptions) -> NodeFacts:
    """Read the facts about this process and its machine."""
    from headgate.broker import used_bytes

    active = active_alarms(broker)
    return NodeFacts(
        pid=os.getpid(),
        uptime_ms=max(0, int(time.time() * 1000) - broker.statistics.started_at),
        memory_bytes=used_bytes(),
        memory_limit_bytes=broker.alarms.memory_limit_bytes,
        memory_alarm="memory" in active,
        disk_free_bytes=shutil.disk_usage(options.data or "/").free,
        disk_limit_bytes=broker.alarms.disk_limit_bytes,
        disk_alarm="disk" in active,
        descriptors=len(os.listdir("/proc/self/fd")),
        descriptors_limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        sockets=len(broker.connections),
        processors=os.cpu_count() or 1,
        python=platform.python_version(),
    )


def active_alarms(broker: Broker) -> tuple[str, ...]:
    """The alarms that block publishers now: `memory`, `disk`, `store`."""
    return tuple(broker.alarms.active)
