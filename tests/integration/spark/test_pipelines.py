"""Pipelines on Spark: what arrives where is what the topology says, message by message, each exactly once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from textwrap import dedent
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headgate
from headgate.errors import CheckpointLocked, PipelineError, SparkError
from headgate.filters.logic import matches_filter
from headgate.filters.parser import parse
from headgate.message import Message
from headgate.pipelines import sources
from headgate.pipelines.account import Account
from headgate.pipelines.file import read_pipeline
from headgate.spark.pipeline import run
from headgate.spark.pipeline.run import follow, start, stop
from headgate.spark.pipeline.source import DESCRIPTORS
from headgate.streams.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PIPELINE = """
    [pipeline]
    max_messages_per_trigger = 700
    [source]
    stream = ["events", "more"]
    filter = "amount >= 100"
    [[exchange]]
    name = "orders"
    type = "headers"
    alternate = "rest"
    [[exchange]]
    name = "rest"
    type = "topic"
    [[exchange]]
    name = "large"
    type = "filter"
    [[binding]]
    queue = "eu-high"
    arguments = { x-match = "all", region = "EU", priority = "HIGH" }
    filter = "amount > 1000"
    [[binding]]
    exchange = "large"
    arguments = { region = "US" }
    [[binding]]
    from = "large"
    queue = "large"
    filter = "amount > 1500"
    [[binding]]
    from = "rest"
    queue = "created"
    key = "orders.*.created"
    [[sink]]
    queue = "eu-high"
    to = "stream:out/eu-high"
    [[sink]]
    queue = "large"
    to = "queue:sqlite:///queues.db"
    [[sink]]
    queue = "created"
    to = "parquet:out/created"
    [dead_letter]
    to = "stream:out/lost"
"""


def messages(rng: Random, name: str, count: int) -> list[Message]:
    return [
        Message(
            f"{name}-{n}".encode(),
            topic=rng.choice(["orders.eu.created", "orders.us.paid", "audit"]),
            headers={
                "region": rng.choice(["EU", "US", "AP"]),
                "priority": rng.choice(["HIGH", "LOW"]),
                "amount": rng.randrange(2000),
            },
        )
        for n in range(count)
    ]


def publish(path: Path, sent: Iterable[Message], *, seal: bool = False) -> None:
    stream = Stream.open(path) if path.exists() else Stream.create(path, indexed=["region"])
    with stream:
        with stream.producer() as producer:
            producer.publish_many(list(sent))
        if seal:
            stream.seal(all=True)


def run_once(file: Path, spark: SparkSession) -> Account:
    pipeline = read_pipeline(file)
    account = Account(pipeline.name)
    for _ in follow(start(pipeline, spark, "once"), account, lambda: False, poll_s=0.02):
        pass
    return account


def in_stream(path: Path) -> list[str]:
    with Stream.open(path) as stream:
        return [message.payload.decode() for message in stream.consume()]


def in_queue(url: str, queue: str) -> list[str]:
    with headgate.connect(url) as database:
        return [delivery.message.payload.decode() for delivery in database.queue(queue).browse()]


def in_parquet(folder: Path) -> list[str]:
    files = sorted(folder.glob("*.parquet"))
    return [p.decode() for file in files for p in pq.read_table(file)["payload"].to_pylist()]


def test_bindings_in_the_scan_change_nothing_but_what_is_read(
    tmp_path: Path, spark: SparkSession, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same pipeline with and without them: equal messages in equal order at every place."""
    text = dedent(PIPELINE).partition("[dead_letter]")[0]
    accounts, places = [], []
    for name, pushed in (("with", True), ("without", False)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "p.toml").write_text(text)
        rng = Random(seed)
        publish(folder / "events", messages(rng, "events", 1000), seal=True)
        publish(folder / "more", messages(rng, "more", 1000))
        if not pushed:
            monkeypatch.setattr(run, "wanted_filter", lambda pipeline, source: source.filter)
        accounts.append(run_once(folder / "p.toml", spark).counters)
        places.append(
            (
                in_stream(folder / "out/eu-high"),
                in_queue(f"sqlite:///{folder}/queues.db", "large"),
                in_parquet(folder / "out/created"),
            )
        )
    assert places[0] == places[1]
    assert all(map(len, places[0]))
    pushed, plain = accounts
    assert (pushed.scanned, pushed.routed, pushed.queues) == (
        plain.scanned,
        plain.routed,
        plain.queues,
    )
    assert pushed.read < plain.read
    assert pushed.read - pushed.routed < 0.2 * (plain.read - plain.routed)


