"""Whatever is left of the files after a crash, the next writer brings them into order; readers need not wait for it."""

import os
import shutil
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from headgate.errors import StreamCorrupt
from headgate.message import Message
from headgate.streams.format import index_path, log_path, segment_files
from headgate.streams.segments.hot_segment import HotSegment
from headgate.streams.stream import Stream
from headgate.streams.upkeep import recovery
from headgate.streams.upkeep.verification import repair, verify

MESSAGES = [
    Message(
        b"payload %d" % i,
        topic=f"t.{i % 3}",
        timestamp=1000 + i,
        headers={"n": i, "r": f"r{i % 4}"},
    )
    for i in range(60)
]


@pytest.fixture
def path(tmp_path):
    """A stream of 12 chunks with five messages each."""
    path = tmp_path / "s"
    with Stream.create(path, indexed=["r"]) as stream, stream.producer("p") as producer:
        for start in range(0, 60, 5):
            producer.publish_many(MESSAGES[start : start + 5])
            producer.flush()
    return path


def log_of(path):
    return log_path(path, 0)


def index_of(path):
    return index_path(path, 0)


def read(path):
    with Stream.open(path) as stream:
        return list(stream.consume())


def write_more(path, *payloads):
    with Stream.open(path) as stream, stream.producer("p") as producer:
        for payload in payloads:
            producer.publish(Message(payload))


def unsettle(path):
    """As if the writer had been killed: nothing was noted as safely written."""
    from headgate.files import map_file
    from headgate.streams.segments.hot_index import encode_settled, read_index_header, settled_at

    head = read_index_header(memoryview(map_file(index_of(path))))
    with index_of(path).open("r+b") as file:
        file.seek(settled_at(head.length))
        file.write(encode_settled(0))


def ends_of(path):
    entries = HotSegment(log_of(path)).entries
    return (entries["position"] + entries["length"]).tolist()


def test_a_log_cut_anywhere_keeps_every_whole_chunk(path, tmp_path):
    size, ends = log_of(path).stat().st_size, ends_of(path)
    unsettle(path)
    rng = Random(1)
    for cut in [*rng.sample(range(ends[0], size), 12), size - 1, *ends[:-1:4]]:
        copy = tmp_path / "copy"
        shutil.copytree(path, copy)
        os.truncate(log_of(copy), cut)
        whole = sum(end <= cut for end in ends) * 5
        assert read(copy) == MESSAGES[:whole]  # a reader, before anyone repaired anything
        write_more(copy, b"new")
        found = read(copy)
        assert found[:-1] == MESSAGES[:whole]
        assert found[-1].payload == b"new"
        assert verify(copy).fine
        with Stream.open(copy) as stream, stream.producer("p") as producer:
            # The ids of what was cut off are free again.
            assert producer.last_publishing_id == whole
        shutil.rmtree(copy)


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize(
    "damage", ["missing", "empty", "short", "torn entry", "flipped", "header", "foreign"]
)
def test_a_damaged_index_is_rebuilt(path, tmp_path, damage, settled):
    index = index_of(path)
    before = index.read_bytes()
    if not settled:
        unsettle(path)
    content = bytearray(index.read_bytes())
    width = HotSegment(log_of(path)).shape.dtype.itemsize
    match damage:
        case "missing":
            index.unlink()
        case "empty":
            index.write_bytes(b"")
        case "short":
            index.write_bytes(content[: -3 * width])
        case "torn entry":
            index.write_bytes(content[:-7])
        case "flipped":
            content[-5 * width] ^= 1
            index.write_bytes(content)
        case "header":
            content[12] ^= 1
            index.write_bytes(content)
        case "foreign":
            other = tmp_path / "other"
            with (
                Stream.create(other, indexed=["x"]) as stream,
                stream.producer("named") as producer,
            ):
                producer.publish(Message(b"", headers={"x": 1}))
                producer.flush()
                stream.seal(all=True)
            with Stream.open(other) as stream, stream.producer() as producer:
                producer.publish(Message(b"x"))
            shutil.copy(index_path(other, 1), index)
    assert read(path) == MESSAGES
    report = verify(path)
    assert [problem.file for problem in report.problems] == [str(index)]
    assert all(problem.healable for problem in report.problems)
    write_more(path)
    assert verify(path).fine
    assert index.read_bytes() == before
    assert read(path) == MESSAGES


