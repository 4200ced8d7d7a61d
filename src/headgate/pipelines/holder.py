"""Which driver holds a checkpoint, read from the file of its lock. Reading takes no lock, so it disturbs no driver."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any, Final, NamedTuple

FOLDER: Final = "headgate"  # Headgate's folder in the checkpoint
LOCK_FILE: Final = "lock"


class Process(NamedTuple):
    """A process of this machine, with its start time, since its number may be assigned to another process later."""

    pid: int
    started: str


def process_of(pid: int) -> Process | None:
    """Return the running process with that number; None if there is none, or the system has no /proc."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else Process(pid, fields[18])


def lock_file(checkpoint: Path) -> Path:
    """Return the file whose lock a driver holds."""
    return checkpoint / FOLDER / LOCK_FILE


def parse_holder(content: bytes) -> dict[str, Any]:
    """Parse the description of a holder from the file of its lock; empty if there is no holder, or it is not known."""
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def has_driver(checkpoint: Path) -> bool:
    """Whether a driver on this machine runs the query of a checkpoint now."""
    try:
        holder = parse_holder(lock_file(checkpoint).read_bytes())
    except OSError:
        return False
    if holder.get("host") != socket.gethostname():
        return False
    if holder.get("java"):
        java = Process(*holder["java"])
        return process_of(java.pid) == java
    return process_of(holder.get("pid", 0)) is not None
