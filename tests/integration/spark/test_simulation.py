"""A simulation predicts the chunks that are skipped, after sealing and before."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headgate.filters import VIEWS
from headgate.filters.nodes import Field, fields_read
from headgate.filters.parser import parse
from headgate.spark.jobs.segment_table import read_fields
from headgate.spark.jobs.simulation import Simulation, add_tallies
from headgate.spark.jobs.tasks import open_segments, segment_ranges
from headgate.streams.segments import FILTER_VALUE, IndexShape
from headgate.streams.segments.bloom import BloomShape
from headgate.streams.stream import Stream

ROWS = 60_000
FILTERS = [
    parse(text)
    for text in (
        "region = 'EU'",
        "customer = 'c042'",
        "customer IN ('c001', 'c399') AND region <> 'US'",
        "amount > 9900",
        "trace = '00000123'",
        "trace = 'nowhere'",
        "device = 7",
        "missing = 'x'",
        "region IS NULL",
    )
]
FIELDS = sorted({FILTER_VALUE}.union(*map(fields_read, FILTERS)), key=repr)


def table(rows=ROWS, seed=5):
    rng = np.random.default_rng(seed)
    present = rng.random(rows) < 0.9
    return pa.table(
        {
            "region": pa.array(
                np.array(["EU", "US", "APAC"])[rng.integers(0, 3, rows)], mask=~present
            ),
            "customer": pa.array([f"c{n:03d}" for n in rng.integers(0, 400, rows)]),
            "amount": pa.array(rng.integers(0, 10_000, rows)),
            "trace": pa.array([f"{n:08d}" for n in rng.permutation(rows)]),
            "device": pa.array(np.arange(rows) // 50),  # in bursts
            "payload": pa.array([b"x" * n for n in rng.integers(0, 60, rows)], pa.binary()),
        }
    )


def simulation(path):
    (segment,) = open_segments(segment_ranges(path))
    return Simulation(segment, read_fields(segment, FIELDS), chunk_messages=4096)


def measured(stream):
    """For each filter the chunks that were read, and the share of bytes that was not."""
    found = []
    for filter in FILTERS:
        scan = stream.scan(filter, columns=["offset"])
        for _ in scan:
            pass
        stats = scan.stats
        found.append(
            (stats.chunks_all + stats.chunks_some, 1 - stats.bytes_read / stats.bytes_total)
        )
    return [chunks for chunks, _ in found], [share for _, share in found]


@pytest.mark.parametrize(
    "indexed",
    [(), ("region",), ("customer",), ("customer", "region"), ("device", "region", "trace")],
)
def test_sealing_skips_as_much_as_simulated(tmp_path, indexed):
    with Stream.create(tmp_path / "s") as stream:
        stream.append(table())
    tally = simulation(tmp_path / "s").sealed(indexed, FILTERS)
    with Stream.open(tmp_path / "s") as stream:
        stream.reconfigure(indexed=indexed)
        stream.seal(all=True)
        chunks, shares = measured(stream)
    assert list(tally.chunks_read) == chunks
    assert tally.shares == pytest.approx(shares, abs=0.02)


def test_a_sealed_segment_can_be_simulated_as_hot(tmp_path):
    with Stream.create(tmp_path / "s", indexed=["customer"]) as stream:
        stream.append(table())
    before = simulation(tmp_path / "s").sealed(("region",), FILTERS)
    with Stream.open(tmp_path / "s") as stream:
        stream.seal(all=True)
    after = simulation(tmp_path / "s")
    assert after.sealed(("region",), FILTERS).chunks_read == before.chunks_read
    assert list(after.as_stored(FILTERS).chunks_read) == measured(stream_at(tmp_path / "s"))[0]


def stream_at(path):
    return Stream.open(path)


@pytest.mark.parametrize("size", [64, 1024, 4096])
def test_hot_chunks_skip_as_much_as_simulated(tmp_path, size):
    """One in a hundred chunks may differ: the hashes of a chunk are its own, a false positive is luck."""
    options = {"indexed": ("device", "customer"), "filter_size": size, "chunk_messages": 100}
    with Stream.create(tmp_path / "plain", chunk_messages=100) as stream:
        stream.append(table())
    shape = IndexShape(BloomShape(size, 7), ("device", "customer"))
    (tally,) = simulation(tmp_path / "plain").hot([shape], FILTERS)
    with Stream.create(tmp_path / "indexed", **options) as stream:
        stream.append(table())
        chunks, shares = measured(stream)
    assert tally.chunks == 150
    assert np.abs(np.array(tally.chunks_read) - chunks).max() <= 15
    assert tally.shares == pytest.approx(shares, abs=0.1)
    assert tally.skipped(6) > 0.8  # of the bursts


def test_a_filter_value_skips_as_much_as_simulated(tmp_path):
    with Stream.create(tmp_path / "plain", chunk_messages=25) as stream:
        stream.append(table())
    shapes = [IndexShape(BloomShape(size, 2)) for size in (16, 255)]
    values = [f"c{n:03d}" for n in range(0, 400, 25)]
    small, large = simulation(tmp_path / "plain").seeded("customer", shapes, values)
    tagged = table()
    tagged = tagged.append_column("filter_value", tagged.column("customer"))
    with Stream.create(tmp_path / "seeded", chunk_messages=25, filter_size=255) as stream:
        stream.append(tagged)
        skipped = [skipped_by(stream, value) for value in values]
    assert np.mean(large.shares) == pytest.approx(np.mean(skipped), abs=0.05)
    assert np.mean(large.shares) > 0.6
    assert np.mean(small.shares) < np.mean(large.shares) / 2


def skipped_by(stream, value):
    scan = stream.scan(filter_values=[value], columns=["offset"])
    for _ in scan:
        pass
    return 1 - scan.stats.bytes_read / scan.stats.bytes_total


def test_a_restriction_skips_as_much_as_simulated(tmp_path):
    bursts = table().append_column("zone", pa.array([f"z{i // 1500 % 4}" for i in range(ROWS)]))
    with Stream.create(tmp_path / "plain") as stream:
        stream.append(bursts)
    (segment,) = open_segments(segment_ranges(tmp_path / "plain"))
    rows = read_fields(segment, [Field("header", "zone")])
    wanted = [parse(f"zone = 'z{i}'") for i in range(4)]
    tally = Simulation(segment, rows, chunk_messages=4096 * 4).restricted("zone", wanted)
    listed = {"zone": ["z0", "z1", "z2", "z3"]}
    with Stream.create(tmp_path / "cut", restrict_same_values=listed) as stream:
        stream.append(bursts)
        (cut,) = open_segments(segment_ranges(tmp_path / "cut"))
        scan = stream.scan("zone = 'z1'")
        for _ in scan:
            pass
    assert tally.chunks == pytest.approx(len(cut), abs=4)  # the bulk is cut by bytes as well
    assert tally.skipped(1) == pytest.approx(
        1 - scan.stats.bytes_read / scan.stats.bytes_total, abs=0.02
    )


def test_matches_are_counted_message_by_message(tmp_path):
    with Stream.create(tmp_path / "s") as stream:
        stream.append(table())
        counts = [sum(b.num_rows for b in stream.scan(f, columns=["offset"])) for f in FILTERS]
    tally = simulation(tmp_path / "s").matching(FILTERS)
    assert list(tally.size_read) == counts
    assert add_tallies(tally, tally).shares == tally.shares


def test_every_view_of_a_field_is_read(tmp_path):
    mixed = pa.table(
        {"h.s.x": ["a", None, None], "h.i.x": [None, 1, None], "h.o.x": [None, None, True]}
    )
    with Stream.create(tmp_path / "s") as stream:
        stream.append(mixed)
    (segment,) = open_segments(segment_ranges(tmp_path / "s"))
    assert set(read_fields(segment, [Field("header", "x")]).columns) == {"h.s.x", "h.i.x", "h.o.x"}
    assert len(VIEWS) == 5