def test_a_chunk_whose_entry_was_never_written_is_kept(path):
    os.truncate(
        index_of(path),
        index_of(path).stat().st_size - HotSegment(log_of(path)).shape.dtype.itemsize,
    )
    assert read(path) == MESSAGES
    write_more(path, b"new")
    assert [m.payload for m in read(path)] == [*(m.payload for m in MESSAGES), b"new"]


def test_an_unfinished_append_of_many_chunks_is_removed(tmp_path):
    path = tmp_path / "s"
    with Stream.create(path, chunk_messages=5, chunk_bytes=400) as stream:
        stream.append(pa.table({"n": [1, 2, 3]}))
        stream.deposit("p", 7, pa.table({"n": range(200)}))
    segment = HotSegment(log_of(path))
    ends = (segment.entries["position"] + segment.entries["length"]).tolist()
    assert len(ends) > 4
    for end in ends[1:-1]:
        copy = tmp_path / "copy"
        shutil.copytree(path, copy)
        index_of(copy).unlink()
        os.truncate(log_of(copy), end)
        assert [m.headers["n"] for m in read(copy)] == [1, 2, 3]
        with Stream.open(copy) as stream:
            stream.deposit("p", 7, pa.table({"n": range(200)}))
            assert stream.next_offset == 203
        shutil.rmtree(copy)


def test_the_table_of_producers_is_rebuilt_from_the_log_alone(tmp_path):
    path = tmp_path / "s"
    with Stream.create(path, segment_bytes=5000) as stream:
        for i in range(30):
            with stream.producer(f"p{i % 7}") as producer:
                producer.publish(Message(b"x" * 500), publishing_id=i * 10)
    assert len(segment_files(path)) > 2
    for file in segment_files(path):
        index_path(path, file.first_offset).unlink()
    with Stream.open(path) as stream:
        for i in range(23, 30):
            with stream.producer(f"p{i % 7}") as producer:
                assert producer.last_publishing_id == i * 10


def test_unfinished_files_of_a_crash_are_removed(path):
    with Stream.open(path) as stream:
        stream.seal(all=True)
    # Killed between the rename of the sealed file and the removal of the hot pair, and while making others.
    log_path(path, 0).write_bytes(b"old")
    index_path(path, 0).write_bytes(b"old")
    (path / ".stream.json.1.new").write_bytes(b"half")
    (path / "00000000000000000060.arrow.unfinished").write_bytes(b"half")
    index_path(path, 999).write_bytes(b"an index whose log was never made")
    assert read(path) == MESSAGES
    write_more(path)
    names = {file.name for file in path.iterdir() if file.is_file()}
    options = {"stream.json", "stream.json.copy"}
    others = {"lock", "cold.lock", "outlines"}
    assert names == {*options, *others, f"{0:020d}.arrow", f"{60:020d}.log", f"{60:020d}.idx"}
    assert read(path) == MESSAGES


def test_a_new_segment_follows_a_sealed_one_when_a_crash_prevented_it(path):
    with Stream.open(path) as stream:
        stream.seal(all=True)
    log_path(path, 60).unlink()
    index_path(path, 60).unlink()
    write_more(path, b"new")
    with Stream.open(path) as stream, stream.producer("p") as producer:
        assert stream.next_offset == 61
        assert producer.last_publishing_id == 60


# ---- damage ------------------------------------------------------------------------------------------


def flip(path, position):
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0x20]))


def readable_offsets(path):
    """What can be read when every chunk is tried on its own, and the errors."""
    found, errors = [], []
    with Stream.open(path) as stream:
        for start in range(0, 60, 5):
            try:
                for batch in stream.scan(start=start, end=start + 5):
                    found += batch.column("offset").to_pylist()
            except StreamCorrupt as problem:
                errors.append(problem)
    return found, errors


