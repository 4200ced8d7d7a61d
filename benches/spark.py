"""The cost of the data pipeline on Spark: reads with a filter, routing, the latency of a stream, and growth.

    python benches/spark.py [--quick] [--seed N] [--json PATH] [--only PART] [--directory PATH] [--master URL]

Every figure is compared with an alternative on equal data in one session: Spark's own filter on our source, native Parquet
with pushdown and Bloom filters, a row UDF. Besides the elapsed time, the CPU time of the whole tree of processes (driver,
JVM, Python workers) is printed in seconds per million rows: on a shared machine only that is reliable, and ratios are
printed for both. Each query runs once before it is measured, and the best of some rounds counts.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil
from figures import RATE, Figure, Recorder, at_least, at_most
from orders import WORDS, Data, fill
from reports import options, recorded

from headgate.message import Message
from headgate.pipelines.account import Account
from headgate.pipelines.definition import Pipeline, Sink, StreamSource
from headgate.routing.topology import Topology
from headgate.spark.datasource import HeadgateSource
from headgate.spark.java import find_java
from headgate.spark.pipeline.run import follow, start
from headgate.spark.sessions import session
from headgate.streams.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "region string, type string, amount long, payload binary"
QUEUES = 100
BINDINGS = 1_000


class Cost(NamedTuple):
    """The elapsed time and the CPU time of a run."""

    wall: float
    cpu: float


class Rate(NamedTuple):
    """Rows a second, and the CPU time of a row."""

    figure: Figure
    cpu_of_row: float


class Bench(Recorder):
    def __init__(self, spark: SparkSession, data: Data, place: Path, quick: bool) -> None:
        super().__init__("spark")
        self.spark, self.data, self.place, self.quick = spark, data, place, quick
        self.rounds = 3 if quick else 5
        self.rows = 1_000_000 if quick else 10_000_000
        self._streams: dict[int, Path] = {}

    def stream(self, rows: int) -> Path:
        """A sealed stream of that many orders, clustered by region; created once."""
        if rows not in self._streams:
            print(f"  making a stream of {rows:,} messages …", flush=True)
            path = self.place / f"orders-{rows}"
            with fill(path, self.data.orders(rows), indexed=["region"]) as made:
                made.seal(all=True)
            self._streams[rows] = path
        return self._streams[rows]

    def best(self, work: Callable[[], object]) -> Cost:
        work()
        rounds = [cost_of(work) for _ in range(self.rounds)]
        return Cost(min(r.wall for r in rounds), min(r.cpu for r in rounds))

    def rate(self, name: str, cost: Cost, rows: int, least: float = 0, note: str = "") -> Rate:
        bound = at_least(least) if least else None
        note = f"{cost.wall:.2f} s  {1e6 * cost.cpu / rows:.2f} CPU-s/M  {note}"
        return Rate(self.add(name, rows / cost.wall, RATE, bound, note=note), cost.cpu / rows)

    def beside(self, ours: Rate, theirs: Rate, least: float) -> None:
        peer = theirs.figure.name.rpartition(": ")[2]
        note = f"{theirs.cpu_of_row / ours.cpu_of_row:.2f} × by CPU"
        self.versus(ours.figure, peer, theirs.figure.value, at_least(least), note=note)


def cost_of(work: Callable[[], object]) -> Cost:
    wall, cpu = time.perf_counter(), tree_cpu()
    work()
    return Cost(time.perf_counter() - wall, max(tree_cpu() - cpu, 1e-9))


class TreeCpu(threading.Thread):
    """CPU seconds of this process and all below it: JVM and Python workers, those that are gone too.

    Looked at several times a second: what a process used after the last look before its end is lost.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._used: dict[tuple[int, float], float] = {}
        self._looking = threading.Lock()

    def run(self) -> None:
        while True:
            self.seconds()
            time.sleep(0.2)

    def seconds(self) -> float:
        with self._looking:
            for process in tree():
                try:
                    times = process.cpu_times()
                    self._used[process.pid, process.create_time()] = times.user + times.system
                except psutil.Error:
                    continue
            return sum(self._used.values())


_TREE = TreeCpu()
tree_cpu = _TREE.seconds


def tree() -> Iterator[psutil.Process]:
    me = psutil.Process()
    yield me
    yield from me.children(recursive=True)


def driver_bytes() -> int:
    """The memory of the driver: this process and its JVM."""
    total = 0
    for process in tree():
        with suppress(psutil.NoSuchProcess):  # a worker that ended meanwhile
            if process.pid == os.getpid() or "java" in process.name():
                total += process.memory_info().rss
    return total


