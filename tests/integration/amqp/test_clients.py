"""Clients and frameworks that people use with RabbitMQ, unchanged, over real sockets."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import aio_pika
import dramatiq
import kombu
import pika
import pytest
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from faststream import FastStream
from faststream.rabbit import RabbitBroker
from pika.adapters.asyncio_connection import AsyncioConnection


def test_pika_with_callbacks(broker):
    """SelectConnection: everything in callbacks, one after another."""
    found: list[bytes] = []

    def on_open(connection):
        connection.channel(on_open_callback=lambda channel: channel.queue_declare("q", callback=lambda _: use(channel)))  # fmt: skip

    def use(channel):
        channel.basic_consume("q", lambda ch, method, _, body: take(ch, method, body))
        for number in range(10):
            channel.basic_publish("", "q", b"%d" % number)

    def take(channel, method, body):
        channel.basic_ack(method.delivery_tag)
        found.append(body)
        if len(found) == 10:
            channel.connection.close()

    connection = pika.SelectConnection(
        pika.URLParameters(broker.url),
        on_open_callback=on_open,
        on_close_callback=lambda connection, _: connection.ioloop.stop(),
    )
    connection.ioloop.start()
    connection.ioloop.close()
    assert found == [b"%d" % number for number in range(10)]


def test_pika_with_asyncio(broker):
    """AsyncioConnection: callbacks in a loop of asyncio, with confirms."""

    async def run() -> tuple[list[bytes], list[int]]:
        found: list[bytes] = []
        confirmed: list[int] = []
        done = asyncio.get_running_loop().create_future()

        def use(channel):
            channel.confirm_delivery(lambda frame: confirmed.append(frame.method.delivery_tag))
            channel.basic_consume("q", take)
            for number in range(10):
                channel.basic_publish("", "q", b"%d" % number)

        def take(channel, method, _, body):
            channel.basic_ack(method.delivery_tag)
            found.append(body)
            if len(found) == 10:
                channel.connection.close()

        AsyncioConnection(
            pika.URLParameters(broker.url),
            on_open_callback=lambda connection: connection.channel(
                on_open_callback=lambda channel: channel.queue_declare(
                    "q", callback=lambda _: use(channel)
                )
            ),
            on_open_error_callback=lambda _, problem: done.set_exception(problem),
            on_close_callback=lambda *_: done.set_result(None),
        )
        await asyncio.wait_for(done, 30)
        return found, confirmed

    found, confirmed = asyncio.run(run())
    assert found == [b"%d" % number for number in range(10)]
    assert confirmed


def test_aio_pika_publishes_and_iterates(broker):
    async def run() -> list[bytes]:
        connection = await aio_pika.connect_robust(broker.url)
        async with connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=5)
            exchange = await channel.declare_exchange("events", aio_pika.ExchangeType.TOPIC)
            queue = await channel.declare_queue("q", auto_delete=True)
            await queue.bind(exchange, "order.*")
            for number in range(20):
                await exchange.publish(aio_pika.Message(b"%d" % number), f"order.{number}")
            found = []
            async with queue.iterator() as messages:
                async for message in messages:
                    async with message.process():
                        found.append(message.body)
                    if len(found) == 20:
                        break
            return found

    assert asyncio.run(run()) == [b"%d" % number for number in range(20)]


def test_kombu_serialises_and_consumes(broker):
    exchange = kombu.Exchange("tasks", "direct", durable=True)
    queue = kombu.Queue("tasks", exchange, "task", max_priority=5)
    found: list[object] = []
    with kombu.Connection(broker.url) as connection:
        producer = connection.Producer(serializer="json")
        for priority in (1, 5):
            producer.publish({"priority": priority}, exchange=exchange, routing_key="task", declare=[queue], priority=priority)  # fmt: skip
        with connection.Consumer(queue, callbacks=[lambda body, message: (found.append(body), message.ack())]):  # fmt: skip
            while len(found) < 2:
                connection.drain_events(timeout=5)
    assert found == [{"priority": 5}, {"priority": 1}]


CELERY_APP = """
import os
from celery import Celery

app = Celery("tasks", broker=os.environ["BROKER"], backend="rpc://")
app.conf.update(worker_hijack_root_logger=False, broker_connection_retry_on_startup=True)

@app.task(bind=True, max_retries=3)
def add(self, x, y):
    if self.request.retries < 1:
        raise self.retry(countdown=0)
    return x + y

