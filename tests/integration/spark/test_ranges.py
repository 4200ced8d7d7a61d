from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest

from headgate.columns.decode import decode_records
from headgate.errors import StreamCorrupt
from headgate.filters import normalize
from headgate.filters.logic import matches_filter
from headgate.message import Message
from headgate.spark.source.ranges import (
    OffsetRange,
    Run,
    WeightedRange,
    balance,
    cut,
    join_ranges,
    order_tasks,
    plan,
    scan,
    stream_catalog,
    sweep,
    worthwhile_tasks,
)
from headgate.streams.format import OUTLINES_FILE, sealed_path
from headgate.streams.read import catalog
from headgate.streams.read.plan import ScanStats, survivors
from headgate.streams.read.query import StreamQuery, make_query
from headgate.streams.stream import Stream
from tests import generate
from tests.mixed_stream import everything, mixed_stream, publish


def offsets_in(tasks: list[tuple[OffsetRange, ...]], query: StreamQuery) -> list[tuple[str, int]]:
    return sorted(
        (one.path, offset)
        for task in tasks
        for one in task
        for batch in scan(one, query)
        for offset in batch.column("offset").to_pylist()
    )


@pytest.mark.parametrize("round", range(4))
def test_the_ranges_of_a_plan_hold_every_match_once(
    round: int, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if round % 2:
        monkeypatch.setattr(catalog, "MANY", 1)  # outlines are asked about few segments, too
    rng = Random(seed + round)
    streams = {str(tmp_path / name): mixed_stream(tmp_path / name, rng, 150) for name in "ab"}
    query = StreamQuery(normalize(generate.filter(rng)).at(generate.NOW_US))
    tasks = plan(list(streams), query, tasks=rng.randint(1, 9))
    expected = [
        (path, offset)
        for path, records in streams.items()
        for offset, message in records
        if matches_filter(query.filter.tree, message)
    ]
    assert offsets_in(tasks, query) == expected


def test_a_plan_opens_no_segment_that_its_outline_excludes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    with Stream.create(path, indexed=["n"], fsync="never") as stream:
        for n in range(20):
            publish(stream, [Message(b"x", headers={"n": n})] * 3)
            stream.seal(all=True)
    (path / OUTLINES_FILE).rename(tmp_path / "outlines")
    stats, other = ScanStats(), ScanStats()
    wanted = plan([str(path)], make_query("n = 7"), stats=other)
    (tmp_path / "outlines").rename(path / OUTLINES_FILE)
    opened: list[int] = []
    real = catalog.SegmentCatalog.covering

    def note(self: catalog.SegmentCatalog, offset: int) -> object:
        opened.append(offset)
        return real(self, offset)

    monkeypatch.setattr(catalog.SegmentCatalog, "covering", note)
    assert plan([str(path)], make_query("n = 7"), stats=stats) == wanted
    assert (opened, stats) == ([21], other)


def test_a_segment_missing_in_the_middle_is_an_error_when_planned_scanned_and_swept(
    tmp_path: Path,
) -> None:
    path, query = tmp_path / "s", StreamQuery()
    with Stream.create(path) as stream:
        for start in range(0, 30, 10):
            publish(stream, [Message(b"%d" % i) for i in range(start, start + 10)])
            stream.seal(all=True)
    tasks = plan([str(path)], query)
    sealed_path(path, 10).unlink()
    everything = OffsetRange(str(path), 0, 30)
    for read in (
        lambda: plan([str(path)], query),
        lambda: list(scan(everything, query)),
        lambda: list(sweep(everything, query)),
        lambda: offsets_in(tasks, query),
    ):
        with pytest.raises(StreamCorrupt, match="offsets 10 to 19 cannot be read"):
            read()
    sealed_path(path, 0).unlink()  # now the oldest are gone, as retention drops them
    assert offsets_in(plan([str(path)], query), query) == [(str(path), i) for i in range(20, 30)]


def test_a_sweep_finds_the_rows_of_a_scan_in_another_order(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    mixed_stream(tmp_path / "s", rng, 200)
    query = StreamQuery(normalize(generate.filter(rng)).at(generate.NOW_US))
    whole = OffsetRange(str(tmp_path / "s"), 20, 180)
    swept = [row for batch in sweep(whole, query) for row in decode_records(batch)]
    scanned = [row for batch in scan(whole, query) for row in decode_records(batch)]
    assert sorted(swept, key=lambda record: record.offset) == scanned


def test_a_plan_keeps_within_the_offsets_it_is_given(seed: int, tmp_path: Path) -> None:
    mixed_stream(tmp_path / "s", Random(seed), 300)
    path = str(tmp_path / "s")
    tasks = plan([path], make_query(), start={path: 41}, end={path: 222}, tasks=4)
    assert offsets_in(tasks, make_query()) == [(path, offset) for offset in range(41, 222)]


def test_a_plan_is_still_right_after_all_segments_are_sealed(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    records = mixed_stream(tmp_path / "s", rng, 300)
    query = make_query("a IS NOT NULL")
    tasks = plan([str(tmp_path / "s")], query, tasks=5)
    with Stream.open(tmp_path / "s") as stream:
        stream.seal(all=True)
    found = [offset for _, offset in offsets_in(tasks, query)]
    assert found == [r.offset for r in records if matches_filter(query.filter.tree, r.message)]


def test_ranges_without_a_match_are_not_planned(tmp_path: Path) -> None:
    with Stream.create(tmp_path / "s", indexed=("n",), chunk_messages=10) as stream:
        publish(stream, [Message(headers={"n": i // 100}) for i in range(1000)])
    tasks = plan([str(tmp_path / "s")], make_query("n = 4"), tasks=3)
    covered = sum(one.high - one.low for task in tasks for one in task)
    assert 100 <= covered < 300
    assert plan([str(tmp_path / "s")], make_query("n = 99"), tasks=3) == []


def test_hot_segments_are_shared_out_evenly(tmp_path: Path) -> None:
    with Stream.create(tmp_path / "s", chunk_messages=10) as stream:
        publish(stream, [Message(b"x" * 100) for _ in range(1000)])
    tasks = plan([str(tmp_path / "s")], make_query(), tasks=4)
    shares = [sum(one.high - one.low for one in task) for task in tasks]
    assert sum(shares) == len(everything(tmp_path / "s"))
    assert max(shares) < 1.2 * min(shares)
    assert [len(task) for task in tasks] == [1, 1, 1, 1]


def test_a_clustered_segment_is_never_split(tmp_path: Path) -> None:
    with Stream.create(tmp_path / "s", chunk_messages=100) as stream:
        publish(stream, [Message(b"x" * 50, headers={"n": i * 7 % 10}) for i in range(9000)])
        stream.seal(all=True)
    tasks = plan([str(tmp_path / "s")], make_query(), tasks=4)
    assert tasks == [(OffsetRange(str(tmp_path / "s"), 0, 9000),)]


def test_a_run_is_cut_between_chunks() -> None:
    run = Run("s", np.arange(0, 50, 10), np.arange(10, 60, 10), np.full(5, 100))
    assert list(cut(run, 200)) == [
        WeightedRange(200, OffsetRange("s", 0, 20)),
        WeightedRange(200, OffsetRange("s", 20, 40)),
        WeightedRange(100, OffsetRange("s", 40, 50)),
    ]


def test_the_heaviest_pieces_are_distributed_first() -> None:
    pieces = [
        WeightedRange(weight, OffsetRange("s", weight * 10, weight * 10 + 1))
        for weight in (1, 2, 3, 4, 10)
    ]
    loads = [sum(one.low for one in task) // 10 for task in balance(pieces, 2)]
    assert loads == [10, 10]


def test_with_more_tasks_than_pieces_each_piece_is_a_task() -> None:
    pieces = [WeightedRange(1, OffsetRange("s", at, at + 1)) for at in (0, 5, 9)]
    assert sorted(balance(pieces, 10**15)) == [(piece.range,) for piece in pieces]
    assert balance([], 10**15) == []


def test_neighbouring_ranges_are_joined() -> None:
    parts = [
        OffsetRange("s", 20, 30),
        OffsetRange("s", 0, 10),
        OffsetRange("t", 30, 40),
        OffsetRange("s", 10, 20),
    ]
    assert join_ranges(parts) == (OffsetRange("s", 0, 30), OffsetRange("t", 30, 40))


def test_ordered_tasks_hold_the_ranges_of_the_plan(seed: int) -> None:
    rng = Random(seed)
    for _ in range(50):
        borders = sorted(rng.sample(range(1000), rng.randint(2, 12)))
        pieces = [WeightedRange(1, OffsetRange("s", low, high)) for low, high in pairwise(borders)]
        tasks = order_tasks(balance(pieces, rng.randint(1, 4)))
        flat = [one for task in tasks for one in task]
        assert flat == sorted(flat)
        assert join_ranges(flat) == (OffsetRange("s", borders[0], borders[-1]),)


def test_small_data_is_one_task_and_large_data_is_more_than_the_cores() -> None:
    assert worthwhile_tasks(10_000, cores=8) == 1
    assert worthwhile_tasks(64 << 20, cores=8) == 8
    assert (
        worthwhile_tasks(10 << 30, cores=8) == 24
    )  # of half a gigabyte, and no core idle at the end


def test_a_larger_cluster_gets_more_tasks(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with Stream.create(path, chunk_messages=100) as stream:
        with stream.producer() as producer:
            producer.publish_many([Message(bytes(50_000)) for _ in range(200)])
    query = make_query("size > 0")
    assert len(plan([path], query, cores=2)) == 2
    assert len(plan([path], query, cores=7)) == 7
    assert len(plan([path], query, tasks=1, cores=7)) == 1


def test_a_task_reads_and_weighs_the_pages_that_hold_a_value(tmp_path: Path) -> None:
    path, rng = tmp_path / "s", Random(8)
    regions = [f"v{rng.randrange(60):03}" for _ in range(6000)]
    with Stream.create(path, indexed=["region"]) as stream:
        publish(stream, [Message(b"x" * 100, headers={"region": region}) for region in regions])
        stream.seal(all=True)
    query, stats = make_query("region = 'v030'"), ScanStats()
    ((one,),) = plan([str(path)], query)
    found = [o for b in sweep(one, query, stats=stats) for o in b.column("offset").to_pylist()]
    assert sorted(found) == [i for i, region in enumerate(regions) if region == "v030"]
    assert stats.bytes_read < 0.2 * stats.bytes_total
    segment = stream_catalog(str(path)).covering(0)
    assert segment is not None
    weight = sum(part.nbytes for part in survivors(segment, query.filter, (), 0, 6000, ScanStats()))
    assert weight == pytest.approx(stats.bytes_read, rel=0.05)
