"""Peers that do not keep to AMQP: they are told so, nobody else notices, and nothing of it is an error of the broker."""

from __future__ import annotations

import struct
from contextlib import closing

import pytest

from benches.amqp_client import connected
from headgate.amqp.methods import FRAME, METHODS, method_frame

ACK = METHODS["basic.ack"].key


def frame(payload: bytes) -> bytes:
    return FRAME.pack(1, 1, len(payload)) + payload + b"\xce"


@pytest.mark.parametrize(
    ("sent", "closes", "code"),
    [
        pytest.param(frame(ACK), "connection.close", 501, id="an ack without a tag"),
        pytest.param(frame(ACK + bytes(8)), "connection.close", 501, id="an ack without flags"),
        pytest.param(
            method_frame(1, "exchange.unbind", 0, "", "amq.topic", "", False, {}),
            "channel.close",
            403,
            id="unbind from the default exchange",
        ),
        pytest.param(
            method_frame(1, "queue.unbind", 0, "q", "amq.topic", "", {"x-filter": 1}),
            "channel.close",
            406,
            id="unbind with a filter that is none",
        ),
    ],
)
def test_a_mistake_is_answered_and_is_no_error_of_the_broker(served, sent, closes, code):
    with closing(served.connect()) as neighbour, connected(served.port) as client:
        channel = neighbour.channel()
        channel.queue_declare("q")
        client.socket.settimeout(10)
        client.socket.sendall(sent)
        answer = client.read()[1]
        assert answer[:4] == METHODS[closes].key
        assert struct.unpack_from(">H", answer, 4) == (code,)
        channel.basic_publish("", "q", b"still there")
        assert channel.basic_get("q", auto_ack=True)[2] == b"still there"
    assert "Traceback" not in served.log
