"""A shop with an outbox, and a worker with retries and dead letters, each in a process of its own.

    python examples/outbox_and_worker.py

The shop stores orders in its own SQLite file, together with a message about each, in one transaction. The worker relays
the messages into a queue and bills the orders. It is killed in the middle and started again: every order is billed, and
the one without an address ends among the dead letters.
"""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path

from headgate import connect
from headgate.queues import Delivery, Retry

ORDERS = 200
WITHOUT_ADDRESS = 117


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        sell(place)
        kill_in_the_middle(start_worker(place))
        worker = start_worker(place)
        dead = wait_for_dead_letter(place)
        worker.send_signal(signal.SIGTERM)
        code = worker.wait()
        with closing(sqlite3.connect(place / "billed.db")) as billed:
            (count,) = billed.execute("SELECT count(*) FROM billed").fetchone()
    print(f"{count} of {ORDERS} orders are billed; the dead letter: {dead}")
    return 0 if count == ORDERS - 1 and "no address" in dead and code == 0 else 1


# ---- the shop ----------------------------------------------------------------------------------------


def sell(place: Path) -> None:
    """Store every order with its message; one transaction fails, and leaves neither."""
    with (
        closing(sqlite3.connect(place / "shop.db")) as shop,
        connect(f"sqlite:///{place}/queues.db") as queues,
    ):
        shop.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY)")
        outbox = queues.outbox(shop)
        for number in [*range(1, ORDERS + 1), ORDERS]:
            try:
                with shop:
                    outbox.publish("billing", b"bill it", headers={"number": number})
                    shop.execute("INSERT INTO orders VALUES (?)", (number,))
            except sqlite3.IntegrityError:
                print(f"order {number} was refused, and its message with it")


# ---- the worker --------------------------------------------------------------------------------------


def work(place: Path) -> None:
    """Relay and bill until SIGTERM; print the number of every order that is billed."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    retry = Retry(first=timedelta(milliseconds=20))
    with closing(sqlite3.connect(place / "billed.db")) as billed, billed:
        billed.execute("CREATE TABLE IF NOT EXISTS billed (number INTEGER PRIMARY KEY)")
    with connect(f"sqlite:///{place}/queues.db") as queues:
        billing = queues.queue("billing", max_attempts=3)
        consumer = billing.consumer(partial(bill, place), retry=retry, lease=timedelta(seconds=1))
        with queues.relay(place / "shop.db"), consumer:
            stop.wait()


def bill(place: Path, delivery: Delivery) -> None:
    """Bill an order. The number is a primary key: billing it twice has the effect of billing it once."""
    number = delivery.message.headers["number"]
    if number == WITHOUT_ADDRESS:
        raise ValueError(f"order {number} has no address")
    with closing(sqlite3.connect(place / "billed.db")) as billed, billed:
        billed.execute("INSERT OR IGNORE INTO billed VALUES (?)", (number,))
    print(number, flush=True)


# ---- the two of them ---------------------------------------------------------------------------------


def start_worker(place: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, __file__, place], stdout=subprocess.PIPE, text=True)


def kill_in_the_middle(worker: subprocess.Popen[str]) -> None:
    assert worker.stdout is not None
    billed = [worker.stdout.readline().strip() for _ in range(50)]
    worker.kill()
    worker.communicate()
    print(f"the worker was killed after order {billed[-1]}")


def wait_for_dead_letter(place: Path) -> str:
    """Wait until the queue has nothing left to hand out; the reason of its dead letter."""
    with connect(f"sqlite:///{place}/queues.db", access="look") as queues:
        billing = queues.find("billing")
        while True:
            stats = billing.stats()
            if stats.dead == 1 and stats.ready + stats.delayed + stats.leased == 0:
                return next(billing.dead()).reason
            time.sleep(0.05)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        work(Path(sys.argv[1]))
    else:
        sys.exit(main())
