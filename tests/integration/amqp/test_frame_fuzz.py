"""Bytes that no client would send: the broker closes what it must, and everybody else is served."""

from __future__ import annotations

import socket
import time
from contextlib import closing, suppress
from random import Random

from benches.amqp_client import Client, encode_publish
from headgate.amqp.methods import FRAME, PREAMBLE, method_frame

LOGIN = b"".join(
    (
        PREAMBLE,
        method_frame(0, "connection.start-ok", {"capabilities": {}}, "PLAIN", b"\0guest\0guest", "en_US"),
        method_frame(0, "connection.tune-ok", 2047, 131072, 0),
        method_frame(0, "connection.open", "/", "", False),
    )
)  # fmt: skip
TALK = b"".join(
    (
        method_frame(1, "channel.open", ""),
        method_frame(1, "queue.declare", 0, "fuzzed", False, False, False, False, False, {"x-max-length": 10}),
        method_frame(1, "confirm.select", False),
        encode_publish("fuzzed"),
        method_frame(1, "basic.consume", 0, "fuzzed", "c", False, True, False, False, {}),
        method_frame(1, "basic.qos", 0, 5, False),
        method_frame(1, "channel.close", 200, "", 0, 0),
        method_frame(0, "connection.close", 200, "", 0, 0),
    )
)  # fmt: skip


def send(port: int, parts: list[bytes]) -> bytes:
    """Send the parts one by one; return what came back until the broker closed, or fell silent."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.settimeout(0.05)
        with suppress(OSError):
            for part in parts:
                peer.sendall(part)
            while got := peer.recv(65536):
                answer += got
    return answer


def mutated(rng: Random, talk: bytes) -> bytes:
    """A conversation with some bytes changed, dropped, repeated or put in."""
    found = bytearray(talk)
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = rng.randrange(len(found))
        match rng.randrange(4):
            case 0:
                found[at] ^= 1 << rng.randrange(8)
            case 1:
                del found[at : at + rng.choice([1, 3, 40])]
            case 2:
                found[at:at] = found[at : at + rng.choice([1, 8, 60])]
            case _:
                found[at:at] = rng.randbytes(rng.choice([1, 4, 20]))
    return bytes(found)


def test_no_bytes_are_an_error_of_the_broker_or_disturb_another_client(served, seed, full) -> None:
    rng = Random(seed)
    with closing(served.connect()) as neighbour:
        channel = neighbour.channel()
        channel.queue_declare("q")
        for number in range(3_000 if full else 150):
            kind = rng.randrange(4)
            if kind == 0:
                parts = [rng.randbytes(rng.choice([1, 8, 300]))]
            elif kind == 1:
                parts = [PREAMBLE, rng.randbytes(rng.choice([7, 40, 5_000]))]
            elif kind == 2:
                parts = [mutated(rng, LOGIN) + TALK]
            else:
                parts = [LOGIN, mutated(rng, TALK)]
            send(served.port, parts)
            if number % 10 == 0:
                channel.basic_publish("", "q", b"still there")
                assert channel.basic_get("q", auto_ack=True)[2] == b"still there"
    assert "Traceback" not in served.log


def test_a_peer_that_sends_no_heartbeats_is_cut_off_and_gets_ours(served) -> None:
    with socket.create_connection(("127.0.0.1", served.port)) as peer:
        peer.settimeout(20)
        peer.sendall(LOGIN.replace(
            method_frame(0, "connection.tune-ok", 2047, 131072, 0),
            method_frame(0, "connection.tune-ok", 2047, 131072, 1),
        ))  # fmt: skip
        began, answer = time.monotonic(), b""
        with suppress(ConnectionResetError):
            while got := peer.recv(65536):
                answer += got
    assert FRAME.pack(8, 0, 0) + b"\xce" in answer
    assert 1 < time.monotonic() - began < 10
    with closing(Client(served.port)):
        pass
