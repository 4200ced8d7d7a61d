"""Messages that are too large, for the broker or for a queue: they are refused or dropped, and nobody else notices."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import httpx
import pytest

from benches.amqp_client import Client, connected, encode_publish
from headgate.amqp import publish
from headgate.amqp.methods import FRAME, METHODS, method_frame
from headgate.amqp.properties import content_header, encode_properties
from headgate.testing import Broker

LIMIT = 1_000_000
PIECE = b"x" * 100_000
PUBLISH = method_frame(1, "basic.publish", 0, "", "q", False, False)


def frame(kind: int, payload: bytes) -> bytes:
    return FRAME.pack(kind, 1, len(payload)) + payload + b"\xce"


def announce(size: int) -> bytes:
    """A publish whose body of this size is still to come."""
    return PUBLISH + frame(2, content_header(encode_properties({}), size))


def length(client: Client, queue: str) -> int:
    answer = client.call(1, "queue.declare", 0, queue, True, False, False, False, False, {})
    return int(struct.unpack_from(">I", answer, len(answer) - 8)[0])


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """A broker that takes only small messages."""
    monkeypatch.setattr(publish, "MAX_BODY", LIMIT)
    with Broker() as broker:
        yield broker


def test_the_largest_message_is_taken(limited: Broker) -> None:
    with connected(limited.port) as client:
        client.declare("q")
        client.socket.sendall(announce(LIMIT) + frame(3, PIECE) * (LIMIT // len(PIECE)))
        assert length(client, "q") == 1


def test_a_larger_one_closes_its_channel_and_nothing_of_it_is_kept(limited: Broker) -> None:
    with connected(limited.port) as neighbour, connected(limited.port) as client:
        neighbour.declare("q")
        client.call(2, "channel.open", "")
        # A client learns of the refusal while it sends; what still comes is not collected.
        client.socket.sendall(announce(LIMIT + 1) + frame(3, PIECE) * 200)
        answer = client.read()[1]
        assert answer[:4] == METHODS["channel.close"].key
        code, size = struct.unpack_from(">HB", answer, 4)
        text = f"PRECONDITION_FAILED - message size {LIMIT + 1} is larger than configured max size {LIMIT}"
        assert (code, answer[7 : 7 + size].decode(), answer[7 + size :]) == (406, text, b"\0\x3c\0\x28")  # fmt: skip
        assert client.call(2, "basic.qos", 0, 1, False)[:4] == METHODS["basic.qos-ok"].key
        held = limited.call(lambda: [
            (len(c.client._rest), [channel.arriving for channel in c.client.channels.values()])
            for c in limited.broker.connections.values()
        ])  # fmt: skip
        assert all(rest == 0 and not any(arrived) for rest, arrived in held)
        client.socket.sendall(method_frame(1, "channel.close-ok"))
        client.call(1, "channel.open", "")
        client.socket.sendall(encode_publish("q"))
        assert length(client, "q") == length(neighbour, "q") == 1


@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish"])
def test_a_queue_holds_no_more_bytes_than_it_may(broker: Broker, overflow: str) -> None:
    with connected(broker.port) as client:
        client.declare("q", **{"x-max-length-bytes": 5 * len(PIECE), "x-overflow": overflow})
        client.call(1, "confirm.select", False)
        answers = []
        for number in range(10):
            body = b"%d" % number + PIECE[1:]
            client.socket.sendall(encode_publish("q", body=body))
            answers.append(client.read()[1][:4])
        is_rejecting = overflow == "reject-publish"
        last = METHODS["basic.nack" if is_rejecting else "basic.ack"].key
        assert answers == [METHODS["basic.ack"].key] * 5 + [last] * 5
        assert length(client, "q") == 5
        client.call(1, "basic.consume", 0, "q", "c", False, True, False, False, {})
        bodies = client.deliveries()
        kept = range(5) if is_rejecting else range(5, 10)
        assert [int(next(bodies)[:1]) for _ in range(5)] == list(kept)


def test_a_message_larger_than_its_queue_is_not_kept(broker: Broker) -> None:
    with connected(broker.port) as client:
        client.declare("q", **{"x-max-length-bytes": 1_000})
        client.socket.sendall(encode_publish("q", body=PIECE))
        assert length(client, "q") == 0


def test_a_body_over_http_that_is_too_large_is_refused(broker: Broker) -> None:
    with connected(broker.port) as client, httpx.Client(auth=("guest", "guest")) as http:
        client.declare("q")
        url = f"{broker.http_url}/api/exchanges/%2F/amq.default/publish"
        fields = {"routing_key": "q", "properties": {}, "payload_encoding": "string"}
        taken = http.post(url, json={**fields, "payload": "x" * 10_000_000})
        assert (taken.status_code, taken.json()) == (200, {"routed": True})
        refused = http.post(url, json={**fields, "payload": "x" * 21_000_000})
        assert refused.status_code == 413
        assert length(client, "q") == 1
