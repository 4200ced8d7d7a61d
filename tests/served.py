"""`headgate serve` in a process of its own, for tests that send it signals."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pika


class Served:
    """`headgate serve` in a process, on one port and directory through all its lives."""

    def __init__(self, data: Path, *options: str) -> None:
        self._command = [sys.executable, "-m", "headgate", "serve", "--data", str(data), *options]
        self._log = data.with_name(data.name + ".log")
        self.port = 0
        self.start()

    def start(self) -> None:
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [*self._command, "--http-port", "0", "--amqp-port", str(self.port)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := re.search(r"AMQP 0-9-1 +\S+:(\d+)", line):
                self.port = int(found[1])
            if line.startswith("Ctrl-C"):
                return
        raise AssertionError(f"the broker did not start: {self.log}")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        """What it has logged in all its lives."""
        return self._log.read_text()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(30)

    def connect(self) -> pika.BlockingConnection:
        url = f"amqp://guest:guest@127.0.0.1:{self.port}/?connection_attempts=100&retry_delay=0.1"
        return pika.BlockingConnection(pika.URLParameters(url))
