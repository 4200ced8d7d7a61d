"""What deploy/ offers can be used: the broker tells systemd what it does, and the command lines are true."""

from __future__ import annotations

import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def test_systemd_is_told_when_the_broker_serves_reloads_and_stops(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(30)
        process = subprocess.Popen(
            [sys.executable, "-m", "headgate", "serve", "--data", str(tmp_path / "data"), "--amqp-port", "0", "--http-port", "0"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"NOTIFY_SOCKET": str(tmp_path / "notify"), "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        try:
            assert manager.recv(500).startswith(b"READY=1\n")
            process.send_signal(signal.SIGHUP)
            assert re.fullmatch(rb"RELOADING=1\nMONOTONIC_USEC=\d+", manager.recv(500))
            assert manager.recv(500).startswith(b"READY=1")
            process.send_signal(signal.SIGTERM)
            assert manager.recv(500) == b"STOPPING=1"
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    ("file", "line"), [("headgate.service", r"^ExecStart=\S+ (serve .*)$"), ("Containerfile", "")]
)
def test_the_options_of_the_command_exist(file: str, line: str) -> None:
    text = (ROOT / "deploy" / file).read_text()
    if line:
        arguments = shlex.split(re.findall(line, text, re.MULTILINE)[0])
    else:
        arguments = re.findall(r'"([^"]+)"', text[text.index("ENTRYPOINT") :])[1:]
    said = subprocess.run(
        [sys.executable, "-m", "headgate", "serve", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={"COLUMNS": "200", "PATH": "/usr/bin:/bin"},
    ).stdout
    assert arguments[0] == "serve"
    for option in arguments:
        if option.startswith("--"):
            assert option in said