# ---- reading -----------------------------------------------------------------------------------------


def bench_read(bench: Bench) -> None:
    rows, path = bench.rows, bench.stream(bench.rows)
    bench.part(f"Read: {rows:,} messages, sealed, clustered by region")
    parquet = unsorted_parquet(bench, rows)

    def native() -> DataFrame:  # created again for each query, as ours is
        return bench.spark.read.parquet(parquet)

    one_percent = "amount < 50"
    cost = bench.best(lambda: consume(orders(bench, path, one_percent)))
    ours = bench.rate("1 % matches: our filter", cost, rows, note=one_percent)
    cost = bench.best(lambda: consume(orders(bench, path).where(one_percent)))
    theirs = bench.rate("1 % matches: Spark's filter on our source", cost, rows)
    cost = bench.best(lambda: consume(native().where(one_percent)))
    columnar = bench.rate("1 % matches: Parquet, pushdown and Bloom filters", cost, rows)
    bench.beside(ours, theirs, 2)
    bench.beside(ours, columnar, 1)

    rare = "region = 'v0007'"
    cost = bench.best(lambda: consume(orders(bench, path, rare)))
    ours = bench.rate("1 in 1,000 matches: our filter", cost, rows, note=rare)
    cost = bench.best(lambda: consume(native().where(rare)))
    columnar = bench.rate("1 in 1,000 matches: Parquet, unsorted", cost, rows)
    bench.beside(ours, columnar, 5)
    shutil.rmtree(parquet)


def orders(bench: Bench, path: Path, filter: str = "") -> DataFrame:
    reader = bench.spark.read.format("headgate").schema(SCHEMA)
    return (reader.option("filter", filter) if filter else reader).load(str(path))


def unsorted_parquet(bench: Bench, rows: int) -> str:
    """That many orders in publishing order, written by Spark."""
    hot, place = bench.place / "hot", str(bench.place / "parquet")
    fill(hot, bench.data.orders(rows)).close()
    write = orders(bench, hot).write.mode("overwrite")
    write.option("parquet.bloom.filter.enabled#region", "true").parquet(place)
    shutil.rmtree(hot)
    return place


def consume(frame: DataFrame) -> object:
    return frame.selectExpr("count(*)", "sum(amount)", "sum(length(payload))").collect()


# ---- routing -----------------------------------------------------------------------------------------


