"""Jobs on Spark: stats that are true, advice that comes true, replays that arrive exactly once."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.cli.app import run
from headgate.errors import SparkOptionsError, StreamError
from headgate.queues.database import connect
from headgate.spark.jobs import replays as replay_module
from headgate.spark.jobs.advice import advise
from headgate.spark.jobs.replays import replay
from headgate.streams.stream import Stream

pytestmark = pytest.mark.spark

ROWS, PARTS = 40_000, 3
CARDINALITIES = {"region": 3, "type": 12, "customer": 300}


def table(seed, rows=ROWS):
    rng = np.random.default_rng(seed)
    headers = {
        name: pa.array([f"{name}-{n}" for n in rng.integers(0, count, rows)])
        for name, count in CARDINALITIES.items()
    }
    headers["device"] = pa.array((np.arange(rows) + seed * rows) // 200)  # in bursts
    headers["trace"] = pa.array([f"{seed}-{n}" for n in range(rows)])
    headers["payload"] = pa.array([b"x" * 20] * rows, pa.binary())
    return pa.table(headers)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A stream of several hot segments, nothing indexed."""
    path = tmp_path_factory.mktemp("jobs") / "events"
    fill(path)
    return path


def fill(path, **options):
    with Stream.create(path, segment_bytes=5 << 20, **options) as stream:
        for part in range(PARTS):
            stream.append(table(part))


def command(capfd, *words):
    code = run([str(word) for word in words])
    return code, capfd.readouterr()


def skipped(path, filter):
    with Stream.open(path) as stream:
        scan = stream.scan(filter, columns=["offset"])
        for _ in scan:
            pass
    return 1 - scan.stats.bytes_read / scan.stats.bytes_total


# ---- stats -------------------------------------------------------------------------------------------


def test_stats_describe_the_content_of_a_stream(spark, plain, capfd):
    code, printed = command(capfd, "stream", "stats", plain, "--json")
    stats = json.loads(printed.out)
    assert code == 0
    assert stats["messages"] == PARTS * ROWS
    assert stats["payload_bytes"] == PARTS * ROWS * 20
    for name, count in CARDINALITIES.items():
        assert stats["fields"][f"h.{name}"]["distinct"] == count
    top = {entry["value"]: entry["messages"] for entry in stats["fields"]["h.region"]["top"]}
    regions = (table(part).column("region").to_pylist() for part in range(PARTS))
    assert top == Counter(region for part in regions for region in part)
    trace = stats["fields"]["h.trace"]
    assert abs(trace["distinct"] / (PARTS * ROWS) - 1) < 4 * trace["distinct_error"]


# ---- advice ------------------------------------------------------------------------------------------


def test_following_the_advice_skips_as_much_as_predicted(spark, tmp_path, capfd):
    """Apply it with the very commands it prints, then measure every filter by scanning."""
    path = tmp_path / "events"
    fill(path)
    filters = [
        "region = 'region-1' AND type = 'type-3'",
        "customer = 'customer-7'",
        "trace = '1-77'",
    ]
    wanted = [word for text in filters for word in ("--filter", text)]
    code, printed = command(capfd, "stream", "advise", path, *wanted, "--json")
    advice = json.loads(printed.out)
    assert code == 0
    assert advice["indexed"]
    for line in advice["commands"]:
        assert command(capfd, *shlex.split(line)[1:])[0] == 0
    measured = [skipped(path, text) for text in filters]
    promised = [outlook["sealed"] for outlook in advice["filters"]]
    assert promised == pytest.approx(measured, rel=0.2)
    assert np.mean(measured) > 0.5
    assert [outlook["now"] for outlook in advice["filters"]] == [0, 0, 0]


def test_advice_on_every_header_comes_true_for_every_value(spark, plain, tmp_path):
    """Also for values it never looked at, and for messages that are published with its options."""
    found = advise(spark, plain)
    names = (*CARDINALITIES, "device", "trace")
    assert {outlook.subject for outlook in found.outlooks} == {f"{name} = …" for name in names}
    path = tmp_path / "advised"
    fill(path, indexed=found.indexed, filter_size=found.filter_size)
    hot = measured_on_every_value(path)
    with Stream.open(path) as stream:
        stream.seal(all=True)
    sealed = measured_on_every_value(path)
    for outlook in found.outlooks:
        name = outlook.subject.removesuffix(" = …")
        if name in sealed:
            assert outlook.sealed == pytest.approx(sealed[name], rel=0.2, abs=0.02), name
            assert outlook.hot == pytest.approx(hot[name], rel=0.2, abs=0.02), name
            assert outlook.matches == pytest.approx(1 / CARDINALITIES.get(name, 600), rel=0.05)
    rows = np.random.default_rng(1).integers(0, ROWS, 60).tolist()
    sample = [skipped(path, f"trace = '{n % PARTS}-{n}'") for n in rows]
    trace = next(outlook for outlook in found.outlooks if outlook.subject.startswith("trace"))
    assert trace.sealed == pytest.approx(np.mean(sample), rel=0.2)


