"""Tell the service manager that started this process, systemd, what it does (sd_notify)."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress


def tell_ready(status: str) -> None:
    """It serves now."""
    _notify(f"READY=1\nSTATUS={status}")


def tell_reloading() -> None:
    """It reads its configuration again; `tell_ready` follows."""
    _notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")


def tell_stopping() -> None:
    """It ends, which may take a moment."""
    _notify("STOPPING=1")


def _notify(state: str) -> None:
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):  # a name that is in no file system
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(address)
        sender.send(state.encode())
