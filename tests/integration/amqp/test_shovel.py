"""Messages move from one broker to another: none is lost, also when the shovel or a broker is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pytest

from headgate.cli.app import run
from headgate.errors import HeadgateError, PeerClosed
from headgate.shovels import Shovel, ShovelOptions
from headgate.testing import Broker
from tests.patience import wait_until


@pytest.fixture
def brokers() -> Iterator[tuple[Broker, Broker]]:
    with Broker() as old, Broker() as new:
        yield old, new


@contextmanager
def open_channel(
    broker: Broker, *queues: str
) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for queue in queues:
            channel.queue_declare(queue, durable=True)
        yield channel


def declare(broker: Broker, queue: str) -> None:
    with open_channel(broker, queue):
        pass


def publish(broker: Broker, queue: str, bodies: list[bytes], **headers: object) -> None:
    with open_channel(broker, queue) as channel:
        for body in bodies:
            properties = pika.BasicProperties(delivery_mode=2, headers=headers or None)
            channel.basic_publish("", queue, body, properties)


def take_all(
    broker: Broker, queue: str
) -> list[tuple[pika.spec.Basic.GetOk, pika.BasicProperties, bytes]]:
    found = []
    with open_channel(broker, queue) as channel:
        while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
            found.append(got)
    return found


def shovel_once(old: Broker, new: Broker, **options: object) -> Shovel:
    async def go() -> Shovel:
        shovel = Shovel(
            ShovelOptions(source=old.url, destination=new.url, until_empty=True, **options)  # type: ignore[arg-type]
        )
        await shovel.run()
        return shovel

    return asyncio.run(go())


def test_a_queue_is_moved_in_its_order_with_its_properties(brokers: tuple[Broker, Broker]) -> None:
    old, new = brokers
    publish(old, "orders", [b"%d" % n for n in range(3000)], tags=["a", {"b": None}], n=7)
    declare(new, "orders")
    assert shovel_once(old, new, queue="orders").moved == 3000
    found = take_all(new, "orders")
    assert [body for _, _, body in found] == [b"%d" % n for n in range(3000)]
    assert found[0][1].headers == {"tags": ["a", {"b": None}], "n": 7}
    assert take_all(old, "orders") == []


def test_an_empty_body_and_a_large_one_pass(brokers: tuple[Broker, Broker]) -> None:
    old, new = brokers
    bodies = [b"", os.urandom(700_000), b"x"]
    publish(old, "mixed", bodies)
    declare(new, "elsewhere")
    shovel_once(old, new, queue="mixed", to_queue="elsewhere")
    assert [body for _, _, body in take_all(new, "elsewhere")] == bodies


def test_a_message_that_no_queue_takes_stops_the_shovel_and_stays(
    brokers: tuple[Broker, Broker],
) -> None:
    old, new = brokers
    publish(old, "orders", [b"1", b"2", b"3"])
    with pytest.raises(HeadgateError, match="was not taken: NO_ROUTE"):
        shovel_once(old, new, queue="orders")
    assert len(take_all(old, "orders")) == 3


def test_an_exchange_is_copied_with_a_filter(brokers: tuple[Broker, Broker]) -> None:
    old, new = brokers
    declare(new, "eu")

    async def go(sending: pika.adapters.blocking_connection.BlockingChannel) -> Shovel:
        shovel = Shovel(
            ShovelOptions(
                source=old.url,
                destination=new.url,
                exchange="amq.topic",
                to_queue="eu",
                filter="region = 'EU'",
            )
        )
        running = asyncio.create_task(shovel.run())
        while shovel.state != "running":
            await asyncio.sleep(0.01)
        for n in range(20):
            properties = pika.BasicProperties(headers={"region": "EU" if n % 2 else "US"})
            sending.basic_publish("amq.topic", "orders", b"%d" % n, properties)
        while shovel.moved + shovel.skipped < 20:
            await asyncio.sleep(0.01)
        shovel.stop()
        await running
        return shovel

    with open_channel(old, "kept") as sending:
        sending.queue_bind("kept", "amq.topic", "#")
        done = asyncio.run(go(sending))
    assert (done.moved, done.skipped) == (10, 10)
    assert [int(body) for _, _, body in take_all(new, "eu")] == list(range(1, 20, 2))
    assert len(take_all(old, "kept")) == 20


def test_what_cannot_be_moved_is_said(
    brokers: tuple[Broker, Broker], capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = brokers
    with pytest.raises(PeerClosed, match="no queue 'missing'"):
        shovel_once(old, new, queue="missing")
    for arguments, said in (
        (["--from", "http://x", "--to", new.url, "--queue", "a"], "a broker's address is amqp://"),
        (["--from", old.url, "--to", new.url], "from a queue or from an exchange"),
        (["--from", old.url, "--to", new.url, "--queue", "a", "--filter", "a ="], "expected"),
        (
            ["--from", old.url.replace("guest@", "wrong@"), "--to", new.url, "--queue", "a"],
            "ACCESS_REFUSED",
        ),
    ):
        assert run(["shovel", *arguments, "--until-empty"]) == 2
        message = capsys.readouterr().err
        assert said in message
        assert "wrong" not in message


def test_nothing_is_lost_when_the_shovel_and_the_brokers_are_killed(tmp_path: Path) -> None:
    """The shovel is killed, and each broker stopped, while messages move: every one arrives, in its order but for repeats."""
    total = 2400
    with Broker(tmp_path / "old") as old:
        publish(old, "orders", [b"%d" % n for n in range(total)])
    with Broker(tmp_path / "old") as old, Broker(tmp_path / "new") as new:
        declare(new, "orders")
        command = [
            sys.executable, "-m", "headgate", "shovel", "--from", old.url, "--to", new.url, "--queue", "orders",
            "--prefetch", "50",
        ]  # fmt: skip

        for share in (400, 1000, 1600):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            wait_until(lambda share=share: count_ready(new, "orders") >= share)
            process.kill()
            process.wait()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        wait_until(lambda: count_ready(old, "orders") == 0)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert process.stdout is not None
        process.stdout.close()
        found = [int(body) for _, _, body in take_all(new, "orders")]
        left = [int(body) for _, _, body in take_all(old, "orders")]  # delivered, not passed on
    assert set(found) | set(left) == set(range(total))
    assert len(left) <= 50
    assert len(found) <= total + 3 * 50


def count_ready(broker: Broker, queue: str) -> int:
    with open_channel(broker, queue) as channel:
        return int(channel.queue_declare(queue, passive=True).method.message_count)


def test_a_destination_that_is_away_for_a_while_is_waited_for(tmp_path: Path) -> None:
    with Broker() as old:
        publish(old, "orders", [b"1", b"2"])
        with Broker(tmp_path) as new:
            declare(new, "orders")
            address = new.url
        shovel = Shovel(ShovelOptions(source=old.url, destination=address, queue="orders"))

        async def go() -> None:
            asyncio.get_running_loop().call_later(0.3, shovel.stop)
            await shovel.run()

        thread = threading.Thread(target=asyncio.run, args=(go(),))
        thread.start()
        thread.join()
        assert shovel.moved == 0
        assert count_ready(old, "orders") == 2