@pytest.mark.parametrize("with_index", [True, False])
def test_a_flipped_byte_anywhere_costs_one_chunk_and_is_named(path, tmp_path, with_index):
    header = HotSegment(log_of(path)).head.length
    size, rng = log_of(path).stat().st_size, Random(2)
    for position in rng.sample(range(header, size), 12):
        copy = tmp_path / "copy"
        shutil.copytree(path, copy)
        flip(log_of(copy), position)
        if not with_index:
            index_of(copy).unlink()
        found, errors = readable_offsets(copy)
        ends = ends_of(path)
        hit = next(i for i, end in enumerate(ends) if position < end)
        if not with_index and hit == 11 and not errors:
            assert found == list(
                range(55)
            )  # without an index, the last chunk may as well be a torn tail
        else:
            assert found == [o for o in range(60) if o // 5 != hit]
            assert [error.file for error in errors] == [str(log_of(copy))]
            begin = ends[hit - 1] if hit else header
            assert begin <= errors[0].position < ends[hit]
        report = verify(copy)
        assert not report.fine
        assert all(problem.healable for problem in report.problems)
        shutil.rmtree(copy)


def test_a_writer_goes_on_behind_a_damaged_chunk(path):
    ends = ends_of(path)
    flip(log_of(path), ends[5] + 100)
    write_more(path, b"new")
    found, errors = readable_offsets(path)
    assert len(errors) == 1
    assert found == [o for o in range(60) if o // 5 != 6]
    with Stream.open(path) as stream:
        assert [m.payload for m in stream.consume(start=60)] == [b"new"]


def test_a_damaged_last_chunk_is_no_torn_tail_when_it_was_settled(path):
    flip(log_of(path), ends_of(path)[-1] - 1)
    write_more(path, b"new")
    found, errors = readable_offsets(path)
    assert found == list(range(55))
    assert len(errors) == 1
    with Stream.open(path) as stream:
        assert stream.next_offset == 61


def test_settled_chunks_are_not_cut_off_with_the_torn_tail_behind_them(path):
    """Readers have it mapped: to touch what is gone would kill them."""
    *_, begins, ends = ends_of(path)
    flip(log_of(path), begins)
    flip(index_of(path), index_of(path).stat().st_size - 1)  # so that the entry is not believed
    with log_of(path).open("ab") as log:
        log.write(b"torn")
    with Stream.open(path) as stream:
        stream.producer().close()
        assert log_of(path).stat().st_size == ends
    assert verify(path).problems[0].position == begins


def test_repair_keeps_the_offsets_of_a_settled_chunk_at_the_end(path):
    flip(log_of(path), ends_of(path)[-1] - 1)
    (problem,) = verify(path).problems
    assert "fails its CRC" in problem.what
    report = repair(path)
    assert report.fine
    assert report.messages == 55
    with Stream.open(path) as stream:
        assert stream.next_offset == 60  # they were given away once, and are not given away again


def test_an_index_rebuilt_under_other_options_covers_only_the_chunks_it_read(tmp_path):
    path = tmp_path / "s"
    with Stream.create(path) as stream, stream.producer() as producer:
        common = {f"h{i}": i for i in range(128)}
        producer.publish_many([Message(b"", headers=common)] * 5)
        producer.publish(Message(b"found", headers={**common, "rare": "x"}))
    with Stream.open(path) as stream:
        stream.reconfigure(indexed=["rare", "h5"])
    index_of(path).unlink()
    write_more(path)
    with Stream.open(path) as stream:
        assert [m.payload for m in stream.consume("rare = 'x'")] == [
            b"found"
        ]  # it sits in the overflow
        scan = stream.scan("h5 = 6")
        assert list(scan) == []
        assert scan.stats.chunks_none == 1


@pytest.mark.parametrize("with_index", [True, False])
def test_repair_puts_a_hole_where_the_damage_is(path, with_index):
    ends = ends_of(path)
    flip(log_of(path), ends[2] + 70)
    flip(log_of(path), ends[7] - 1)
    if not with_index:
        index_of(path).unlink()
    report = repair(path)
    assert report.fine
    assert report.messages == 50
    lost = {*range(15, 20), *range(35, 40)}
    with Stream.open(path) as stream:
        offsets = [o for batch in stream.scan() for o in batch.column("offset").to_pylist()]
        assert offsets == [o for o in range(60) if o not in lost]
        assert [m.headers["n"] for m in stream.consume("r = 'r3'")] == [
            n for n in range(60) if n % 4 == 3 and n not in lost
        ]
    kept = sorted(file.name for file in path.glob("*.damaged-*"))
    assert len(kept) == 2
    # An index rebuilt from the repaired log knows the holes, and so does a sealed segment.
    index_of(path).unlink()
    write_more(path, b"new")
    with Stream.open(path) as stream:
        stream.seal(all=True)
        assert len(list(stream.consume())) == 51
        assert stream.next_offset == 61
    assert verify(path).fine


def test_a_damaged_log_header_loses_only_the_publishing_ids_in_it(path):
    with Stream.open(path) as stream:
        stream.seal(all=True)
    write_more(path, b"new")
    log = log_path(path, 60)
    flip(log, 20)
    assert [m.payload for m in read(path)][-1] == b"new"
    assert [problem.position for problem in verify(path).problems] == [0]
    with Stream.open(path) as stream, stream.producer("p") as producer:
        assert producer.last_publishing_id == 60
        producer.publish(Message(b"newer"))
    assert verify(path).fine
    assert [m.payload for m in read(path)][-2:] == [b"new", b"newer"]


def test_messages_missing_between_two_segments_are_reported_and_skipped_after_repair(tmp_path):
    path = tmp_path / "s"
    stream = Stream.create(path, segment_bytes=5000, chunk_messages=2)
    with stream, stream.producer() as producer:
        for i in range(40):
            producer.publish(Message(b"x" * 500, headers={"n": i}))
    first = HotSegment(segment_files(path)[0].path)
    cut = int(first.entries["position"][-1])
    lost = int(first.entries["count"][-1])
    os.truncate(segment_files(path)[0].path, cut)
    assert not verify(path).fine
    assert repair(path).fine
    with Stream.open(path) as stream:
        assert len(list(stream.consume())) == 40 - lost
        assert stream.next_offset == 40


def test_random_damage_is_repaired_and_never_crashes_a_reader(path, tmp_path):
    rng = Random(3)
    for _ in range(8):
        copy = tmp_path / "copy"
        shutil.copytree(path, copy)
        for _ in range(rng.randint(1, 6)):
            file = rng.choice([log_of(copy), index_of(copy)])
            flip(file, rng.randrange(file.stat().st_size))
        if rng.random() < 0.3:
            os.truncate(log_of(copy), rng.randrange(log_of(copy).stat().st_size))
        found, _ = readable_offsets(copy)
        assert set(found) <= set(range(60))
        report = repair(copy)
        assert report.fine, report.problems
        with Stream.open(copy) as stream:
            for batch in stream.scan():
                for offset, n in zip(
                    batch.column("offset").to_pylist(),
                    batch.column("h.i.n").to_pylist(),
                    strict=True,
                ):
                    assert offset == n
        shutil.rmtree(copy)


def test_an_open_reader_sees_the_chunks_that_recovery_and_the_next_writer_add(path):
    os.truncate(index_of(path), 30)
    segment = HotSegment(log_of(path))
    assert segment.next_offset == 60
    write_more(path, b"new")
    assert segment.refresh()
    assert segment.next_offset == 61
    assert not segment.refresh()
    assert np.array_equal(segment.chunk(12).offsets(), [60])


def test_verify_keeps_the_entries_it_finds_and_recovery_makes_each_missing_one_once(
    path, monkeypatch
):
    made = []
    real = recovery.index_entry
    monkeypatch.setattr(
        recovery, "index_entry", lambda *given: [made.append(given[2]), real(*given)][1]
    )
    assert verify(path).fine
    assert made == []
    index_of(path).unlink()
    write_more(path, b"more")
    assert len(made) == len(set(made)) == 12
    assert verify(path).fine


def test_every_damaged_chunk_costs_its_own_messages_only(path):
    segment = HotSegment(log_of(path))
    positions = [int(position) for position in segment.entries["position"]]
    segment.close()
    with log_of(path).open("r+b") as log:
        for position in positions[1::2]:
            log.seek(position)
            log.write(b"????")
    index_of(path).unlink()
    found = verify(path)
    assert found.messages == 30
    assert len([p for p in found.problems if p.position in positions[1::2]]) == 6
