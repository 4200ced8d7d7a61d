"""The cold tier: Parquet files that are part of the stream."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pyarrow
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from headgate.errors import StreamCorrupt, StreamError
from headgate.message import OPAQUE, Message
from headgate.streams.cold import compaction, manifest, write
from headgate.streams.cold.compaction import compact, list_candidates, run_compaction
from headgate.streams.cold.location import ColdFile
from headgate.streams.cold.manifest import delete_cold, list_manifests, read_manifest, read_note
from headgate.streams.cold.segment import ColdSegment, parquet_name, stream_name
from headgate.streams.format import SegmentFile, segment_files
from headgate.streams.read.catalog import SegmentCatalog
from headgate.streams.read.entry_filters import Decision
from headgate.streams.segments.segment import ChunkMetadata, Segment
from headgate.streams.stream import Stream
from headgate.streams.upkeep.dump import dump_lines, dump_segment
from headgate.streams.upkeep.verification import repair, verify

CLOCK = 1_750_000_000_000_000
DAY_US = 86_400_000_000
COUNT = 400


def message(i: int) -> Message:
    rng = Random(i)
    return Message(
        rng.randbytes(20),
        topic=f"orders.{rng.choice(('eu', 'us'))}",
        headers={"region": rng.choice("abcdefgh"), "amount": i, "user": f"u{rng.randrange(10**6)}"},
        timestamp=CLOCK + i * DAY_US // 100,
    )


MESSAGES = [message(i) for i in range(COUNT)]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "ROW_GROUP_ROWS", 40)


@pytest.fixture
def sealed_stream(tmp_path: Path) -> Path:
    """Four sealed segments of a hundred messages, and a hot one without any."""
    path = tmp_path / "s"
    with Stream.create(path, indexed=["region", "user"]) as made:
        publish(made, MESSAGES)
    return path


def publish(made: Stream, messages: list[Message]) -> None:
    with made.producer("p") as producer:
        for start in range(0, len(messages), 100):
            producer.publish_many(messages[start : start + 100])
            producer.flush()
            made.seal(all=True)


def read(path: Path, filter: str = "") -> list[Message]:
    with Stream.open(path) as opened:
        return list(opened.consume(filter))


def tiers(path: Path) -> list[str]:
    return [file.path.suffix for file in segment_files(path)]


def parquet_files(path: Path) -> list[Path]:
    return sorted((path / "cold").iterdir())


def cold_segment(path: Path) -> ColdSegment:
    return ColdSegment(segment_files(path)[0].path)


# ---- reading -----------------------------------------------------------------------------------------


def test_neighbouring_segments_become_one_cold_file_that_reads_alike(sealed_stream: Path) -> None:
    done = compact(sealed_stream, created_us=CLOCK)
    assert [written.rows for written in done.added] == [COUNT]
    assert len(done.removed) == 4
    assert tiers(sealed_stream) == [".cold", ".log"]
    assert read(sealed_stream) == MESSAGES


def test_a_full_cold_file_is_followed_by_another(
    sealed_stream: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = segment_files(sealed_stream)[0].path.stat().st_size
    monkeypatch.setattr(compaction, "COLD_BYTES", 2 * size + 100)
    compact(sealed_stream, created_us=CLOCK)
    assert tiers(sealed_stream) == [".cold", ".cold", ".log"]
    assert read(sealed_stream) == MESSAGES


def test_planning_reads_no_parquet(sealed_stream: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compact(sealed_stream, created_us=CLOCK)
    monkeypatch.setattr(ColdSegment, "_file", lambda self: pytest.fail("the data was read"))
    with Stream.open(sealed_stream) as opened:
        scan = opened.scan("region = 'nowhere' OR user = 'nobody' OR amount > 400000")
        assert list(scan) == []
        assert scan.stats.chunks_none == len(cold_segment(sealed_stream))


def test_only_the_row_groups_and_columns_a_filter_needs_are_read(
    sealed_stream: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compact(sealed_stream, created_us=CLOCK)
    reads: list[tuple[int, tuple[str, ...]]] = []
    real = ColdSegment.read

    def spy(self: ColdSegment, i: int, names: list[str]) -> object:
        reads.append((i, tuple(names)))
        return real(self, i, names)

    monkeypatch.setattr(ColdSegment, "read", spy)
    with Stream.open(sealed_stream) as opened:
        found = opened.scan("region = 'c'", columns=["offset"]).to_table()
    assert found.num_rows == sum(m.headers["region"] == "c" for m in MESSAGES)
    assert {names for _, names in reads} <= {("h.s.region",), ("offset",)}
    assert len({i for i, _ in reads}) < len(cold_segment(sealed_stream)) // 2


def test_start_positions_by_time_are_found_in_the_cold_tier(sealed_stream: Path) -> None:
    compact(sealed_stream, created_us=CLOCK)
    with Stream.open(sealed_stream) as opened:
        first = next(iter(opened.consume(start="2025-06-17T00:00:00Z").records()))
        assert MESSAGES[first.offset - 1].timestamp < 1_750_118_400_000_000 <= MESSAGES[first.offset].timestamp  # type: ignore[operator]  # fmt: skip
        assert next(opened.consume(start=250).records()).offset == 250


class OnlyB:
    def decide(self, chunk: ChunkMetadata) -> Decision:
        return Decision.ACCEPT if chunk.properties.get("region") == "b" else Decision.REJECT


def test_entry_filters_see_the_values_that_batches_were_restricted_to(tmp_path: Path) -> None:
    with Stream.create(tmp_path, restrict_same_values={"region": ["a", "b"]}) as opened:
        publish(opened, MESSAGES)
    compact(tmp_path, created_us=CLOCK)
    found = [m for m in MESSAGES if m.headers["region"] == "b"]
    with Stream.open(tmp_path) as opened:
        assert list(opened.consume(entry_filter=OnlyB())) == found


def test_headers_of_every_kind_and_name_survive_the_cold_tier(tmp_path: Path) -> None:
    odd = [
        Message(headers={"x-match.any": 1, "ünïcode $": "ä", "h_s_x": -0.0, "flag": False}),
        Message(headers={"x-match.any": "1", "table": OPAQUE, "big": 2**63 - 1}, priority=255),
        Message(headers={f"n{i}": i for i in range(200)}, id="i", key="k", filter_value="f"),
        Message(properties={"subject": "s", "group_sequence": 3}),
    ]
    with Stream.create(tmp_path, indexed=["x-match.any"]) as opened:
        with opened.producer() as producer:
            producer.publish_many(odd)
        before = list(opened.consume())
        opened.seal(all=True)
    compact(tmp_path, created_us=CLOCK)
    assert tiers(tmp_path) == [".cold", ".log"]
    assert read(tmp_path) == before
    names = pq.ParquetFile(parquet_files(tmp_path)[0]).schema_arrow.names
    assert "h_s_x$2dmatch$2eany" in names
    assert not any("." in name for name in names)


@given(st.text(min_size=1), st.sampled_from("sifbo"), st.sampled_from("hp"))
def test_parquet_names_are_reversible_and_have_no_dots(header: str, view: str, scope: str) -> None:
    name = f"{scope}.{view}.{header}"
    assert stream_name(parquet_name(name)) == name
    assert "." not in parquet_name(name)
    assert parquet_name("filter_value") == stream_name("filter_value") == "filter_value"


def test_publishing_ids_are_remembered_from_the_cold_tier(sealed_stream: Path) -> None:
    compact(sealed_stream, created_us=CLOCK)
    for path in (*sealed_stream.glob("*.log"), *sealed_stream.glob("*.idx")):
        path.unlink()
    with Stream.open(sealed_stream) as opened, opened.producer("p") as producer:
        assert producer.last_publishing_id == COUNT - 1
        assert opened.next_offset == COUNT


def test_a_dump_of_a_cold_segment_shows_its_row_groups(sealed_stream: Path) -> None:
    compact(sealed_stream, created_us=CLOCK)
    shown = list(dump_lines(dump_segment(segment_files(sealed_stream)[0].path, sample=1)))
    assert "cold, offsets 0 to 399" in shown[0]
    assert any("data: cold/" in line for line in shown)
    assert any("h.s.region" in line and "crc ok" in line for line in shown)


# ---- choosing ----------------------------------------------------------------------------------------


def test_a_young_segment_stays_sealed(sealed_stream: Path) -> None:
    compact(sealed_stream, horizon_us=CLOCK + 2 * DAY_US, created_us=CLOCK)
    assert tiers(sealed_stream) == [".cold", ".arrow", ".arrow", ".log"]
    assert cold_segment(sealed_stream).next_offset == 200
    assert read(sealed_stream) == MESSAGES


def test_a_segment_that_ends_after_the_offset_stays_sealed(sealed_stream: Path) -> None:
    compact(sealed_stream, before_offset=299, created_us=CLOCK)
    assert cold_segment(sealed_stream).next_offset == 200
    compact(sealed_stream, created_us=CLOCK)
    assert tiers(sealed_stream) == [".cold", ".cold", ".log"]
    assert compact(sealed_stream, created_us=CLOCK).added == ()
    assert read(sealed_stream, "amount >= 190 AND amount < 210") == MESSAGES[190:210]


# ---- beside writers, retention and other compactions -------------------------------------------------


def test_sealed_files_stay_and_are_hidden_while_the_stream_is_written(sealed_stream: Path) -> None:
    with Stream.open(sealed_stream) as opened, opened.producer() as producer:
        producer.publish(MESSAGES[0])
        done = compact(sealed_stream, created_us=CLOCK)
        assert done.holder is not None
        assert done.holder["purpose"] == "an unnamed producer"
        assert len(list(sealed_stream.glob("*.arrow"))) == 4
        assert list(opened.consume()) == [*MESSAGES, MESSAGES[0]]
        assert verify(sealed_stream).fine  # the writer will remove them
        opened.seal()
        assert list(sealed_stream.glob("*.arrow")) == []
    assert verify(sealed_stream).fine


def test_a_reader_goes_on_while_its_segment_becomes_cold_and_is_deleted(
    sealed_stream: Path,
) -> None:
    with Stream.open(sealed_stream) as opened:
        records = opened.consume().records()
        found = [next(records) for _ in range(150)]
        compact(sealed_stream, created_us=CLOCK)
        found += [next(records) for _ in range(100)]
        opened.trim(before_offset=400)
        found += records
    assert [record.message for record in found] == MESSAGES
    assert not read(sealed_stream)


def test_compaction_does_not_bring_back_deleted_segments(sealed_stream: Path) -> None:
    with run_compaction(sealed_stream, "cold") as run:
        written = [
            write.write_cold(task) for task in run.tasks(list_candidates(sealed_stream), CLOCK)
        ]
        with Stream.open(sealed_stream) as opened:
            opened.trim(before_offset=100)
        assert [run.commit(one) for one in written] == [False]
    assert tiers(sealed_stream) == [".arrow", ".arrow", ".arrow", ".log"]
    assert parquet_files(sealed_stream) == []
    assert read(sealed_stream) == MESSAGES[100:]


def test_a_candidate_that_retention_deletes_meanwhile_is_left_out(
    sealed_stream: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = SegmentCatalog.open

    def trim_before(catalog: SegmentCatalog, file: SegmentFile) -> Segment:
        if file.first_offset == 0:
            monkeypatch.undo()
            with Stream.open(sealed_stream) as opened:
                opened.trim(before_offset=100)
        return real(catalog, file)

    monkeypatch.setattr(SegmentCatalog, "open", trim_before)
    found = list_candidates(sealed_stream)
    assert [candidate.file.first_offset for candidate in found] == [100, 200, 300]


def test_a_second_compaction_at_the_same_time_is_refused(sealed_stream: Path) -> None:
    with (
        run_compaction(sealed_stream, "cold"),
        pytest.raises(StreamError, match=r"compacted already \(pid"),
    ):
        compact(sealed_stream, created_us=CLOCK)


def test_retention_deletes_cold_segments_with_their_data(sealed_stream: Path) -> None:
    compact(sealed_stream, before_offset=200, created_us=CLOCK)
    compact(sealed_stream, created_us=CLOCK)
    with Stream.open(sealed_stream) as opened:
        dropped = opened.trim(max_age=timedelta(microseconds=1))
        assert [(s.first_offset, s.next_offset) for s in dropped] == [(0, 200), (200, 400)]
        assert dropped[0].nbytes > 200 * 20
    assert parquet_files(sealed_stream) == []
    assert tiers(sealed_stream) == [".log"]


def test_cold_data_elsewhere_is_deleted_with_the_stream(
    sealed_stream: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "lake"
    compact(sealed_stream, to=elsewhere.as_uri(), created_us=CLOCK)
    assert len(list(elsewhere.iterdir())) == 1
    assert read(sealed_stream, "amount < 7") == MESSAGES[:7]
    Stream.delete(sealed_stream)
    assert list(elsewhere.iterdir()) == []


def test_a_location_that_cannot_be_opened_is_refused_before_anything_is_written(
    sealed_stream: Path,
) -> None:
    with pytest.raises(StreamError, match=r"pyarrow\.fs cannot open gopher"):
        compact(sealed_stream, to="gopher://cold", created_us=CLOCK)
    assert tiers(sealed_stream)[:4] == [".arrow"] * 4


def test_orphans_elsewhere_are_collected_and_other_streams_files_are_not(
    sealed_stream: Path, tmp_path: Path
) -> None:
    place = (tmp_path / "lake").as_uri()

    def dies(tasks: Sequence[write.ColdTask]) -> Iterator[write.WrittenColdFile]:
        for task in tasks:
            write.write_cold(task)
        raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt):
        compact(sealed_stream, dies, to=place, created_us=CLOCK)
    foreign = tmp_path / "lake" / "00000000000000000000-0123456789ab-01234567.parquet"
    foreign.write_bytes(b"of another stream")
    assert len(list((tmp_path / "lake").iterdir())) == 2
    compact(sealed_stream, created_us=CLOCK)
    assert list((tmp_path / "lake").iterdir()) == [foreign]


def test_the_next_writer_finishes_an_interrupted_deletion(
    sealed_stream: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compact(sealed_stream, created_us=CLOCK)
    with monkeypatch.context() as dying:
        dying.setattr(manifest, "_finish_delete", lambda path: None)
        with Stream.open(sealed_stream) as opened:
            opened.trim(before_offset=400)
    assert len(parquet_files(sealed_stream)) == 1
    assert not read(sealed_stream)
    with Stream.open(sealed_stream) as opened:
        opened.seal()
    assert parquet_files(sealed_stream) == []
    assert not list(sealed_stream.glob("*.dropped"))


# ---- dying between any two steps ---------------------------------------------------------------------


class Died(BaseException):
    pass


class Death:
    """Counts every step on disk, and fails before or after the n-th, without any clean-up."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int, late: bool) -> None:
        self.left, self._late = at, late
        steps = ((os, "replace"), (os, "unlink"), (os, "write"), (ColdFile, "move"))
        for owner, name in (*steps, (ColdFile, "delete"), (ColdFile, "sync")):
            patch.setattr(owner, name, self._deadly(getattr(owner, name)))

    def _strike(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Died

    def _deadly(self, real: Callable[..., object]) -> Callable[..., object]:
        def step(*arguments: object, **named: object) -> object:
            if not self._late:
                self._strike()
            result = real(*arguments, **named)
            if self._late:
                self._strike()
            return result

        return step


def dies(patch: pytest.MonkeyPatch, at: int, late: bool, work: Callable[[], object]) -> bool:
    with patch.context() as armed:
        death = Death(armed, at, late)
        try:
            work()
        except Died:
            return True
        assert death.left > 0
        return False


def trim_half(path: Path) -> None:
    with Stream.open(path) as opened:
        opened.trim(before_offset=200)


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_a_compaction_that_dies_at_any_step_loses_and_repeats_nothing(
    sealed_stream: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    size = segment_files(sealed_stream)[0].path.stat().st_size
    monkeypatch.setattr(compaction, "COLD_BYTES", 2 * size + 100)
    for at in count(1):
        path = tmp_path / f"compact {at}"
        shutil.copytree(sealed_stream, path)
        died = dies(monkeypatch, at, late, lambda path=path: compact(path, created_us=CLOCK))
        assert read(path) == MESSAGES, at
        assert all(problem.healable for problem in verify(path).problems), at
        compact(path, created_us=CLOCK)
        assert read(path) == MESSAGES, at
        assert_tidy(path)
        if not died:
            assert at > 15
            return


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_retention_that_dies_at_any_step_deletes_cold_segments_as_a_whole(
    sealed_stream: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    size = segment_files(sealed_stream)[0].path.stat().st_size
    monkeypatch.setattr(compaction, "COLD_BYTES", 2 * size + 100)
    compact(sealed_stream, created_us=CLOCK)
    for at in count(1):
        path = tmp_path / f"trim {at}"
        shutil.copytree(sealed_stream, path)
        died = dies(monkeypatch, at, late, lambda path=path: trim_half(path))
        assert read(path) in (MESSAGES, MESSAGES[200:]), at
        assert verify(path).fine, at
        trim_half(path)
        assert read(path) == MESSAGES[200:], at
        assert_tidy(path)
        if not died:
            assert at > 3
            return


def assert_tidy(path: Path) -> None:
    """Every Parquet file belongs to a manifest, and no hot or sealed file of a cold segment is left."""
    known = {read_note(manifest).file for manifest in list_manifests(path)}
    assert {f"cold/{file.name}" for file in parquet_files(path)} == known
    assert not [*path.glob("*.arrow"), *path.glob("*.dropped"), *path.glob(".*")]
    assert verify(path).fine


# ---- damage ------------------------------------------------------------------------------------------


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(content)


def test_every_flipped_byte_of_the_data_is_found_by_verify(sealed_stream: Path) -> None:
    compact(sealed_stream, created_us=CLOCK)
    data = parquet_files(sealed_stream)[0]
    for at in Random(1).sample(range(data.stat().st_size), 40):
        flip(data, at)
        assert not verify(sealed_stream).fine
        flip(data, at)
    assert verify(sealed_stream).fine


def test_a_damaged_page_is_reported_and_never_returned(sealed_stream: Path) -> None:
    compact(sealed_stream, created_us=CLOCK)
    column = pq.ParquetFile(parquet_files(sealed_stream)[0]).metadata.row_group(1).column(0)
    flip(
        parquet_files(sealed_stream)[0],
        column.dictionary_page_offset + column.total_compressed_size - 9,
    )
    with pytest.raises(StreamCorrupt, match="row group 1 with offsets"):
        read(sealed_stream)
    report = repair(sealed_stream)
    assert report.fine
    assert 0 < report.messages < len(MESSAGES)
    assert [m for m in MESSAGES if m in read(sealed_stream)] == read(sealed_stream)


def test_a_damaged_manifest_a_damaged_footer_and_missing_data_are_reported(
    sealed_stream: Path,
) -> None:
    compact(sealed_stream, created_us=CLOCK)
    data, manifest = parquet_files(sealed_stream)[0], segment_files(sealed_stream)[0].path
    flip(manifest, 300)
    with pytest.raises(StreamCorrupt, match="the manifest fails its CRC"):
        read(sealed_stream)
    flip(manifest, 300)
    flip(data, data.stat().st_size - 100)
    with pytest.raises(StreamCorrupt, match="the footer fails its CRC"):
        read(sealed_stream)
    data.unlink()
    with pytest.raises(StreamCorrupt, match="the file of a cold segment is missing"):
        read(sealed_stream)
    assert [problem.healable for problem in verify(sealed_stream).problems] == [False]


def test_one_damaged_segment_does_not_keep_the_others_from_becoming_cold(
    sealed_stream: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "COLD_BYTES", 1)
    flip(segment_files(sealed_stream)[1].path, 700)
    done = compact(sealed_stream, created_us=CLOCK)
    assert len(done.added) == 3
    assert len(done.problems) == 1
    assert "00000000000000000100.arrow" in done.problems[0]
    assert tiers(sealed_stream) == [".cold", ".arrow", ".cold", ".cold", ".log"]


def test_a_manifest_has_the_documented_format(sealed_stream: Path) -> None:
    compact(sealed_stream, created_us=CLOCK)
    note, summary = read_manifest(segment_files(sealed_stream)[0].path)
    assert note.file == f"cold/{parquet_files(sealed_stream)[0].name}"
    assert note.nbytes == parquet_files(sealed_stream)[0].stat().st_size
    assert note.segment.created == CLOCK
    groups = pq.ParquetFile(parquet_files(sealed_stream)[0]).metadata
    rows = [groups.row_group(i).num_rows for i in range(groups.num_row_groups)]
    assert summary.column("rows").to_pylist() == rows
    assert all(40 <= count <= 80 for count in rows)
    assert SegmentCatalog(sealed_stream).first_offset() == 0


# ---- an object store ---------------------------------------------------------------------------------


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What answers to s3://bucket: a file system that is not the local one, over a local folder."""
    folder = tmp_path / "bucket"
    folder.mkdir()
    remote = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
    found = SimpleNamespace(
        FileSystem=SimpleNamespace(from_uri=lambda uri: (remote, uri.removeprefix("s3://bucket/"))),
        LocalFileSystem=fs.LocalFileSystem,
        FileSelector=fs.FileSelector,
    )
    monkeypatch.setattr(pyarrow, "fs", found)
    return folder


def test_an_object_store_is_read_for_data_only(sealed_stream: Path, bucket: Path) -> None:
    compact(sealed_stream, to="s3://bucket/events/", created_us=CLOCK)
    assert cold_segment(sealed_stream).known.file.startswith("s3://bucket/events/0000")
    assert read(sealed_stream) == MESSAGES
    assert verify(sealed_stream).fine
    data = next((bucket / "events").iterdir())
    flip(data, 2000)
    assert not verify(sealed_stream).fine
    data.unlink()
    assert read(sealed_stream, "region = 'nowhere'") == []
    with pytest.raises(StreamCorrupt, match="the file of a cold segment is missing"):
        read(sealed_stream)


def test_a_reader_fails_clearly_when_retention_has_deleted_its_object(
    sealed_stream: Path, bucket: Path
) -> None:
    compact(sealed_stream, to="s3://bucket/events/", created_us=CLOCK)
    segment = cold_segment(sealed_stream)
    delete_cold(segment.path)
    with pytest.raises(StreamError, match="no longer exists: if retention has deleted it"):
        segment.chunk(0).offsets()
    assert read(sealed_stream) == []


def test_retention_and_delete_reach_the_object_store(sealed_stream: Path, bucket: Path) -> None:
    compact(sealed_stream, to="s3://bucket/events", before_offset=200, created_us=CLOCK)
    compact(sealed_stream, to="s3://bucket/events", created_us=CLOCK)
    with Stream.open(sealed_stream) as opened:
        opened.trim(before_offset=200)
    assert len(list((bucket / "events").iterdir())) == 1
    assert read(sealed_stream) == MESSAGES[200:]
    Stream.delete(sealed_stream)
    assert list((bucket / "events").iterdir()) == []
