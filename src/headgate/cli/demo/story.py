"""The demonstration, step by step: publish, route on Spark, notify, read, seal, compact, replay.

The payloads that a subscriber receives are kept, and compared with those that the reference predicate selects.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.cli.demo import cast
from headgate.cli.demo.cast import Subscriber
from headgate.cli.demo.figures import Findings, Rate, Received, Skipped
from headgate.cli.demo.orders import order_events
from headgate.columns import header_of, is_header_column
from headgate.filters import matches_filter, parse
from headgate.message import Message
from headgate.queues import Database, connect
from headgate.streams import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headgate.pipelines import Batch

STEPS: Final = (
    "publish", "start Spark", "pipeline", "notify", "read hot", "seal", "read sealed", "compact", "read cold", "replay",
)  # fmt: skip
_PATIENCE_S: Final = 60

Payloads = list[bytes]
Advance = Callable[[], object]
Announce = Callable[[str], object]


class Story:
    """One run of the demonstration, in an empty directory."""

    def __init__(self, directory: Path, messages: int, seed: int, announce: Announce) -> None:
        self.directory, self.seed, self.announce = directory, seed, announce
        self.findings = Findings(messages)
        self.got: dict[Subscriber, Payloads] = {}
        self._bursts: list[pa.RecordBatch] = []

    @property
    def orders(self) -> Path:
        return self.directory / "orders"

    def run(self) -> Findings:
        """Run every step."""
        self.publish()
        spark = self.start_spark()
        self.route(spark)
        self.read("hot")
        self.seal()
        self.read("sealed")
        self.compact(spark)
        self.read("cold")
        self.replay(spark)
        return self.findings

    # ---- steps

    def publish(self) -> None:
        self.announce("publish")
        self._bursts = list(order_events(self.findings.messages, self.seed))
        with (
            Stream.create(self.orders, indexed=["region", "type", "customer"]) as stream,
            self.step("publish", self.findings.messages),
        ):
            for burst in self._bursts:
                stream.append(burst)
        self.findings.sizes["hot log"] = _size(self.orders)

    def start_spark(self) -> SparkSession:
        from headgate.spark import command_session

        # Java compiles quickly instead of well: it only passes descriptors on.
        quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
        with self.step("start Spark", 0):
            return command_session("headgate demo", config=quick)

    def route(self, spark: SparkSession) -> None:
        """Run the pipeline while a consumer and a push subscriber wait for messages of its queue."""
        from headgate.pipelines import Account, read_pipeline
        from headgate.spark.pipeline import follow, start

        file = self.directory / "pipeline.toml"
        file.write_text(cast.PIPELINE)
        with ExitStack() as stack:
            database = stack.enter_context(connect(f"sqlite:///{self.directory}/shop.db"))
            wait = stack.enter_context(self.start_subscribers(database))
            self.announce("pipeline")
            began, pipeline = time.perf_counter(), read_pipeline(file)
            query = start(pipeline, spark, "once")
            polls = follow(query, Account(pipeline.name), lambda: False)
            batches = [batch for poll in polls for batch in poll]
            self.add_pipeline_rates(batches, time.perf_counter() - began)
            with self.step("notify"):
                wait()
        self.collect_routed()

    def add_pipeline_rates(self, batches: Sequence[Batch], seconds: float) -> None:
        """The start of the query with its first batch, and the flow of the others."""
        others = batches[1:]
        flow = Rate(
            "pipeline, other batches",
            sum(batch.counters.scanned for batch in others),
            sum(batch.seconds for batch in others),
        )
        first = self.findings.messages - flow.messages
        self.findings.rates.append(Rate("pipeline, first batch", first, seconds - flow.seconds))
        if others:
            self.findings.rates.append(flow)

    @contextmanager
    def start_subscribers(self, database: Database) -> Iterator[Callable[[], None]]:
        """Start a consumer of disputes and a push subscriber; the result waits until both have all their messages."""
        clerk, pager = Inbox(), Inbox()
        disputes = database.queue(
            "disputes", filter_headers=["type", "region", "amount"], archive=True
        )
        condition = cast.CLERK.filter.partition(" AND ")[2]
        database.add_callback("orders.eu.#", pager.put, id="pager")
        with disputes.consumer(lambda delivery: clerk.put(delivery.message), filter=condition):

            def wait() -> None:
                messages = messages_of(self._bursts)
                for subscriber, inbox in ((cast.CLERK, clerk), (cast.PAGER, pager)):
                    awaited = select_payloads(messages, subscriber, lambda: None)
                    inbox.wait_for(len(awaited), _PATIENCE_S)
                    self.got[subscriber] = inbox.payloads

            yield wait

    def collect_routed(self) -> None:
        for subscriber in (cast.EU_LARGE, cast.FULFILMENT, cast.UNROUTED):
            self.got[subscriber] = _payloads(self.directory / subscriber.name)
        self.got[cast.EXPRESS] = _parquet_payloads(self.directory / "express")
        with connect(f"sqlite:///{self.directory}/shop.db") as database:
            disputes = database.find("disputes")
            found = [*disputes.browse(), *disputes.archived()]
            self.got[cast.DISPUTES] = [one.message.payload for one in found]

    def read(self, state: str) -> None:
        with Stream.open(self.orders) as stream, self.step(f"read {state}"):
            for subscriber in cast.READERS:
                began = time.perf_counter()
                scan = stream.scan(subscriber.filter, columns=["payload"])
                found = [value for batch in scan for value in batch.column("payload").to_pylist()]
                seconds = time.perf_counter() - began
                self.findings.skipped.append(
                    Skipped(subscriber.name, subscriber.filter, state, scan.stats, seconds)
                )
                self.got[subscriber._replace(way=f"{state} stream")] = found

    def seal(self) -> None:
        with Stream.open(self.orders) as stream, self.step("seal", self.findings.messages):
            stream.seal(all=True)
        self.findings.sizes["sealed"] = _size(self.orders)

    def compact(self, spark: SparkSession) -> None:
        from headgate.spark.jobs import compact

        with self.step("compact", self.findings.messages):
            compact(spark, self.orders)
        self.findings.sizes["Parquet"] = _size(self.orders)

    def replay(self, spark: SparkSession) -> None:
        from headgate.spark.jobs import replay

        target = self.directory / "replayed"
        with self.step("replay", self.findings.messages):
            replay(spark, self.orders, cast.REPLAYED.filter, f"stream:{target}")
        self.got[cast.REPLAYED] = _payloads(target)

    # ---- the reference

    def compare(self, advance: Advance) -> None:
        """Compare every list of received payloads with the reference."""
        messages = messages_of(self._bursts)
        routed = {who: select_payloads(messages, who, advance) for who in cast.ROUTED}
        known: dict[str, Payloads] = {who.filter: found for who, found in routed.items()}
        known[cast.UNROUTED.filter] = left_over(messages, routed.values())
        for subscriber, got in self.got.items():
            if subscriber.filter not in known:
                known[subscriber.filter] = select_payloads(messages, subscriber, advance)
            reference = known[subscriber.filter]
            self.findings.received.append(
                Received(
                    subscriber.name, subscriber.way, subscriber.filter,
                    len(reference), len(got), sorted(reference) == sorted(got),
                )
            )  # fmt: skip

    @contextmanager
    def step(self, name: str, messages: int | None = None) -> Iterator[None]:
        """Announce a step, and record how long it takes if it is to be shown."""
        self.announce(name)
        began = time.perf_counter()
        yield
        if messages is not None:
            self.findings.rates.append(Rate(name, messages, time.perf_counter() - began))


class Inbox:
    """The payloads a subscriber was called with."""

    def __init__(self) -> None:
        self.payloads: Payloads = []
        self._arrived = threading.Condition()

    def put(self, message: Message) -> None:
        with self._arrived:
            self.payloads.append(message.payload)
            self._arrived.notify_all()

    def wait_for(self, count: int, seconds: float) -> None:
        with self._arrived:
            self._arrived.wait_for(lambda: len(self.payloads) >= count, seconds)


def _payloads(stream: Path) -> Payloads:
    with Stream.open(stream) as opened:
        scan = opened.scan(columns=["payload"])
        return [value for batch in scan for value in batch.column("payload").to_pylist()]


def _parquet_payloads(folder: Path) -> Payloads:
    found: Payloads = pq.read_table(folder, columns=["payload"]).column("payload").to_pylist()
    return found


def _size(directory: Path) -> int:
    """The size of all data files."""
    data = (".log", ".idx", ".arrow", ".parquet")
    return sum(path.stat().st_size for path in directory.rglob("*") if path.suffix in data)


# ---- the reference -----------------------------------------------------------------------------------


def messages_of(batches: Iterable[pa.RecordBatch]) -> list[Message]:
    """Make messages of the order columns, without a stream in between."""
    return [
        Message(
            row["payload"],
            topic=row["topic"],
            timestamp=row["timestamp"],
            headers={
                header_of(name): value
                for name, value in row.items()
                if is_header_column(name) and value is not None
            },
        )
        for batch in batches
        for row in batch.to_pylist()
    ]


def select_payloads(
    messages: Sequence[Message], subscriber: Subscriber, advance: Advance
) -> Payloads:
    """The payloads of the messages that match, in order."""
    tree = parse(subscriber.filter)
    found = [message.payload for message in messages if matches_filter(tree, message)]
    advance()
    return found


def left_over(messages: Sequence[Message], routed: Iterable[Payloads]) -> Payloads:
    """The payloads that are in none of the lists."""
    taken = {payload for payloads in routed for payload in payloads}
    return [message.payload for message in messages if message.payload not in taken]