def test_a_table_has_typed_columns_and_folders_that_spark_reads_and_few_files(
    tmp_path: Path, spark: SparkSession, seed: int
) -> None:
    file = tmp_path / "p.toml"
    file.write_text(
        dedent("""
        [pipeline]
        max_messages_per_trigger = 100
        [source]
        stream = "events"
        [exchange]
        type = "headers"
        [[binding]]
        queue = "all"
        [[sink]]
        queue = "all"
        to = "parquet:out/orders"
        schema = "topic string, region string, amount long, payload binary"
        partition_by = ["region", "day(timestamp)"]
        compact_after = 3
        """)
    )
    sent = messages(Random(seed), "events", 500)
    publish(tmp_path / "events", sent)
    run_once(file, spark)
    rows = spark.read.parquet(str(tmp_path / "out/orders"))
    assert dict(rows.dtypes) == {
        "topic": "string",
        "amount": "bigint",
        "payload": "binary",
        "region": "string",
        "day": "date",
    }
    found = {(bytes(row.payload), row.topic, row.region, row.amount) for row in rows.collect()}
    assert found == {(m.payload, m.topic, m.headers["region"], m.headers["amount"]) for m in sent}
    assert rows.count() == len(sent)
    for folder in (tmp_path / "out/orders").glob("region=*/day=*"):
        assert len(list(folder.glob("*.parquet"))) < 3


def test_every_sink_holds_its_messages_over_many_batches_and_two_runs(
    tmp_path: Path, spark: SparkSession, seed: int
) -> None:
    rng = Random(seed)
    file = tmp_path / "p.toml"
    file.write_text(dedent(PIPELINE))
    sent = {name: messages(rng, name, 1000) for name in ("events", "more")}
    publish(tmp_path / "events", sent["events"], seal=True)
    publish(tmp_path / "more", sent["more"])
    first = run_once(file, spark)
    assert first.batches == 3
    assert first.counters.scanned == 2000

    later = messages(rng, "later", 300)
    publish(tmp_path / "events", later)
    second = run_once(file, spark)
    assert second.counters.scanned == 300
    assert second.lag == 0

    pipeline, asked = read_pipeline(file), parse("amount >= 100")
    every = [m for m in [*sent["events"], *sent["more"], *later] if matches_filter(asked, m, 0)]
    assert first.counters.read + second.counters.read == len(every)
    expected: dict[str, list[str]] = {"eu-high": [], "large": [], "created": [], "lost": []}
    for message in every:
        found = pipeline.topology.route("orders", message).queues
        for queue in found or {"lost"}:
            expected[queue].append(message.payload.decode())
    arrived = {
        "eu-high": in_stream(tmp_path / "out/eu-high"),
        "large": in_queue(f"sqlite:///{tmp_path}/queues.db", "large"),
        "created": in_parquet(tmp_path / "out/created"),
        "lost": in_stream(tmp_path / "out/lost"),
    }
    assert {q: sorted(got) for q, got in arrived.items()} == {
        q: sorted(wanted) for q, wanted in expected.items()
    }
    for name in ("events-", "more-"):  # every source's messages keep their order
        got = [payload for payload in arrived["lost"] if payload.startswith(name)]
        assert got == [payload for payload in expected["lost"] if payload.startswith(name)]
    first.counters.add(second.counters)
    assert first.counters.queues == {q: len(expected[q]) for q in ("eu-high", "large", "created")}
    assert not [f for f in tmp_path.rglob("*.arrow") if "staged" in str(f)]


