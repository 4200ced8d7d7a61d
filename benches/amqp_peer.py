"""Another broker, named by AMQP_URL, that is measured beside ours in the same run."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from amqp_client import connected

TICKS = os.sysconf("SC_CLK_TCK")
LISTENS = "0A"  # the state of a socket in /proc/net/tcp


def cpu_seconds(process: int) -> float:
    """The CPU time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Peer:
    """A broker that runs already; its CPU time is known if it is a process of this machine."""

    def __init__(self, url: str) -> None:
        self.place = url
        with connected(url) as client:
            known = client.server_properties
        self.name = f"{known.get('product', 'another broker')} {known.get('version', '')}".strip()
        self._process = _listener(urlsplit(url).port or 5672)

    @property
    def cpu_s(self) -> float | None:
        return None if self._process is None else cpu_seconds(self._process)


def peers() -> list[Peer]:
    """The broker of AMQP_URL, if there is one."""
    return [Peer(url)] if (url := os.environ.get("AMQP_URL")) else []


def _listener(port: int) -> int | None:
    """The process of this machine that listens on a port."""
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path("/proc/net", table).read_text().splitlines()[1:]
    ]
    sockets = {
        f"socket:[{row[9]}]"
        for row in rows
        if row[3] == LISTENS and int(row[1].rpartition(":")[2], 16) == port
    }
    for opened in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(opened) in sockets:
                return int(opened.parts[2])
        except OSError:  # it ended meanwhile, or is another user's
            continue
    return None
