"""The broker is killed again and again under load; a ledger says what was confirmed, delivered and acknowledged."""

from __future__ import annotations

import contextlib
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from tests.patience import wait_until
from tests.served import Served

TRANSACTION = 5  # messages
PERSISTENT = pika.BasicProperties(delivery_mode=2)
GONE = (AMQPError, OSError, AssertionError, IndexError)  # what pika raises when its peer vanishes


class Ledger:
    """What clients know."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.confirmed: set[int] = set()
        self.deliveries: Counter[int] = Counter()
        self.acked: set[int] = set()
        self.not_flagged: list[int] = []
        self.after_ack: list[int] = []
        self.next_number = 0


def publish_until(stop: threading.Event, served: Served, ledger: Ledger) -> None:
    """Publish with confirms, and connect again whenever the broker is gone."""
    while not stop.is_set():
        try:
            with served.connect() as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                while not stop.is_set():
                    number = ledger.next_number
                    ledger.next_number += 1
                    body = b"%d" % number + b" " * random.Random(number).randrange(300)
                    channel.basic_publish("amq.topic", "orders.new", body, PERSISTENT)
                    with ledger.lock:
                        ledger.confirmed.add(number)
        except GONE:
            continue


def publish_delayed_until(stop: threading.Event, served: Served, confirmed: set[int]) -> None:
    """Publish what is held back for a while, with confirms."""
    rng = random.Random(7)

    def publish(channel: BlockingChannel, number: int) -> None:
        headers = {"x-delay": rng.randrange(20, 2_000)}
        properties = pika.BasicProperties(delivery_mode=2, headers=headers)
        channel.basic_publish("later", "", b"%d" % number, properties)

    publish_each_until(stop, served, confirmed, publish)


def publish_expiring_until(stop: threading.Event, served: Served, confirmed: set[int]) -> None:
    """Publish what becomes a dead letter when its time is over, with confirms."""

    def publish(channel: BlockingChannel, number: int) -> None:
        properties = pika.BasicProperties(delivery_mode=2, expiration=str(number % 700))
        channel.basic_publish("", "short", b"%d" % number, properties)

    publish_each_until(stop, served, confirmed, publish)


def publish_each_until(
    stop: threading.Event,
    served: Served,
    confirmed: set[int],
    publish: Callable[[BlockingChannel, int], None],
) -> None:
    number = 0
    while not stop.is_set():
        with contextlib.suppress(*GONE), served.connect() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            while not stop.is_set():
                number += 1
                publish(channel, number)
                confirmed.add(number)


def publish_in_transactions_until(
    stop: threading.Event, served: Served, confirmed: set[int]
) -> None:
    """Publish five messages in each transaction; what is committed is confirmed."""
    number = 0
    while not stop.is_set():
        with contextlib.suppress(*GONE), served.connect() as connection:
            channel = connection.channel()
            channel.tx_select()
            while not stop.is_set():
                number += TRANSACTION
                batch = range(number, number + TRANSACTION)
                for one in batch:
                    channel.basic_publish("", "batch", b"%d" % one, PERSISTENT)
                channel.tx_commit()
                confirmed |= set(batch)


def consume_until(stop: threading.Event, served: Served, ledger: Ledger) -> None:
    """Consume and acknowledge most of it, and connect again whenever the broker is gone."""
    rng = random.Random(5)
    while not stop.is_set():
        try:
            with served.connect() as connection:
                channel = connection.channel()
                channel.basic_qos(prefetch_count=20)
                for method, _, body in channel.consume("orders", inactivity_timeout=0.05):
                    if stop.is_set():
                        break
                    if method is None:
                        continue
                    note_delivery(ledger, int(body), method.redelivered)
                    if rng.random() < 0.9:
                        channel.basic_ack(method.delivery_tag)
                        with ledger.lock:
                            ledger.acked.add(int(body))
                    else:
                        channel.basic_nack(method.delivery_tag, requeue=rng.random() < 0.5)
        except GONE:
            continue


def note_delivery(ledger: Ledger, number: int, redelivered: bool) -> None:
    with ledger.lock:
        ledger.deliveries[number] += 1
        if ledger.deliveries[number] > 1 and not redelivered:
            ledger.not_flagged.append(number)


def declare(served: Served) -> None:
    with served.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("dead", durable=True)
        channel.queue_declare("orders", durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})  # fmt: skip
        channel.queue_declare("copy", durable=True)
        channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
        for queue in ("orders", "copy", "log"):
            channel.queue_bind(queue, "amq.topic", "orders.#")


def declare_more(served: Served) -> None:
    with served.connect() as connection:
        channel = connection.channel()
        for queue in ("batch", "due", "expired"):
            channel.queue_declare(queue, durable=True)
        channel.queue_declare("short", durable=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "expired"})  # fmt: skip
        channel.exchange_declare("later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})  # fmt: skip
        channel.queue_bind("due", "later")


def read_all(served: Served, queue: str) -> list[int]:
    with served.connect() as connection:
        channel = connection.channel()
        found = []
        while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
            found.append(int(got[2]))
        return found


def wait_for_confirm(ledger: Ledger) -> None:
    """Wait until one more message is confirmed: on a busy machine it takes long to log in."""
    before, until = len(ledger.confirmed), time.monotonic() + 60
    while len(ledger.confirmed) == before and time.monotonic() < until:
        time.sleep(0.01)


def read_stream(served: Served, queue: str) -> list[int]:
    """Everything in a stream queue, of which something is left."""
    found: list[int] = []
    with served.connect() as connection:
        channel = connection.channel()
        count = channel.queue_declare(queue, passive=True).method.message_count
        channel.basic_qos(prefetch_count=1_000)
        arguments = {"x-stream-offset": "first"}
        for method, _, body in channel.consume(queue, arguments=arguments, inactivity_timeout=30):
            assert method is not None, f"{len(found)} of {count} messages"
            found.append(int(body))
            channel.basic_ack(method.delivery_tag)
            if len(found) == count:
                break
    return found


def test_what_was_confirmed_is_there_after_every_kill(served, full, seed):
    declare(served)
    rng, ledger, stop = random.Random(seed), Ledger(), threading.Event()
    threads = [
        threading.Thread(target=target, args=(stop, served, ledger))
        for target in (publish_until, consume_until)
    ]
    for thread in threads:
        thread.start()
    waiting = threading.Event()
    try:
        for _ in range(30 if full else 4):
            wait_for_confirm(ledger)
            waiting.wait(
                rng.uniform(0, 0.9)
            )  # the load goes on; the kill comes at any moment of it
            served.kill()
            served.start()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    left, dead, copies = (read_all(served, queue) for queue in ("orders", "dead", "copy"))
    seen = set(left) | set(dead) | set(ledger.deliveries)
    assert ledger.confirmed
    assert ledger.confirmed - seen == set()  # nothing confirmed is lost
    assert ledger.confirmed - set(copies) == set()
    assert len(copies) == len(set(copies))  # and nothing is there twice
    logged = read_stream(served, "log")
    assert ledger.confirmed - set(logged) == set()
    assert len(logged) == len(set(logged))
    assert ledger.not_flagged == []
    with contextlib.suppress(subprocess.TimeoutExpired):
        assert served.stop() == 0


def test_transactions_delays_and_expiry_survive_every_kill(served, full, seed):
    declare_more(served)
    rng, stop = random.Random(seed), threading.Event()
    confirmed: dict[str, set[int]] = {"batch": set(), "due": set(), "expired": set()}
    ways = (publish_in_transactions_until, publish_delayed_until, publish_expiring_until)
    threads = [
        threading.Thread(target=way, args=(stop, served, numbers))
        for way, numbers in zip(ways, confirmed.values(), strict=True)
    ]
    for thread in threads:
        thread.start()
    waiting = threading.Event()
    try:
        for _ in range(30 if full else 4):
            waiting.wait(rng.uniform(0.3, 1.2))
            served.kill()
            served.start()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    found: dict[str, list[int]] = {queue: [] for queue in confirmed}

    def is_all_there() -> bool:
        for queue, numbers in found.items():
            numbers += read_all(served, queue)
        return all(confirmed[queue] <= set(numbers) for queue, numbers in found.items())

    wait_until(is_all_there)  # delays and times to live are over after two seconds
    for queue, numbers in found.items():
        assert confirmed[queue]
        assert len(numbers) == len(set(numbers)), queue  # nothing is there twice
    batches = Counter(number // TRANSACTION for number in found["batch"])
    assert set(batches.values()) == {TRANSACTION}  # a transaction is there whole, or not at all