SHARDS = """
    [pipeline]
    max_messages_per_trigger = 700
    [source]
    stream = "events"
    [[exchange]]
    name = "orders"
    type = "x-consistent-hash"
    arguments = { hash-header = "customer" }
    [[binding]]
    queue = "one"
    key = "1"
    [[binding]]
    exchange = "any"
    key = "2"
    [[exchange]]
    name = "any"
    type = "x-random"
    [[binding]]
    from = "any"
    queue = "two"
    [[binding]]
    from = "any"
    queue = "three"
    [[sink]]
    queue = "one"
    to = "stream:out/one"
    [[sink]]
    queue = "two"
    to = "stream:out/two"
    [[sink]]
    queue = "three"
    to = "stream:out/three"
"""


def test_messages_are_sharded_by_a_hash_and_at_random_each_to_one_place(
    tmp_path: Path, spark: SparkSession
) -> None:
    sent = [Message(f"{n}".encode(), headers={"customer": n % 300}) for n in range(2_000)]
    publish(tmp_path / "events", sent)
    file = tmp_path / "shards.toml"
    file.write_text(dedent(SHARDS))
    assert run_once(file, spark).counters.unroutable == 0
    found = {name: in_stream(tmp_path / "out" / name) for name in ("one", "two", "three")}
    everything = [int(payload) for payloads in found.values() for payload in payloads]
    assert sorted(everything) == list(range(2_000))
    topology = read_pipeline(file).topology
    wanted = [m.payload.decode() for m in sent if "one" in topology.route("orders", m).queues]
    assert sorted(found["one"]) == sorted(wanted)
    assert 400 < len(found["one"]) < 950
    assert 400 < len(found["two"]) < 950


def test_a_source_that_spark_reads_is_routed_by_its_columns(
    tmp_path: Path, spark: SparkSession
) -> None:
    rows = [
        {"kind": f"orders.{region.lower()}", "body": f"b{n}", "at": {"region": region}, "amount": n}
        for n, region in enumerate(["EU", "US", "AP"] * 20)
    ]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "p.toml").write_text(
        dedent("""
        [source]
        format = "json"
        path = "in"
        schema = "kind string, body string, at struct<region: string>, amount long"
        columns = { topic = "kind", payload = "body" }
        headers = { region = "at.region", amount = "amount" }
        filter = "amount >= 6"
        [exchange]
        type = "topic"
        [[binding]]
        queue = "eu"
        key = "orders.eu"
        filter = "region = 'EU' AND amount < 40"
        [[sink]]
        queue = "eu"
        to = "stream:eu"
        [dead_letter]
        to = "stream:lost"
        """)
    )
    account = run_once(tmp_path / "p.toml", spark)
    eu = [r for r in rows if r["amount"] >= 6 and r["at"]["region"] == "EU" and r["amount"] < 40]
    with Stream.open(tmp_path / "eu") as stream:
        arrived = list(stream.consume())
    assert [(m.topic, m.payload.decode(), dict(m.headers)) for m in arrived] == [
        (r["kind"], r["body"], {"region": "EU", "amount": r["amount"]}) for r in eu
    ]
    assert account.counters.unroutable == 54 - len(eu) == len(in_stream(tmp_path / "lost"))


LINES = """
    [source]
    format = "{format}"
    path = "in"
    schema = "kind string, amount long, ratio double, urgency long"
    columns = {{ topic = "kind", priority = "urgency" }}
    malformed = "{policy}"
    [exchange]
    type = "topic"
    [[binding]]
    queue = "all"
    key = "orders.#"
    [[sink]]
    queue = "all"
    to = "stream:out"
    [dead_letter]
    to = "stream:lost"
"""
GOOD = [b'{"kind": "orders.eu", "amount": 1, "ratio": 0.5}', b'{"kind": "orders.us", "amount": 2}']
BAD = [
    b'{"kind": "orders.eu", "amount": 3',
    b'{"kind": "orders.eu", "amount": "three"}',
    b"not json at all \xff\x80",
]
INVALID = [
    b'{"kind": "orders.eu", "amount": 4, "ratio": NaN}',
    b'{"kind": "orders.eu", "amount": 5, "urgency": 99999999999}',
]