@app.task
def echo(value):
    return value
"""

CELERY_CLIENT = """
import json
from tasks import add, echo
results = [add.delay(1, 2), echo.apply_async(({"nested": [1, None]},), countdown=0.3)]
print(json.dumps([result.get(timeout=30) for result in results]))
"""


def run_celery(broker, directory: Path, app: str, client: str) -> str:
    """What a client prints while a worker runs the tasks of an app."""
    (directory / "tasks.py").write_text(app)
    environment = {"BROKER": broker.url, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(directory), "HOME": str(directory)}  # fmt: skip
    command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--pool", "solo", "--loglevel", "warning"]  # fmt: skip
    worker = subprocess.Popen(command, env=environment, cwd=directory)
    try:
        done = subprocess.run(
            [sys.executable, "-c", client],
            env=environment,
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
    finally:
        worker.terminate()
        worker.wait(30)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_celery_runs_tasks_with_results_retries_and_countdowns(broker, tmp_path):
    found = run_celery(broker, tmp_path, CELERY_APP, CELERY_CLIENT)
    assert json.loads(found) == [3, {"nested": [1, None]}]


QUORUM_APP = """
import os, time
from celery import Celery

app = Celery("tasks", broker=os.environ["BROKER"], backend="rpc://")
app.conf.update(
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    task_default_queue_type="quorum",
    broker_transport_options={"confirm_publish": True},
)

@app.task
def started():
    return time.time()
"""

QUORUM_CLIENT = """
import time
from tasks import started
started.delay().get(timeout=60)  # the worker runs, and has declared its queues
asked = time.time()
results = [started.apply_async(countdown=seconds) for seconds in (3, 2, 1)]
print(*(result.get(timeout=60) - asked for result in results))
"""


def test_celery_delays_tasks_on_quorum_queues_with_kombus_native_delivery(broker, tmp_path):
    spans = [float(span) for span in run_celery(broker, tmp_path, QUORUM_APP, QUORUM_CLIENT).split()]  # fmt: skip
    assert all(least <= span for least, span in zip((3, 2, 1), spans, strict=True)), spans
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    for name in ("celery", "celery_delayed_0", "celery_delayed_27"):  # kombu's own topology
        assert channel.queue_declare(name, passive=True).method.message_count == 0
    connection.close()


def test_faststream_subscribes_and_publishes(broker):
    async def run() -> list[str]:
        rabbit = RabbitBroker(broker.url)
        found: list[str] = []
        done = asyncio.Event()

        @rabbit.subscriber("in")
        @rabbit.publisher("out")
        async def handle(text: str) -> str:
            return text.upper()

        @rabbit.subscriber("out")
        async def collect(text: str) -> None:
            found.append(text)
            if len(found) == 3:
                done.set()

        app = FastStream(rabbit)
        await app.broker.start()
        for word in ("a", "b", "c"):
            await rabbit.publish(word, "in")
        await asyncio.wait_for(done.wait(), 20)
        await rabbit.stop()
        return sorted(found)

    assert asyncio.run(run()) == ["A", "B", "C"]


def test_dramatiq_retries_and_delays(broker):
    rabbit = RabbitmqBroker(url=broker.url)
    dramatiq.set_broker(rabbit)
    found: list[int] = []
    done = threading.Event()

    @dramatiq.actor(max_retries=2, min_backoff=1, broker=rabbit)
    def work(number: int) -> None:
        if not found:
            found.append(0)
            raise RuntimeError("try again")
        found.append(number)
        if len(found) == 3:
            done.set()

    worker = dramatiq.Worker(rabbit, worker_threads=1, worker_timeout=50)
    worker.start()
    try:
        work.send(1)
        work.send_with_options(args=(2,), delay=50)
        assert done.wait(20)
    finally:
        worker.stop()
        rabbit.close()
    assert sorted(found) == [0, 1, 2]


AMQPLIB = """
const amqp = require("amqplib");
(async () => {
  const connection = await amqp.connect(process.argv[2]);
  const channel = await connection.createConfirmChannel();
  await channel.assertQueue("q");
  for (let i = 0; i < 5; i++) channel.sendToQueue("q", Buffer.from(String(i)), {headers: {i}});
  await channel.waitForConfirms();
  const found = [];
  await channel.consume("q", async (message) => {
    found.push(message.content.toString() + message.properties.headers.i);
    channel.ack(message);
    if (found.length === 5) { await connection.close(); console.log(JSON.stringify(found)); }
  });
})();
"""


def find_amqplib() -> Path | None:
    """A directory with node_modules/amqplib: beside the repository or above it, or in NODE_PATH."""
    given = [Path(one).parent for one in os.environ.get("NODE_PATH", "").split(os.pathsep) if one]
    for place in (*given, Path.cwd(), *Path(__file__).resolve().parents):
        if (place / "node_modules" / "amqplib").is_dir():
            return place
    return None


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
@pytest.mark.skipif(find_amqplib() is None, reason="npm install amqplib beside the repository")
def test_amqplib_of_node(broker, tmp_path):
    assert run_in_node(AMQPLIB, broker.url, tmp_path) == ["00", "11", "22", "33", "44"]


AMQPLIB_STREAM = """
const amqp = require("amqplib");
(async () => {
  const connection = await amqp.connect(process.argv[2]);
  const channel = await connection.createConfirmChannel();
  await channel.assertQueue("s", {durable: true, arguments: {"x-queue-type": "stream"}});
  for (let i = 0; i < 6; i++)
    channel.sendToQueue("s", Buffer.from(String(i)), {headers: {region: i % 2 ? "EU" : "US"}});
  await channel.waitForConfirms();
  await channel.prefetch(10);
  const found = [];
  await channel.consume("s", async (message) => {
    found.push([message.content.toString(), message.properties.headers["x-stream-offset"]]);
    channel.ack(message);
    if (found.length === 3) { await connection.close(); console.log(JSON.stringify(found)); }
  }, {arguments: {"x-stream-offset": "first", "x-filter": "region = 'EU'"}});
})();
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
@pytest.mark.skipif(find_amqplib() is None, reason="npm install amqplib beside the repository")
def test_amqplib_reads_a_stream_queue_with_a_filter(broker, tmp_path):
    found = run_in_node(AMQPLIB_STREAM, broker.url, tmp_path)
    assert found == [["1", 1], ["3", 3], ["5", 5]]