def topology_of(bindings: int, queues: int = QUEUES) -> Topology:
    """Bindings with two headers each, every fifth also with a filter."""
    made = Topology()
    made.declare_exchange("orders", "headers")
    for number in range(queues):
        made.declare_queue(f"q{number}")
    for number in range(bindings):
        made.bind(
            "orders",
            queue=f"q{number % queues}",
            arguments={"region": WORDS[number % len(WORDS)], "type": "abcd"[number // 7 % 4]},
            filter=f"amount > {number % 1000}" if number % 5 == 0 else None,
        )
    return made


def pipeline(bench: Bench, path: Path, topology: Topology, to: str, name: str) -> Pipeline:
    return Pipeline(
        file=bench.place / f"{name}.toml",
        name=name,
        source=StreamSource((str(path),)),
        exchange="orders",
        sinks=tuple(Sink(queue, to.format(queue)) for queue in topology.queues),
        checkpoint=bench.place / "checkpoints" / name,
        topology=topology,
        max_messages_per_trigger=-(-Stream.open(path).next_offset // 4) or None,
    )


def run_pipeline(
    bench: Bench, path: Path, topology: Topology, to: str
) -> tuple[Cost, Account, int]:
    """The time of the batches of a new pipeline, without the first of four; and their rows."""
    name = f"p{time.monotonic_ns()}"
    made, account, seconds = pipeline(bench, path, topology, to, name), Account(name), 0.0
    cpu, rows = 0.0, 0
    for fresh in follow(start(made, bench.spark, "once"), account, lambda: False, poll_s=0.05):
        for batch in fresh:
            if batch.number == 0:
                cpu = tree_cpu()
            else:
                seconds, rows = seconds + batch.seconds, rows + batch.counters.scanned
    return Cost(seconds, tree_cpu() - cpu), account, rows


def bench_route(bench: Bench) -> None:
    rows, path = bench.rows, bench.stream(bench.rows)
    bench.part(f"Route: {rows:,} messages, {BINDINGS:,} bindings, {QUEUES} queues")
    run_pipeline(bench, bench.stream(100_000), topology_of(BINDINGS), "none:")
    cost, account, part = run_pipeline(bench, path, topology_of(BINDINGS), "none:")
    assert account.counters.read == rows, account
    routed = f"{account.counters.routed / rows:.0%} routed"
    bench.rate("routed, into a sink that keeps nothing", cost, part, 1e6, routed)
    out = bench.place / "out"
    cost, _, part = run_pipeline(bench, path, topology_of(BINDINGS), f"stream:{out}/{{}}")
    ours = bench.rate("routed, into 100 streams", cost, part)
    cost, few = row_udf(bench, path, min(rows, 200_000))
    bench.beside(ours, bench.rate("a row UDF, into one stream", cost, few), 5)
    shutil.rmtree(out)


def row_udf(bench: Bench, path: Path, rows: int) -> tuple[Cost, int]:
    """The routing of a pipeline with a pickled row at a time; all queues go to one stream, which is easier."""
    from pyspark.sql import functions

    topology = topology_of(BINDINGS)

    def queues(region: str, type_: str, amount: int) -> list[str]:
        headers = {"region": region, "type": type_, "amount": amount}
        return list(topology.route("orders", Message(b"", "", headers)).queues)

    route = functions.udf(queues, "array<string>", useArrow=False)
    reader = bench.spark.read.format("headgate").schema(SCHEMA).option("endingOffset", str(rows))
    routed = reader.load(str(path)).select(
        "*", functions.explode(route("region", "type", "amount"))
    )
    place = bench.place / "by-row"
    cost = bench.best(lambda: routed.write.format("headgate").mode("append").save(str(place)))
    shutil.rmtree(place)
    return cost, rows


def bench_sift(bench: Bench) -> None:
    """What most pipelines do: of many messages a few are wanted, and the bindings alone say which.

    Both sides run whole in one session, in turns: from the start of a new query to the end, when all is stored.
    """
    rows, path = bench.rows, bench.stream(bench.rows)
    bench.part(f"Sift: {rows:,} messages, 5 % match, in one session")
    few = "amount < 250"
    parquet, copy = unsorted_parquet(bench, rows), str(bench.place / "copy")

    def plain() -> None:
        bench.spark.read.parquet(parquet).where(few).write.mode("overwrite").parquet(copy)

    ours, theirs = in_turns(bench, lambda: sift(bench, path, few), plain)
    whole = bench.rate("pipeline, stream to stream", ours, rows, note="the bindings in the scan")
    bench.beside(whole, bench.rate("Spark, Parquet to Parquet", theirs, rows), 1.5)
    ours, theirs = in_turns(
        bench,
        lambda: consume(orders(bench, path, few)),
        lambda: consume(bench.spark.read.parquet(parquet).where(few)),
    )
    read = bench.rate("read", ours, rows)
    bench.beside(read, bench.rate("read: Parquet, pushdown", theirs, rows), 2.5)
    shutil.rmtree(parquet)


def in_turns(
    bench: Bench, ours: Callable[[], object], theirs: Callable[[], object]
) -> tuple[Cost, Cost]:
    """The median costs of both in as many rounds; two more rounds before let the JVM compile what they use."""
    costs = [(cost_of(ours), cost_of(theirs)) for _ in range(bench.rounds + 2)][2:]
    return middle([mine for mine, _ in costs]), middle([other for _, other in costs])


def sift(bench: Bench, path: Path, filter: str) -> None:
    """Run a new pipeline from its start to its end; all messages are one batch."""
    name = f"p{time.monotonic_ns()}"
    out, account = bench.place / name, Account(name)
    made = pipeline(bench, path, sifter(filter), f"stream:{out}/{{}}", name)
    made = replace(made, max_messages_per_trigger=None)
    for _ in follow(start(made, bench.spark, "once"), account, lambda: False, poll_s=0.05):
        pass
    assert 0 < account.counters.read == account.counters.routed, account
    shutil.rmtree(out)


def sifter(filter: str) -> Topology:
    """One queue that wants what the filter says."""
    made = Topology()
    made.declare_exchange("orders", "filter")
    made.declare_queue("few")
    made.bind("orders", queue="few", filter=filter)
    return made


# ---- a whole command ---------------------------------------------------------------------------------

COMMAND = """
[pipeline]
name = "whole"
checkpoint = "{folder}/checkpoint"
[source]
stream = "{stream}"
filter = "{filter}"
[[exchange]]
name = "orders"
type = "fanout"
[[binding]]
from = "orders"
queue = "rare"
[[sink]]
queue = "rare"
to = "parquet:{folder}/out"
"""
PLAIN = """
import sys
from pyspark.sql import SparkSession
source, target, filter = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.read.parquet(source).where(filter).write.parquet(target)
spark.stop()
"""


def bench_command(bench: Bench) -> None:
    """Programs of their own, in turns, from their start to their end; the first of each fills caches and does not count."""
    filter = "amount < 250"
    for rows in (1_000, 100_000, 500_000):
        bench.part(f"Command: {rows:,} messages, 5 % match, to Parquet, in a process of its own")
        stream, parquet = bench.stream(rows), unsorted_parquet(bench, rows)
        ours, theirs = [], []
        for _ in range(bench.rounds + 1):
            ours.append(cost_of(lambda stream=stream: run_command(bench.place, stream, filter)))
            theirs.append(cost_of(lambda parquet=parquet: run_plain(bench.place, parquet, filter)))
        wall, cpu = middle(ours[1:])
        plain_wall, plain_cpu = middle(theirs[1:])
        figure = bench.add(
            f"headgate pipeline run --once, {rows:,}", wall, "s", note=f"{cpu:.1f} CPU-s"
        )
        bench.versus(
            figure,
            "plain Spark, Parquet to Parquet",
            plain_wall,
            at_least(1 / 0.7),
            note=f"{plain_cpu / cpu:.2f} × by CPU",
        )
        shutil.rmtree(parquet)


def middle(costs: list[Cost]) -> Cost:
    return Cost(*(statistics.median(column) for column in zip(*costs, strict=True)))


def run_command(place: Path, stream: Path, filter: str) -> None:
    folder = place / "command"
    folder.mkdir()
    file = folder / "pipeline.toml"
    file.write_text(COMMAND.format(folder=folder, stream=stream, filter=filter))
    program = "from headgate.cli import main; main()"
    options = ["pipeline", "run", str(file), "--once", "--json", "--master", "local[2]"]
    run_program(program, *options)
    assert any((folder / "out").glob("*.parquet"))
    shutil.rmtree(folder)


def run_plain(place: Path, parquet: str, filter: str) -> None:
    folder = place / "plain"
    run_program(PLAIN, parquet, str(folder), filter)
    assert any(folder.glob("*.parquet"))
    shutil.rmtree(folder)


def run_program(text: str, *arguments: str) -> None:
    """Run a Python program to its end; Spark's own needs JAVA_HOME."""
    environ = {**os.environ, "JAVA_HOME": str(find_java().home)}
    command = [sys.executable, "-c", text, *arguments]
    subprocess.run(
        command, check=True, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


# ---- the delay of a stream ---------------------------------------------------------------------------


def bench_floor(bench: Bench) -> None:
    seconds, rate = (15, 2_000) if bench.quick else (60, 2_000)
    bench.part(f"Delay: {rate:,} messages a second, stream → route → stream, as fast as it goes")
    path, out = bench.place / "live", bench.place / "live-out"
    source = Stream.create(path)
    name = f"live{time.monotonic_ns()}"
    made = pipeline(bench, path, topology_of(BINDINGS), f"stream:{out}/{{}}", name)
    made.topology.declare_queue("all")
    made.topology.bind("orders", queue="all")
    kept = Sink("all", f"stream:{out}/all")
    made = replace(made, sinks=(kept, *(Sink(f"q{n}", "none:") for n in range(QUEUES))))
    query = start(made, bench.spark, "continuous")
    late: list[float] = []
    with source.producer() as producer:
        _send(producer, rate, 5)  # until everything that is compiled when it is first used is
        query.processAllAvailable()
        warm = query.lastProgress.batchId
        tail = threading.Thread(target=_delays, args=(out / "all", late), daemon=True)
        tail.start()
        cpu, begun = tree_cpu(), time.monotonic()
        _send(producer, rate, seconds)
        used, took = tree_cpu() - cpu, time.monotonic() - begun
    reports = [report for report in query.recentProgress if report.batchId > warm]
    tail.join()
    query.stop()
    source.close()
    batches = [report.durationMs["triggerExecution"] / 1000 for report in reports]
    note = f"{used / took:.2f} CPUs; {len(late):,} messages"
    for name, waits in (("from sent to seen in the other stream", late), ("a trigger", batches)):
        p50, p99 = statistics.median(waits), statistics.quantiles(waits, n=100)[98]
        bench.add(f"{name}, p50", p50, "s", at_most(0.2), note=note)
        bench.add(f"{name}, p99", p99, "s", at_most(0.4))


def _send(producer: object, rate: int, seconds: float) -> None:
    begun, sent = time.monotonic(), 0
    while sent < rate * seconds:
        now = time.time_ns()
        some = [Message(b"x" * 100, headers={"region": WORDS[n], "sent": now}) for n in range(20)]
        producer.publish_many(some)  # type: ignore[attr-defined]
        sent += len(some)
        time.sleep(max(0.0, begun + sent / rate - time.monotonic()))


def _delays(path: Path, late: list[float]) -> None:
    idle = timedelta(seconds=3)  # then all has come
    for message in Stream.open(path).consume(start="next", follow=True, timeout=idle):
        late.append((time.time_ns() - message.headers["sent"]) / 1e9)  # type: ignore[operator]


# ---- growth ------------------------------------------------------------------------------------------


def bench_growth(bench: Bench) -> None:
    sizes = (100_000, 1_000_000) if bench.quick else (1_000_000, 10_000_000, 30_000_000)
    bench.part("Growth: time, and memory of the driver (this process and its JVM)")
    grown = []
    for rows in sizes:
        path = bench.stream(rows)
        rare = bench.best(lambda path=path: consume(orders(bench, path, "region = 'v0007'")))
        bench.rate(f"rare value, {rows:,} messages", rare, rows, note=_driver())
        routed, _, part = run_pipeline(bench, path, topology_of(BINDINGS), "none:")
        bench.rate(f"routed, {rows:,} messages", routed, part, note=_driver())
        bench.add(f"driver's memory, {rows:,} messages", driver_bytes() >> 20, "MiB")
        grown.append(Grown(rows, rare, routed, part, driver_bytes()))
    path = bench.stream(sizes[1])
    bound = []
    for bindings in (100, 10_000):
        cost, _, part = run_pipeline(bench, path, topology_of(bindings), "none:")
        bench.rate(f"routed, {bindings:,} bindings", cost, part, note=_driver())
        bound.append(cost.cpu / part)
    for line in limits(grown[0], grown[-1], bound[1] / bound[0]):
        print(f"  {line}", flush=True)


class Grown(NamedTuple):
    """The results for a stream of one size."""

    rows: int
    rare: Cost
    routed: Cost
    part: int  # the messages that were routed
    memory: int


def limits(small: Grown, large: Grown, more_bindings: float) -> Iterator[str]:
    """What limits growth, by these figures."""
    times = large.rows / small.rows
    cores = os.cpu_count() or 1
    busy = large.routed.cpu / (large.routed.wall * cores)
    limit = (
        "the processors" if busy > 0.7 else "something else than the processors: disk, or waiting"
    )
    yield f"{times:.0f} × the messages: a rare value takes {large.rare.wall / small.rare.wall:.1f} × as long"
    yield f"and the driver {large.memory / small.memory:.2f} × the memory; 100 × the bindings {more_bindings:.1f} × the CPU."
    yield (
        f"What limits routing is {limit}: {cores} cores were {busy:.0%} busy, "
        f"{1e6 * large.routed.cpu / large.part:.2f} CPU-s for a million."
    )


def _driver() -> str:
    return f"driver {driver_bytes() >> 20:,} MiB"


PARTS = {
    "read": bench_read,
    "route": bench_route,
    "sift": bench_sift,
    "command": bench_command,
    "floor": bench_floor,
    "growth": bench_growth,
}


def main() -> None:
    parser = options(__doc__, seed=3, parts=PARTS)
    parser.add_argument("--directory", type=Path, help="where the streams go, for a while")
    parser.add_argument("--master", default="local[2]", help="where Spark runs")
    arguments = parser.parse_args()
    _TREE.start()
    with (
        running(arguments.master) as spark,
        tempfile.TemporaryDirectory(dir=arguments.directory) as place,
    ):
        bench = Bench(spark, Data(arguments.seed), Path(place), arguments.quick)
        with recorded(bench, arguments):
            for name in arguments.only or PARTS:
                PARTS[name](bench)


@contextmanager
def running(master: str) -> Iterator[SparkSession]:
    spark = session("headgate bench", master)
    spark.dataSource.register(HeadgateSource)
    try:
        yield spark
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