def write_lines(tmp_path: Path, policy: str, format: str = "json", *lines: bytes) -> Path:
    (tmp_path / "in").mkdir()
    content = lines or [GOOD[0], *BAD, *INVALID, GOOD[1]]
    (tmp_path / "in" / f"a.{format}").write_bytes(b"\n".join(content))
    (tmp_path / "p.toml").write_text(dedent(LINES.format(policy=policy, format=format)))
    return tmp_path / "p.toml"


def test_a_malformed_record_is_a_dead_letter_with_its_own_bytes_and_the_reason(
    tmp_path: Path, spark: SparkSession
) -> None:
    account = run_once(write_lines(tmp_path, "dead-letter"), spark)
    with Stream.open(tmp_path / "out") as stream:
        assert [message.headers["amount"] for message in stream.consume()] == [1, 2]
    with Stream.open(tmp_path / "lost") as stream:
        letters = list(stream.consume())
    assert [letter.payload for letter in letters[:3]] == BAD
    reasons = [str(letter.headers["malformed"]) for letter in letters]
    assert reasons[0] == "cannot be parsed with the schema"
    assert "NaN" in reasons[3]
    assert "priority" in reasons[4]
    assert [json.loads(letter.payload)["amount"] for letter in letters[3:]] == [4, 5]
    counted = account.counters
    assert (counted.malformed, counted.read, counted.unroutable) == (5, 2, 0)


def test_a_malformed_line_of_csv_is_a_dead_letter_too(tmp_path: Path, spark: SparkSession) -> None:
    good, bad = b"orders.eu,1,0.5,3", [b"orders.eu,one,0.5,3", b"orders.eu,1", b"o,1,2,3,4"]
    account = run_once(write_lines(tmp_path, "dead-letter", "csv", good, *bad), spark)
    assert in_stream(tmp_path / "lost") == [line.decode() for line in bad]
    assert (account.counters.malformed, account.counters.routed) == (3, 1)


def test_a_malformed_record_ends_the_run_or_is_dropped_by_policy(
    tmp_path: Path, spark: SparkSession
) -> None:
    file = write_lines(tmp_path, "fail")
    with pytest.raises(SparkError, match=r"cannot be parsed with the schema: b'.*in \[source\]"):
        run_once(file, spark)
    file.write_text(file.read_text().replace('"fail"', '"drop"'))
    assert run_once(file, spark).counters.malformed == 5
    with Stream.open(tmp_path / "out") as stream:
        assert len(list(stream.consume())) == 2
    assert in_stream(tmp_path / "lost") == []


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (
            'format = "kafka"\noptions = { "kafka.bootstrap.servers" = "h:1", subscribe = "t" }',
            "spark.jars.packages=org.apache.spark:spark-sql-kafka",
        ),
        ('format = "rate"\ncolumns = { topic = "kind" }', "format 'rate': .*`kind`"),
        ('format = "text"\npath = "*"\nschema = "a strnig"', "format 'text': .*STRNIG"),
    ],
)
def test_a_source_that_spark_cannot_read_is_refused_before_a_checkpoint_is_created(
    tmp_path: Path, spark: SparkSession, source: str, problem: str
) -> None:
    text = dedent(LINES.format(policy="drop", format="json"))
    rest = text[text.index("[exchange]") :]
    (tmp_path / "p.toml").write_text(f"[source]\n{source}\n{rest}")
    with pytest.raises(PipelineError, match=problem):
        start(read_pipeline(tmp_path / "p.toml"), spark)
    assert [path.name for path in tmp_path.iterdir()] == ["p.toml"]