def run_in_node(script: str, url: str, tmp_path: Path):
    """What a script prints, as JSON."""
    file = tmp_path / "client.js"
    file.write_text(script)
    found = subprocess.run(
        ["node", str(file), url],
        env={
            "NODE_PATH": str(find_amqplib() / "node_modules"),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
        },  # type: ignore[operator]
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


# ---- stream queues

STREAM = {"x-queue-type": "stream"}
WANTED = {"x-stream-offset": "first", "x-filter": "region = 'EU'"}


def test_aio_pika_reads_a_stream_queue_with_a_filter(broker):
    async def run() -> list[tuple[bytes, object]]:
        connection = await aio_pika.connect(broker.url)
        async with connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=5)
            queue = await channel.declare_queue("s", durable=True, arguments=STREAM)
            for number in range(20):
                message = aio_pika.Message(
                    b"%d" % number, headers={"region": "EU" if number % 2 else "US"}
                )
                await channel.default_exchange.publish(message, "s")
            found: list[tuple[bytes, object]] = []
            async with queue.iterator(arguments=WANTED) as messages:
                async for message in messages:
                    found.append((message.body, message.headers["x-stream-offset"]))
                    await message.ack()
                    if len(found) == 10:
                        break
            return found

    assert asyncio.run(run()) == [(b"%d" % number, number) for number in range(1, 20, 2)]


def test_kombu_reads_a_stream_queue_with_filter_values(broker):
    found: list[str] = []
    queue = kombu.Queue(
        "s",
        kombu.Exchange("events", "topic"),
        routing_key="#",
        durable=True,
        queue_arguments=STREAM,
        consumer_arguments={
            "x-stream-offset": "first",
            "x-stream-filter": ["EU"],
            "x-stream-filter-exact": True,
        },
    )

    def take(body: str, message: kombu.Message) -> None:
        found.append(body)
        message.ack()

    with kombu.Connection(broker.url, transport_options={"confirm_publish": True}) as connection:
        producer = connection.Producer()
        for number in range(6):
            producer.publish(
                str(number),
                exchange=queue.exchange,
                routing_key="order.new",
                declare=[queue],
                headers={"x-stream-filter-value": "EU" if number % 2 else "US"},
            )
        with connection.channel() as channel:
            consumer = kombu.Consumer(channel, [queue], callbacks=[take], prefetch_count=4)
            with consumer:
                while len(found) < 3:
                    connection.drain_events(timeout=10)
    assert found == ["1", "3", "5"]
