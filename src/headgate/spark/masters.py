"""Whether a cluster answers at all, found out before Spark is started: Spark itself tries for minutes."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Sequence
from queue import Empty, Queue
from threading import Thread
from typing import Final, TypeAlias

from headgate.errors import SparkError

Address: TypeAlias = tuple[str, int]

PATIENCE_S: Final = 5.0
_PORTS: Final = {
    "spark://": 7077,
    "sc://": 15002,
    "k8s://": 443,
    "k8s://https://": 443,
    "k8s://http://": 80,
}
_URL: Final = re.compile(r"(spark://|sc://|k8s://(?:https?://)?)([^/;?]+)")
_PROXIES: Final = ("grpc_proxy", "https_proxy", "http_proxy")  # of Spark Connect and Kubernetes
_ADDRESS: Final = re.compile(r"\[?([^\]]+?)\]?(?::(\d{1,5}))?")


def check_master(url: str, patience_s: float = PATIENCE_S) -> None:
    """Refuse a cluster none of whose masters takes a connection; what runs on this machine, or is reached through a
    proxy, is not asked."""
    addresses = () if _behind_proxy(url) else addresses_of(url)
    if addresses and not answers(addresses, patience_s):
        shown = url.partition(";")[0]  # a token may stand behind it
        raise SparkError(
            f"no Spark answers at {shown} (tried for {patience_s:g} s); is it running, and is the address right? "
            "Without --master and spark_master, Spark runs on this machine"
        )


def _behind_proxy(url: str) -> bool:
    set_here = {name.lower() for name, value in os.environ.items() if value}
    return not url.startswith("spark://") and not set_here.isdisjoint(_PROXIES)


def addresses_of(url: str) -> list[Address]:
    """The hosts and ports a master's URL names: spark://one:7077,two:7077, sc://host, k8s://https://host:6443."""
    found = _URL.match(url)
    if found is None:
        return []
    places = (_ADDRESS.fullmatch(place) for place in found[2].split(","))
    return [(place[1], int(place[2] or _PORTS[found[1]])) for place in places if place]


def answers(addresses: Sequence[Address], patience_s: float) -> bool:
    """Whether one of them takes a connection within that time; all are tried at once."""
    outcomes: Queue[bool] = Queue()
    for address in addresses:
        # A daemon: to look up a name may take longer than anybody waits.
        Thread(target=_try, args=(address, patience_s, outcomes), daemon=True).start()
    deadline = time.monotonic() + patience_s
    for _ in addresses:
        try:
            if outcomes.get(timeout=max(deadline - time.monotonic(), 0.0)):
                return True
        except Empty:
            return False
    return False


def _try(address: Address, patience_s: float, outcomes: Queue[bool]) -> None:
    try:
        socket.create_connection(address, patience_s).close()
    except (OSError, OverflowError, UnicodeError):
        outcomes.put(False)
    else:
        outcomes.put(True)
