"""One client that floods, one that never reads and one that is slow: the others are served in time, and memory stays bounded."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import closing
from pathlib import Path

import pika

from benches.amqp_client import Client, connected, encode_publish
from headgate.amqp.methods import method_frame

PROBES = 200


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def flood(stop: threading.Event, port: int) -> None:
    """Publish flat out, without ever waiting for anything."""
    buffer = encode_publish("flooded", durable=True, body=bytes(200)) * 50
    with connected(port) as client:
        client.socket.settimeout(0.5)
        while not stop.is_set():
            try:
                client.socket.sendall(buffer)
            except TimeoutError:
                return  # in the middle of a frame: nothing more can be sent


def ask_for_everything(port: int) -> Client:
    """A consumer without a limit that never reads."""
    client = Client(port)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.socket.sendall(method_frame(1, "basic.consume", 0, "flooded", "never-reads", False, False, False, True, {}))  # fmt: skip
    return client


def test_others_are_served_in_time_and_memory_stays_bounded(served):
    with closing(served.connect()) as connection, closing(served.connect()) as slow:
        channel = connection.channel()
        for queue in ("flooded", "probe"):
            channel.queue_declare(queue, durable=True)
        # It takes one message, and never acknowledges it.
        slow_channel = slow.channel()
        slow_channel.basic_qos(prefetch_count=1)
        slow_channel.basic_consume("flooded", lambda *_: None)
        greedy = ask_for_everything(served.port)
        before = resident_bytes(served.pid)
        stop = threading.Event()
        flooding = threading.Thread(target=flood, args=(stop, served.port))
        flooding.start()
        channel.confirm_delivery()
        took = []
        try:
            for number in range(PROBES):
                begin = time.monotonic()
                properties = pika.BasicProperties(delivery_mode=2)
                channel.basic_publish("", "probe", b"%d" % number, properties)
                method, _, body = channel.basic_get("probe", auto_ack=True)
                took.append(time.monotonic() - begin)
                assert body == b"%d" % number
                assert method is not None
        finally:
            stop.set()
            flooding.join()
            greedy.close()
        grown = resident_bytes(served.pid) - before
        took.sort()
        print(f"p50 {took[PROBES // 2] * 1000:.1f} ms, p99 {took[PROBES * 99 // 100] * 1000:.1f} ms, {grown >> 20} MiB more")  # fmt: skip
        assert took[PROBES * 99 // 100] < 2  # a machine of tests may be busy
        assert grown < 400 << 20