def test_messages_for_a_queue_are_read_in_several_batches(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "QUEUE_BATCH_MESSAGES", 60)
    monkeypatch.setattr(sources, "QUEUE_BATCH_BYTES", 1)
    write_lines(tmp_path, "drop")
    (tmp_path / "in" / "b.json").write_bytes(GOOD[0])
    file = tmp_path / "p.toml"
    files = file.read_text().replace("stream:out", "queue:sqlite:///queues.db")
    file.write_text(files)
    assert run_once(file, spark).batches == 2  # one file at a time
    publish(tmp_path / "events", messages(Random(1), "events", 100))
    rest = files[files.index("[exchange]") :]
    several = tmp_path / "several.toml"
    several.write_text(
        f'[pipeline]\nmax_bytes_per_trigger = 999999\n[source]\nstream = "events"\n{rest}'
    )
    account = run_once(several, spark)
    assert (account.batches, account.counters.scanned) == (2, 100)


def test_a_python_worker_that_dies_once_costs_a_task_and_not_the_pipeline(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    died = tmp_path / "died"

    def die_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with suppress(FileExistsError):
            os.close(os.open(died, os.O_CREAT | os.O_EXCL))
            os.kill(os.getpid(), signal.SIGKILL)
        yield from batches

    observe_counters = run.observe_counters
    monkeypatch.setattr(
        run,
        "observe_counters",
        lambda rows: observe_counters(rows.mapInArrow(die_once, DESCRIPTORS)),
    )
    publish(tmp_path / "events", messages(Random(1), "events", 100))
    publish(tmp_path / "more", [])
    (tmp_path / "p.toml").write_text(dedent(PIPELINE))
    assert run_once(tmp_path / "p.toml", spark).counters.scanned == 100
    assert died.exists()


def test_a_pipeline_that_cannot_run_is_refused_before_it_creates_files(
    tmp_path: Path, spark: SparkSession
) -> None:
    (tmp_path / "p.toml").write_text(dedent(PIPELINE))
    with pytest.raises(PipelineError, match="2 problems"):
        start(read_pipeline(tmp_path / "p.toml"), spark)
    assert [path.name for path in tmp_path.iterdir()] == ["p.toml"]


SMALL = """
    [pipeline]
    name = "p"
    [source]
    stream = "{stream}"
    {more}
    [exchange]
    type = "topic"
    [[binding]]
    queue = "all"
    key = "#"
    [[sink]]
    queue = "all"
    to = "stream:out"
"""


def small(folder: Path, stream: str = "events", more: str = "") -> Path:
    """A pipeline that copies one stream."""
    (folder / "p.toml").write_text(dedent(SMALL.format(stream=stream, more=more)))
    return folder / "p.toml"


def test_a_second_driver_on_a_checkpoint_is_refused_until_the_first_ends(
    tmp_path: Path, spark: SparkSession
) -> None:
    publish(tmp_path / "events", [Message(b"%d" % n) for n in range(3)])
    file = small(tmp_path)
    first = start(read_pipeline(file), spark, "continuous")
    try:
        with pytest.raises(CheckpointLocked, match=f"in use by another driver .pid {os.getpid()}"):
            run_once(file, spark)
        first.processAllAvailable()
        assert first.isActive
    finally:
        stop(first)
    run_once(file, spark)
    unfollowed = start(read_pipeline(file), spark, "once")
    assert unfollowed.awaitTermination(60)
    run_once(file, spark)
    assert in_stream(tmp_path / "out") == ["0", "1", "2"]


def test_a_stream_or_folder_that_is_spelled_differently_goes_on_where_it_stood(
    tmp_path: Path, spark: SparkSession
) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    publish(tmp_path / "events", [Message(b"%d" % n) for n in range(3)])
    run_once(small(tmp_path), spark)
    publish(tmp_path / "events", [Message(b"3")])
    run_once(small(tmp_path, "link/events/"), spark)
    run_once(small(tmp_path, f"file://{tmp_path}/events"), spark)
    assert in_stream(tmp_path / "out") == ["0", "1", "2", "3"]


def test_a_folder_of_files_that_is_spelled_differently_is_not_read_again(
    tmp_path: Path, spark: SparkSession
) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"body": "a"}\n')
    text = 'format = "json"\nschema = "body string"\ncolumns = { payload = "body" }\npath = "PATH"'
    for path, more in (("in", "b"), ("link/in", "c")):
        file = small(tmp_path)
        file.write_text(file.read_text().replace('stream = "events"', text.replace("PATH", path)))
        run_once(file, spark)
        (tmp_path / "in" / f"{more}.json").write_text(f'{{"body": "{more}"}}\n')
    assert in_stream(tmp_path / "out") == ["a", "b"]


