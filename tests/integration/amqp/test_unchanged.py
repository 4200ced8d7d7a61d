"""Properties and headers come out as the bytes that went in, whatever way a message takes."""

from __future__ import annotations

import pytest

from benches.amqp_client import Client, connected
from headgate.amqp.methods import FRAME, method_frame
from headgate.amqp.properties import content_header, raw_headers
from headgate.amqp.tables import change_table, encode_table
from headgate.testing import Broker
from tests.unit.amqp.test_tables import EVERY_FIELD

TASK = {"lang": "py", "task": "tasks.add", "eta": None, "timelimit": [None, None], "argsrepr": "(1,)", "stamps": {}}  # fmt: skip
LONG = {f"header-{number}": "x" * 60 for number in range(800)}  # more than 64 KB
TABLES = {
    "every type": len(EVERY_FIELD).to_bytes(4, "big") + EVERY_FIELD,
    "a task of celery": encode_table(TASK),
    "a long table": encode_table(LONG),
}


@pytest.fixture(params=list(TABLES))
def headers(request) -> bytes:
    return TABLES[request.param]


def properties_with(headers: bytes, mode: int) -> bytes:
    """All properties but the expiration, user and reply address, in their order."""
    flags = 0b1111_1100_1110_1100
    texts = {name: bytes((3,)) + name.encode() for name in ("mid", "typ", "app")}
    parts = (b"\4type", b"\3enc", headers, bytes((mode,)), b"\5", b"\3cor", texts["mid"], bytes(7) + b"\7", texts["typ"], texts["app"], b"\3clu")  # fmt: skip
    return flags.to_bytes(2, "big") + b"".join(parts)


def publish(client: Client, queue: str, properties: bytes, body: bytes = b"body") -> None:
    header = content_header(properties, len(body))
    frames = [method_frame(1, "basic.publish", 0, "", queue, False, False)]
    for kind, payload in ((2, header), (3, body)):
        frames.append(FRAME.pack(kind, 1, len(payload)) + payload + b"\xce")
    client.socket.sendall(b"".join(frames))
    client.read()  # the confirm


def get(client: Client, queue: str) -> tuple[bytes, bytes, int]:
    """The properties and the body of the next message, and its delivery tag."""
    found = client.call(1, "basic.get", 0, queue, False)
    assert found[:4] == b"\0\x3c\0\x47", found  # basic.get-ok
    return client.read()[1][12:], client.read()[1], int.from_bytes(found[4:12], "big")


@pytest.mark.parametrize(("durable", "mode"), [(False, 1), (True, 2)])
def test_in_memory_and_in_the_store(tmp_path, headers, durable, mode):
    sent = properties_with(headers, mode)
    with Broker(tmp_path) as broker, connected(broker.port) as client:
        client.call(1, "confirm.select", False)
        client.declare("q", durable=durable)
        publish(client, "q", sent)
        assert get(client, "q")[:2] == (sent, b"body")


def test_paged_out_and_after_a_restart(tmp_path, headers):
    sent = properties_with(headers, 2)
    with Broker(tmp_path, page_out_after=1) as broker, connected(broker.port) as client:
        client.call(1, "confirm.select", False)
        client.declare("q", durable=True)
        for number in range(4):
            publish(client, "q", sent, b"%d" % number)
        assert [get(client, "q")[:2] for _ in range(4)] == [(sent, b"%d" % n) for n in range(4)]
    with Broker(tmp_path) as broker, connected(broker.port) as client:
        assert [get(client, "q")[:2] for _ in range(4)] == [(sent, b"%d" % n) for n in range(4)]


def test_where_the_broker_adds_a_header_the_others_keep_their_bytes(tmp_path, headers):
    sent = properties_with(headers, 2)
    with Broker(tmp_path) as broker, connected(broker.port) as client:
        client.call(1, "confirm.select", False)
        arguments = {"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}  # fmt: skip
        client.declare("dead", durable=True)
        client.declare("q", durable=True, **arguments)
        publish(client, "q", sent)
        client.socket.sendall(method_frame(1, "basic.reject", get(client, "q")[2], True))
        found, _, tag = get(client, "q")
        assert change_table(raw_headers(found), {}, removed=("x-delivery-count",)) == headers
        client.socket.sendall(method_frame(1, "basic.reject", tag, False))
        letter = get(client, "dead")[0]
        ours = [f"x-{when}-death-{what}" for when in ("first", "last") for what in ("exchange", "queue", "reason")]  # fmt: skip
        assert change_table(raw_headers(letter), {}, removed=("x-death", "x-delivery-count", *ours)) == headers  # fmt: skip


def test_of_a_message_that_was_delayed_only_the_delay_changes(tmp_path, headers):
    table = change_table(headers, {"x-delay": 20})
    with Broker(tmp_path) as broker, connected(broker.port) as client:
        client.call(1, "confirm.select", False)
        client.call(1, "exchange.declare", 0, "later", "x-delayed-message", False, True, False, False, False, {"x-delayed-type": "fanout"})  # fmt: skip
        client.declare("q", durable=True)
        client.call(1, "queue.bind", 0, "q", "later", "", False, {})
        client.call(1, "basic.qos", 0, 1, False)
        sent = properties_with(table, 2)
        payload = content_header(sent, 1)
        client.socket.sendall(
            method_frame(1, "basic.publish", 0, "later", "", False, False)
            + FRAME.pack(2, 1, len(payload)) + payload + b"\xce"
            + FRAME.pack(3, 1, 1) + b"m\xce"
        )  # fmt: skip
        client.read()
        client.call(1, "basic.consume", 0, "q", "c", False, True, False, False, {})
        client.read()  # basic.deliver
        found = client.read()[1][12:]
        assert change_table(raw_headers(found), {}, removed=("x-delay",)) == headers
