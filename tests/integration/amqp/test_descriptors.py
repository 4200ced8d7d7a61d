"""A broker without a file descriptor left: new connections are refused, the others go on, and nothing confirmed is lost."""

from __future__ import annotations

import os
import resource
import socket
import threading
from contextlib import ExitStack
from pathlib import Path

import pika

from headgate.amqp.methods import PREAMBLE
from tests.patience import PATIENCE, wait_until
from tests.served import Served

FEW = 20
OUT, FREE = "out of file descriptors", "file descriptors are free again"
LASTING = pika.BasicProperties(delivery_mode=2)


def limit_descriptors(served: Served, more: int) -> None:
    """Let a broker open only so many more files."""
    used = len(os.listdir(f"/proc/{served.pid}/fd"))
    hard = resource.prlimit(served.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(served.pid, resource.RLIMIT_NOFILE, (used + more, hard))


def is_accepted(served: Served, peers: ExitStack) -> bool:
    """Connect; return whether the broker answers."""
    peer = peers.enter_context(socket.create_connection(("127.0.0.1", served.port), PATIENCE))
    try:
        peer.sendall(PREAMBLE)
        return peer.recv(1) != b""
    except ConnectionError:
        return False


def cpu_s(served: Served) -> float:
    fields = Path(f"/proc/{served.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_connections_are_refused_and_those_that_are_open_go_on(served: Served) -> None:
    with served.connect() as connection, ExitStack() as peers:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"before", LASTING)
        limit_descriptors(served, 5)
        accepted = [is_accepted(served, peers) for _ in range(FEW)]
        assert 0 < sum(accepted) < 6
        wait_until(lambda: OUT in served.log)
        began = cpu_s(served)
        assert [is_accepted(served, peers) for _ in range(FEW)] == [False] * FEW
        for number in range(FEW):
            channel.basic_publish("", "q", b"%d" % number, LASTING)
        connection.sleep(2)  # in which nobody tries to accept all the time
        assert cpu_s(served) - began < 1
        peers.close()
        wait_until(lambda: FREE in served.log)
        with served.connect() as other:
            other.channel().queue_declare("q", passive=True)
    assert served.log.count(OUT) == 1
    assert "Traceback" not in served.log
    served.kill()
    served.start()
    with served.connect() as connection:
        found = connection.channel().queue_declare("q", passive=True)
        assert found.method.message_count == 1 + FEW


def test_a_stream_that_cannot_be_opened_lets_publishers_wait(served: Served) -> None:
    confirmed: list[int] = []
    with served.connect() as connection, ExitStack() as peers:
        channel = connection.channel()
        channel.confirm_delivery()
        limit_descriptors(served, 5)
        while is_accepted(served, peers):
            pass
        channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})

        def publish() -> None:
            for number in range(FEW):
                channel.basic_publish("", "s", b"%d" % number, LASTING)
                confirmed.append(number)

        publisher = threading.Thread(target=publish, daemon=True)
        publisher.start()
        wait_until(lambda: "alarm raised" in served.log)
        assert confirmed == []
        limit_descriptors(served, 100)
        publisher.join(PATIENCE)
        assert confirmed == list(range(FEW))
    served.kill()
    served.start()
    with served.connect() as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=FEW)
        first = channel.consume("s", arguments={"x-stream-offset": "first"})
        bodies: dict[int, None] = {}
        while len(bodies) < FEW:  # what was not confirmed at once may be there twice
            method, _, body = next(first)
            channel.basic_ack(method.delivery_tag)
            bodies[int(body)] = None
        assert list(bodies) == list(range(FEW))