def test_messages_deleted_by_retention_end_a_pipeline_unless_its_file_allows_it(
    tmp_path: Path, spark: SparkSession
) -> None:
    with Stream.create(tmp_path / "events", segment_bytes=4096, chunk_messages=10) as stream:
        with stream.producer() as producer:
            producer.publish(Message(b"first"))
        run_once(small(tmp_path), spark)
        with stream.producer() as producer:
            for n in range(400):
                producer.publish(Message(b"%d" % n + b"x" * 50))
                producer.flush()
        stream.trim(before_offset=300)
        first = stream.first_offset
    assert first > 1
    with pytest.raises(SparkError, match=f"offsets 1 to {first - 1} were deleted"):
        run_once(small(tmp_path), spark)
    run_once(small(tmp_path, more="fail_on_data_loss = false"), spark)
    assert len(in_stream(tmp_path / "out")) == 1 + 401 - first


def test_sigterm_ends_a_running_pipeline_cleanly_and_its_metrics_stay(
    tmp_path: Path, seed: int
) -> None:
    sent = messages(Random(seed), "events", 500)
    publish(tmp_path / "events", sent)
    publish(tmp_path / "more", [])
    (tmp_path / "p.toml").write_text(dedent(PIPELINE))
    program = "from headgate.cli import main; main()"
    command = [sys.executable, "-c", program, "pipeline", "run", str(tmp_path / "p.toml")]
    options = ["--continuous", "--json", "--master", "local[1]", "--metrics", str(tmp_path / "m")]
    with subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        line = json.loads(running.stdout.readline())
        running.send_signal(signal.SIGTERM)
        _, complaints = running.communicate(timeout=60)
    assert (running.returncode, complaints) == (0, "")
    assert line["scanned"] == 500
    wanted = [m for m in sent if m.headers["amount"] >= 100]
    assert line["read"] == len(wanted)
    assert (
        f'headgate_pipeline_read_total{{pipeline="p"}} {len(wanted)}'
        in (tmp_path / "m").read_text()
    )


@pytest.mark.postgres
def test_two_sinks_that_spell_one_database_differently_both_deliver(
    tmp_path: Path, spark: SparkSession, postgres_url: str
) -> None:
    url = f"{postgres_url}&schema=s_{uuid.uuid4().hex[:12]}"
    other = url.replace("postgresql://", "postgres://") + "&application_name=other"
    file = tmp_path / "p.toml"
    file.write_text(
        dedent(f"""
        [source]
        stream = "events"
        [exchange]
        type = "direct"
        [[binding]]
        queue = "a"
        key = "a"
        [[binding]]
        queue = "b"
        key = "b"
        [[sink]]
        queue = "a"
        to = "queue:{url}#all"
        [[sink]]
        queue = "b"
        to = "queue:{other}#all"
        """)
    )
    publish(tmp_path / "events", [Message(f"{n}".encode(), "ab"[n % 2]) for n in range(20)])
    run_once(file, spark)
    assert sorted(in_queue(url, "all"), key=int) == [str(n) for n in range(20)]
