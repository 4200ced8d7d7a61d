"""Bad frames and mistakes: each gets RabbitMQ's answer, or a better one that the documentation names.

The answers of RabbitMQ 4.0.5 were recorded; `ours` is where this broker answers something else, and `why`.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate.amqp.methods import BY_KEY, FRAME, PREAMBLE, decode_arguments, method_frame
from headgate.testing import Broker
from tests.patience import PATIENCE

PROBES = json.loads((Path(__file__).parents[2] / "data" / "amqp_probes.json").read_text())
CAPABILITIES = {
    "capabilities": {"authentication_failure_close": True, "consumer_cancel_notify": True}
}
LAST = ("connection.close", "channel.close", "header", "end")


class Probe:
    """A client that sends bytes as they are."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.settimeout(PATIENCE)
        self.file = self.socket.makefile("rb")

    def advance(self, stage: str) -> None:
        """Go through the handshake up to a stage."""
        login = ("PLAIN", b"\0guest\0guest", "en_US")
        tune = method_frame(0, "connection.tune-ok", 2047, 131072, 0)
        steps = {
            "started": PREAMBLE,
            "tune": method_frame(0, "connection.start-ok", CAPABILITIES, *login),
            "open": tune + method_frame(0, "connection.open", "/", "", False),
            "channel": method_frame(1, "channel.open", ""),
        }
        for name, data in steps.items():
            if stage == "raw":
                return
            self.socket.sendall(data)
            self.read()
            if name == stage:
                return

    def close(self) -> None:
        self.file.close()
        self.socket.close()

    def read(self) -> list[Any]:
        """The next frame: the name of a method and its arguments."""
        try:
            head = self.file.read(FRAME.size)
        except ConnectionResetError:
            return ["end"]
        if len(head) < FRAME.size:
            return ["end"]
        if head[:4] == b"AMQP":
            self.file.read(1)
            return ["header"]
        _, _, size = FRAME.unpack(head)
        payload = self.file.read(size + 1)
        method = BY_KEY[payload[:4]]
        return [method.name, *decode_arguments(method.arguments, payload[4:-1])]

    def ask(self, data: bytes, *others: str) -> list[Any]:
        """Send bytes, and return the last answer, or one of these others."""
        self.socket.sendall(data)
        while (answer := self.read())[0] not in (*LAST, *others):
            pass
        return answer


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("probes")) as broker:
        yield broker


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe["name"])
def test_a_mistake_is_answered_as_expected(running: Broker, probe: dict[str, Any]) -> None:
    client = Probe(running.port)
    client.advance(probe["stage"])
    expected = probe.get("ours", probe["rabbitmq"])
    answer = client.ask(bytes.fromhex(probe["sent"]), expected[0])
    assert [one for one in answer if one != b""] == expected
    client.close()
    other = Probe(running.port)  # others are served as before
    other.advance("channel")
    other.close()


@pytest.mark.parametrize("stage", ["started", "tune"])
def test_frames_before_the_connection_is_open_are_short(running: Broker, stage: str) -> None:
    client = Probe(running.port)
    client.advance(stage)
    answer = client.ask(FRAME.pack(1, 0, 4_096) + b"x")
    assert answer[:2] == ["connection.close", 501]
    assert "{frame_too_large,4096,4088}" in answer[2]
    client.close()


def test_a_table_that_is_too_deep_is_refused(running: Broker) -> None:
    table: dict[str, Any] = {}
    for _ in range(40):
        table = {"t": table}
    client = Probe(running.port)
    client.advance("started")
    answer = client.ask(method_frame(0, "connection.start-ok", table, "PLAIN", b"", "en_US"))
    assert answer[1] == 501
    client.close()


def test_a_peer_that_does_not_log_in_is_cut_off() -> None:
    with Broker() as broker:
        known = Probe(broker.port)
        known.advance("channel")
        shorter = replace(broker.server.options, handshake_timeout="200ms")
        broker.call(lambda: broker.server.reconfigure(shorter))
        for stage in ("raw", "started", "tune"):
            client = Probe(broker.port)
            client.advance(stage)
            assert client.read() == ["end"]
            client.close()
        known.socket.sendall(method_frame(0, "connection.close", 200, "", 0, 0))
        assert known.read()[0] == "connection.close-ok"
        known.close()


def test_what_is_sent_behind_the_login_waits_for_it(running: Broker) -> None:
    client = Probe(running.port)
    client.advance("started")
    login = ("PLAIN", b"\0guest\0guest", "en_US")
    all_at_once = (
        method_frame(0, "connection.start-ok", CAPABILITIES, *login)
        + method_frame(0, "connection.tune-ok", 2047, 131072, 0)
        + method_frame(0, "connection.open", "/", "", False)
        + method_frame(1, "channel.open", "")
    )
    for octet in struct.unpack(f"{len(all_at_once)}c", all_at_once):
        client.socket.sendall(octet)
    names = [client.read()[0] for _ in range(3)]
    assert names == ["connection.tune", "connection.open-ok", "channel.open-ok"]
    client.close()


def test_channels_are_limited_by_how_many_are_open_and_not_by_their_numbers(
    running: Broker,
) -> None:
    client = Probe(running.port)
    client.advance("tune")
    tune = method_frame(0, "connection.tune-ok", 2, 131072, 0)
    client.socket.sendall(tune + method_frame(0, "connection.open", "/", "", False))
    assert client.read()[0] == "connection.open-ok"
    opened = "channel.open-ok"
    assert client.ask(method_frame(65_535, "channel.open", ""), opened)[0] == opened
    assert client.ask(method_frame(3, "channel.open", ""), opened)[0] == opened
    client.socket.sendall(method_frame(3, "channel.close", 200, "", 0, 0))
    assert client.read()[0] == "channel.close-ok"
    assert client.ask(method_frame(7, "channel.open", ""), opened)[0] == opened
    text = (
        "number of channels opened on a connection (2) has reached the negotiated channel_max (2)"
    )
    answer = client.ask(method_frame(1, "channel.open", ""))
    assert answer[:3] == ["connection.close", 530, f"NOT_ALLOWED - {text}"]
    client.close()


def test_connections_in_all_are_limited() -> None:
    with Broker(max_connections=2) as broker:
        clients = [Probe(broker.port) for _ in range(3)]
        for client in clients[:2]:
            client.advance("channel")
        clients[2].advance("tune")
        tune = method_frame(0, "connection.tune-ok", 2047, 131072, 0)
        answer = clients[2].ask(tune + method_frame(0, "connection.open", "/", "", False))
        text = "NOT_ALLOWED - connection refused: node connection limit (2) is reached"
        assert answer[1:3] == [530, text]
        for client in clients:
            client.close()