def measured_on_every_value(path):
    found = {
        name: np.mean(
            [skipped(path, f"{name} = '{name}-{n}'") for n in range(0, count, 1 + count // 30)]
        )
        for name, count in CARDINALITIES.items()
    }
    return {**found, "device": np.mean([skipped(path, f"device = {n}") for n in range(0, 600, 23)])}


def test_advice_is_drawn(spark, plain, tmp_path, capfd):
    picture = tmp_path / "advice.svg"
    asked = ("region = 'region-1'", "type = '<&>'")
    wanted = [word for text in asked for word in ("--filter", text)]
    code, printed = command(capfd, "stream", "advise", plain, *wanted, "--svg", picture)
    assert code == 0
    assert "headgate stream set" in printed.out
    drawn = ElementTree.fromstring(picture.read_text())
    texts = [element.text for element in drawn.iter() if element.tag.endswith("text")]
    assert {"type = '<&>'", "region = 'region-1'", "advised, sealed"} <= set(texts)


def test_an_empty_stream_gives_no_advice(spark, tmp_path):
    Stream.create(tmp_path / "empty").close()
    with pytest.raises(StreamError, match="no advice is possible"):
        advise(spark, tmp_path / "empty")


# ---- replay ------------------------------------------------------------------------------------------

WANTED = "region = 'region-2' AND type IN ('type-1', 'type-5')"


def traces(path, filter=""):
    with Stream.open(path) as stream:
        return stream.scan(filter, columns=["h.s.trace"]).to_table().column("h.s.trace").to_pylist()


def test_a_replay_arrives_in_order_and_only_once(spark, plain, tmp_path):
    to = f"stream:{tmp_path / 'copy'}"
    first = replay(spark, plain, WANTED, to, run_id="again", batch_bytes=1 << 20)
    assert first.batches > 1
    again = replay(spark, plain, WANTED, to, run_id="again")
    assert (again.messages, again.batches_before) == (0, first.batches)
    expected = traces(plain, WANTED)
    assert first.messages == len(expected) > 1000
    assert traces(tmp_path / "copy") == expected
    assert not list((tmp_path / "copy" / "inbox").rglob("*.arrow"))
    replay(spark, plain, WANTED, to)
    assert traces(tmp_path / "copy") == expected * 2


def test_a_replay_that_was_stopped_goes_on(spark, plain, tmp_path, monkeypatch):
    """The run stops between a commit and its record, and more messages are published before the next run."""
    path, to = tmp_path / "source", f"queue:sqlite:///{tmp_path / 'q.db'}#replayed"
    fill(path)
    expected = traces(path, WANTED)
    save, saved = replay_module._save_plan, []

    def stopping(folder, plan):
        saved.append(plan)
        if len(saved) == 2:
            raise KeyboardInterrupt
        save(folder, plan)

    monkeypatch.setattr(replay_module, "_save_plan", stopping)
    with pytest.raises(KeyboardInterrupt):
        replay(spark, path, WANTED, to, run_id="r1", batch_bytes=1 << 20)
    monkeypatch.undo()
    with Stream.open(path) as stream:
        stream.append(table(9))
        stream.seal(all=True)
    done = replay(spark, path, WANTED, to, run_id="r1")
    assert done.batches_before == 0
    with connect(f"sqlite:///{tmp_path / 'q.db'}") as database:
        taken = [d.message.headers["trace"] for d in database.queue("replayed").claim(100_000)]
    assert taken == expected


def test_a_part_of_history_goes_to_parquet(spark, plain, tmp_path, capfd):
    target = tmp_path / "out"
    words = ("stream", "replay", plain, "--filter", "type = 'type-1'", "--to", f"parquet:{target}")
    code, printed = command(capfd, *words, "--from", "1000", "--until", "50000", "--json")
    assert code == 0
    found = pq.read_table(target)
    with Stream.open(plain) as stream:
        expected = stream.scan("type = 'type-1'", start=1000, end=50_000).to_table()
    assert json.loads(printed.out)["messages"] == found.num_rows == expected.num_rows > 1000


def test_a_replay_id_belongs_to_one_filter_and_one_destination(spark, plain, tmp_path):
    replay(spark, plain, "type = 'type-1'", f"parquet:{tmp_path / 'a'}", run_id="one")
    with pytest.raises(SparkOptionsError, match="another id"):
        replay(spark, plain, "type = 'type-2'", f"parquet:{tmp_path / 'a'}", run_id="one")
    with pytest.raises(SparkOptionsError, match="another destination"):
        replay(spark, plain, "type = 'type-1'", f"parquet:{tmp_path / 'b'}", run_id="one")
    with pytest.raises(SparkOptionsError, match="into itself"):
        replay(spark, plain, "", f"stream:{plain}")
    with pytest.raises(SparkOptionsError, match="no id"):
        replay(spark, plain, "", f"parquet:{tmp_path / 'c'}", run_id="../up")
