"""A task of a pipeline reads its ranges, routes them and tells what it staged; no JVM is needed to see it."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from headgate.columns.decode import decode_messages
from headgate.errors import DataLost
from headgate.filters.logic import matches_filter
from headgate.filters.parser import parse
from headgate.message import Message
from headgate.pipelines.account import Counters, sum_counters
from headgate.routing import to_toml
from headgate.routing.topology import Topology
from headgate.spark.options import parse_stream_read
from headgate.spark.pipeline.router import RoutingPlan, load_router, save_plan
from headgate.spark.pipeline.source import PLAN, PipelineSource
from headgate.spark.pipeline.stream_reader import RoutingStreamReader
from headgate.streams.stream import Stream
from headgate.streams.superstream import SuperStream
from headgate.streams.write.staged import read_staged
from tests.mixed_stream import chill

FILTER = "amount > 300 AND region <> 'AP'"


@pytest.fixture
def sent(tmp_path: Path, seed: int) -> list[Message]:
    """A stream of which one part is sealed and one is not."""
    rng = Random(seed)
    regions = ["EU", "US", "AP"]
    sent = [
        Message(b"%d" % n, headers={"region": rng.choice(regions), "amount": rng.randrange(1000)})
        for n in range(3000)
    ]
    with Stream.create(tmp_path / "events", indexed=["region"], chunk_messages=100) as stream:
        with stream.producer() as producer:
            producer.publish_many(sent[:2000])
            producer.flush()
            stream.seal(all=True)
            producer.publish_many(sent[2000:])
    return sent


@pytest.fixture
def plan_file(tmp_path: Path) -> str:
    topology = Topology()
    topology.declare_exchange("x", "headers")
    topology.declare_queue("eu")
    topology.bind("x", queue="eu", arguments={"region": "EU"})
    places = [f"stream:{tmp_path}/out", f"stream:{tmp_path}/lost"]
    text = to_toml(topology.definitions())
    plan = RoutingPlan(text, "x", places, {"eu": [0]}, str(tmp_path / "ck"), 1)
    file = str(save_plan(plan, tmp_path / "ck"))
    for folder in load_router(file).folders:
        Path(folder).mkdir(parents=True)
    return file


def reader(tmp_path: Path, plan_file: str, **more: str) -> RoutingStreamReader:
    return RoutingStreamReader(
        parse_stream_read({"path": str(tmp_path / "events"), **more}), plan_file
    )


def run_tasks(
    reading: RoutingStreamReader, low: int, high: int
) -> tuple[list[list[str]], Counters]:
    """What the tasks of one batch stage for each place, in the order of tasks, and what they count."""
    (path,) = reading.options.paths
    partitions = reading.partitions({path: low}, {path: high})
    rows = [row for p in partitions for row in pa.Table.from_batches(reading.read(p)).to_pylist()]
    found: list[list[str]] = [[], []]
    for row in rows:
        if row["file"] is not None:
            batches = read_staged(Path(row["file"]), row["nbytes"], row["crc"])
            messages = [m.payload.decode() for batch in batches for m in decode_messages(batch)]
            found[row["destination"]] += messages
    return found, sum_counters(row["counters"] for row in rows if row["counters"] is not None)


@pytest.mark.parametrize("partitions", ["1", "5"])
def test_the_tasks_of_a_batch_stage_the_matches_in_the_order_of_the_stream(
    tmp_path: Path, sent: list[Message], plan_file: str, partitions: str
) -> None:
    reading = reader(tmp_path, plan_file, filter=FILTER, partitions=partitions)
    (eu, lost), counted = run_tasks(reading, 500, 2900)
    tree = parse(FILTER)
    wanted = [m for m in sent[500:2900] if matches_filter(tree, m, 0)]
    assert eu == [m.payload.decode() for m in wanted if m.headers["region"] == "EU"]
    assert lost == [m.payload.decode() for m in wanted if m.headers["region"] != "EU"]
    assert (counted.read, counted.routed, counted.unroutable) == (len(wanted), len(eu), len(lost))
    assert counted.scanned == 2400
    assert counted.chunks_opened > 0


def test_a_batch_without_a_match_stages_no_file_and_counts_skipped_chunks(
    tmp_path: Path, sent: list[Message], plan_file: str
) -> None:
    reading = reader(tmp_path, plan_file, filter="region = 'nowhere'")
    found, counted = run_tasks(reading, 0, 2000)
    assert found == [[], []]
    assert counted.scanned == 2000
    assert (counted.read, counted.chunks_opened, counted.bytes_read) == (0, 0, 0)
    assert counted.chunks_skipped > 0
    assert counted.bytes_total > 0


@pytest.mark.parametrize("cold", [False, True], ids=["sealed", "cold"])
def test_a_task_names_the_offsets_that_retention_deleted_since_planning(
    cold: bool,
    tmp_path: Path,
    sent: list[Message],
    plan_file: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if cold:
        chill(tmp_path / "events", 2000)
    reading, path = reader(tmp_path, plan_file), str(tmp_path / "events")
    partitions = reading.partitions({path: 0}, {path: 3000})
    with Stream.open(path) as stream:
        stream.trim(before_offset=2000)
        assert stream.first_offset == 2000
    with pytest.raises(
        DataLost, match=r"offsets 0 to 1999 were deleted.*fail_on_data_loss = false"
    ):
        list(reading.read(partitions[0]))
    going_on = reader(tmp_path, plan_file, failOnDataLoss="false")
    (eu, others), _ = run_tasks(going_on, 0, 3000)
    assert len(eu) + len(others) == 1000
    assert "offsets 0 to 1999 were deleted" in caplog.text


def test_a_task_names_the_deleted_offsets_of_one_partition_of_a_super_stream(
    tmp_path: Path, plan_file: str
) -> None:
    with SuperStream.create(tmp_path / "events", 2, segment_bytes=4096, chunk_messages=10) as made:
        with made.producer() as producer:
            for n in range(400):
                producer.publish(Message(b"x" * 50, key=str(n)))
                producer.flush()
        second = made.partitions[1]
        reading = reader(tmp_path, plan_file)
        start, end = reading.initialOffset(), reading.reportLatestOffset()
        partitions = reading.partitions(start, end)
        second.trim(before_offset=100)
        first = second.first_offset
    assert first > 0
    with pytest.raises(DataLost, match=rf"{second.path}: offsets 0 to {first - 1} were deleted"):
        [batch for partition in partitions for batch in reading.read(partition)]


def test_a_checkpoint_with_positions_in_unknown_streams_is_refused(
    tmp_path: Path, sent: list[Message], plan_file: str
) -> None:
    reading, gone = reader(tmp_path, plan_file), str(tmp_path / "gone")
    with pytest.raises(DataLost, match="would be delivered again"):
        reading.latestOffset({gone: 2000}, reading.getDefaultReadLimit())


def test_the_source_hands_its_plan_to_its_reader(
    tmp_path: Path, sent: list[Message], plan_file: str
) -> None:
    source = PipelineSource({"path": str(tmp_path / "events"), PLAN: plan_file})
    assert source.streamReader(source.schema()).plan_file == plan_file  # type: ignore[arg-type]
