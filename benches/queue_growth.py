"""What must not grow: a subscription from the first message, waking among many consumers, a change among many queues."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from figures import TIMES, Recorder, at_most

from headgate.message import Message
from headgate.queues.database import Database, connect
from headgate.queues.engine import Publication, Transaction, TransactionMode
from headgate.tally import QUEUES

if TYPE_CHECKING:
    from queue_peers import Peer

REGIONS = ("EU", "US")


def growth(
    bench: Recorder,
    engine: str,
    url: str,
    sizes: tuple[int, int, int],
    subscriptions: tuple[int, int, int],
) -> None:
    with connect(url) as db:
        start_first(bench, engine, db, sizes)
        herd(bench, engine, db)
        busy_group(bench, engine, db, sizes)
    with connect(url) as db, connect(url) as other:
        changes(bench, engine, db, other, subscriptions)


def start_first(bench: Recorder, engine: str, db: Database, sizes: tuple[int, int, int]) -> None:
    """A subscription that starts with the stored messages, while another thread publishes."""
    bench.part(f"{engine}: a subscription that starts with the first of many stored messages")
    spent = {}
    for size in sizes:
        orders = db.queue("orders")
        for at in range(0, size, 5_000):
            made = range(at, min(at + 5_000, size))
            orders.publish_many(Message(headers={"region": REGIONS[n % 2]}) for n in made)
        with Publishing(db) as other:
            began = time.perf_counter()
            db.subscription("early", "region = 'EU'", start="first")
            spent[size] = time.perf_counter() - began
        name = f"{engine}, start='first' over {size:,} messages"
        bench.add(name, spent[size] * 1000, "ms")
        bench.add(f"{name}: longest publish meanwhile", other.longest_ms, "ms")
        for queue in ("early", "orders"):
            db.delete(queue)
    small, *_, large = sizes
    grown = (spent[large] / large) / (spent[small] / small)
    name = f"{engine}, start='first', a message of {large:,} / of {small:,}"
    bench.add(name, grown, TIMES, at_most(1.5))


def busy_group(bench: Recorder, engine: str, db: Database, sizes: tuple[int, int, int]) -> None:
    """Claims of others while one member of a large group is at work, after the first claims have met the rest."""
    bench.part(f"{engine}: claims behind a busy group")
    spent = {}
    for size in sizes:
        queue = db.queue("grouped")
        for at in range(0, size, 5_000):
            some = range(at, min(at + 5_000, size))
            queue.publish_many(Publication(Message(b""), group="busy") for _ in some)
        queue.claim()
        queue.publish_many([b""] * 300)
        for _ in range(100):
            queue.claim()
        spent[size] = statistics.median(_ms(queue.claim) for _ in range(100))
        bench.add(f"{engine}, a claim behind a busy group of {size:,}", spent[size], "ms")
        queue.delete()
    small, *_, large = sizes
    name = f"{engine}, a claim behind a busy group of {large:,} / of {small:,}"
    bench.add(name, spent[large] / spent[small], TIMES, at_most(2))


def behind_snapshot(
    bench: Recorder, url: str, peers: Mapping[str, Peer], sizes: tuple[int, int, int]
) -> None:
    """Take and finish on PostgreSQL while another transaction keeps all that was deleted from being cleaned up."""
    import psycopg

    bench.part("postgres: 100 taken and finished at a time, behind an open snapshot")
    with psycopg.connect(url) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        done = 0
        for size in sizes:
            spent: dict[str, list[float]] = {name: [] for name in peers}
            for _ in range(done, size, 100):
                for name, peer in peers.items():
                    peer.put(100)
                    spent[name].append(_ms(lambda peer=peer: peer.take(100)))
            done = size
            last = {name: statistics.median(times[-20:]) for name, times in spent.items()}
            ours = bench.add(f"postgres, 100 behind a snapshot and {size:,} others", last.pop("headgate"), "ms")  # fmt: skip
            for name, theirs in last.items():
                bench.versus(ours, name, theirs)


class Publishing:
    """A thread that publishes to another queue, and how long its longest publish took."""

    def __init__(self, db: Database) -> None:
        self._queue = db.queue("other")
        self.longest_ms, self._stopping = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._publish)

    def __enter__(self) -> Publishing:
        self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._queue.delete()

    def _publish(self) -> None:
        while not self._stopping.wait(0.002):
            began = time.perf_counter()
            self._queue.publish(b"")
            self.longest_ms = max(self.longest_ms, (time.perf_counter() - began) * 1000)


def herd(bench: Recorder, engine: str, db: Database, messages: int = 50) -> None:
    """Empty claims for each message, published one at a time to consumers without work."""
    bench.part(f"{engine}: one message at a time for many idle threads")
    for threads in (1, 10, 100):
        queue, handled = db.queue(f"herd {threads}"), threading.Semaphore(0)

        def handle(delivery: Any, handled: threading.Semaphore = handled) -> None:
            handled.release()

        late = []
        with queue.consumer(handle, mode="notify", threads=threads):
            time.sleep(1)
            before = QUEUES.read("empty_claims")
            for _ in range(messages):
                began = time.perf_counter()
                queue.publish(b"")
                handled.acquire()
                late.append((time.perf_counter() - began) * 1000)
                time.sleep(0.02)
            made = (QUEUES.read("empty_claims") - before) / messages
        bench.add(f"{engine}, empty claims a message, {threads} threads", made, "", at_most(2))
        bench.add(f"{engine}, publish to handler, {threads} threads", statistics.median(late), "ms")
        queue.delete()


def changes(
    bench: Recorder, engine: str, db: Database, other: Database, sizes: tuple[int, int, int]
) -> None:
    """A change among many subscriptions by another connection, and what the next publish and a waiting consumer cost."""
    bench.part(f"{engine}: one change among many subscriptions")
    queue = db.queue("changes")
    stored = 0
    with queue.consumer(lambda delivery: None, mode="notify"):
        for size in sizes:
            _subscribe_many(db, range(stored, size))
            stored = size
            queue.publish(b"", headers={"x": "none"})
            created, published, spent = [], [], []
            for n in range(20):
                created.append(_ms(lambda n=n: other.subscription(f"new {n}", f"x = 'new {n}'")))
                before = time.process_time()
                published.append(_ms(lambda n=n: queue.publish(b"", headers={"x": f"new {n}"})))
                time.sleep(0.02)  # the consumer looks
                spent.append((time.process_time() - before) * 1000)
                other.delete(f"new {n}")
            name = f"{engine}, {size:,} subscriptions"
            bench.add(f"{name}: create one more", statistics.median(created), "ms")
            bench.add(f"{name}: the next publish", statistics.median(published), "ms")
            cpu = statistics.median(spent)
            bench.add(f"{name}: CPU of both and a consumer", cpu, "ms", at_most(5))


def _ms(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1000


def _subscribe_many(db: Database, numbers: Iterable[int]) -> None:
    """Create subscriptions in one transaction."""
    dialect = db.engine.operations.dialect

    def create() -> Iterator[Any]:
        for n in numbers:
            options = (5, 300_000_000, 0, [], [])
            name, filter = f"many {n}", f"x = 'v{n}'"
            values = (name, "subscription", *options, filter, None, dialect.now_us(), None, 0)
            yield dialect.statement("create_queue", *values)

    def in_transaction() -> Iterator[Any]:
        yield Transaction(TransactionMode.WRITE, create)

    db.engine.run(in_transaction())
