"""The broker is killed in the middle of filtered consumption: what no filter wanted is there exactly once, and not flagged."""

from __future__ import annotations

import random
import threading

import pika

from tests.integration.amqp.test_kill import GONE, Ledger, note_delivery
from tests.served import Served

KINDS = 5  # of which two are consumed
CONSUMED = (1, 2)


def publish_until(stop: threading.Event, served: Served, ledger: Ledger) -> None:
    while not stop.is_set():
        try:
            with served.connect() as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                while not stop.is_set():
                    number = ledger.next_number
                    ledger.next_number += 1
                    headers = {"kind": number % KINDS}
                    properties = pika.BasicProperties(headers=headers, delivery_mode=2)
                    channel.basic_publish("", "mixed", b"%d" % number, properties)
                    with ledger.lock:
                        ledger.confirmed.add(number)
        except GONE:
            continue


def consume_until(stop: threading.Event, served: Served, ledger: Ledger, kind: int) -> None:
    rng = random.Random(kind)
    while not stop.is_set():
        try:
            with served.connect() as connection:
                channel = connection.channel()
                channel.basic_qos(prefetch_count=20)
                wish = {"x-filter": f"kind = {kind}"}
                for method, _, body in channel.consume("mixed", inactivity_timeout=0.05, arguments=wish):  # fmt: skip
                    if stop.is_set():
                        break
                    if method is None:
                        continue
                    assert int(body) % KINDS == kind, body
                    note_delivery(ledger, int(body), method.redelivered)
                    if rng.random() < 0.9:
                        channel.basic_ack(method.delivery_tag)
                    else:
                        channel.basic_nack(method.delivery_tag, requeue=True)
        except GONE:
            continue


def read_all(served: Served) -> list[tuple[int, bool]]:
    """What is left, with its flag."""
    with served.connect() as connection:
        channel = connection.channel()
        found = []
        while (got := channel.basic_get("mixed", auto_ack=True))[0] is not None:
            found.append((int(got[2]), got[0].redelivered))
        return found


def test_exactly_what_was_held_is_there_after_kills_in_filtered_consumption(served, full, seed):
    with served.connect() as connection:
        connection.channel().queue_declare("mixed", durable=True)
    rng, ledger, stop = random.Random(seed), Ledger(), threading.Event()
    threads = [threading.Thread(target=publish_until, args=(stop, served, ledger))]
    threads += [
        threading.Thread(target=consume_until, args=(stop, served, ledger, kind))
        for kind in CONSUMED
    ]
    for thread in threads:
        thread.start()
    waiting = threading.Event()
    try:
        for _ in range(10 if full else 2):
            waiting.wait(rng.uniform(0.5, 1.2))  # the load goes on; the kill comes at any moment
            served.kill()
            served.start()
        waiting.wait(0.5)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    left = read_all(served)
    numbers = [number for number, _ in left]
    held = {number for number in ledger.confirmed if number % KINDS not in CONSUMED}
    assert held
    assert len(numbers) == len(set(numbers))  # nothing is there twice
    assert held - set(numbers) == set()
    assert ledger.confirmed - set(numbers) - set(ledger.deliveries) == set()  # nothing is lost
    assert ledger.not_flagged == []
    flagged = {number for number, is_flagged in left if is_flagged}
    assert {number for number in flagged if number % KINDS not in CONSUMED} == set()
