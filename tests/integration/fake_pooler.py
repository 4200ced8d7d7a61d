"""A relay of bytes to PostgreSQL that tells clients a backend of its own, as poolers do."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress

_KEY = b"K" + struct.pack(">i", 12)  # the process that answers, and how to cancel its work


class FakePooler:
    """Listens on loopback; one server connection for each client."""

    def __init__(self, server: str) -> None:
        """`server` is the path of the server's socket."""
        self._server = server
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=_forward, args=(one, other), daemon=True).start()


def _forward(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while received := source.recv(65536):
            at = received.find(_KEY)
            if at >= 0:
                received = received[: at + 5] + b"\0\0\0\7" + received[at + 9 :]
            target.sendall(received)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
