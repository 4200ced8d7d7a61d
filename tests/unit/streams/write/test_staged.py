"""Deposits by reference: staged files become part of a stream as a whole, once, or are left for the collector."""

import os

import pyarrow as pa
import pytest

from headgate.columns.tables import ENOUGH_ROWS, join_batches
from headgate.errors import StreamCorrupt
from headgate.streams import stream as stream_module
from headgate.streams.stream import Stream
from headgate.streams.upkeep.verification import verify
from headgate.streams.write import inbox
from headgate.streams.write.inbox import (
    all_named_files,
    deposit_path,
    deposits,
    named_files,
    read_deposit,
    write_reference,
)
from headgate.streams.write.staged import (
    StagedFile,
    orphans,
    read_staged,
    staged_folder,
    write_staged,
)
from headgate.streams.write.writer import Writer
from tests.unit.streams.write.inboxes import adopt_deposits, payloads


def batch(*payloads, **columns):
    return pa.record_batch({"payload": pa.array(payloads, pa.binary()), **columns})


def staged(path, name, *batches):
    folder = staged_folder(path)
    folder.mkdir(exist_ok=True)
    written = write_staged(folder / name, batches)
    return StagedFile(name, written.length, written.crc)


def staged_names(path):
    return sorted(os.listdir(staged_folder(path)))


# ---- files -------------------------------------------------------------------------------------------


def test_a_staged_file_holds_batches_whose_columns_differ(tmp_path):
    words = pa.array(["x", "y", "x", "x"] * 2500).dictionary_encode()
    given = [
        pa.record_batch({"payload": pa.array([b"a"] * 10_000), "h.s.region": words}),
        pa.record_batch({"payload": pa.array([b"b"] * 9_000), "h.i.amount": range(9_000)}),
    ]
    written = write_staged(tmp_path / "f.arrow", given)
    found = list(read_staged(tmp_path / "f.arrow", written.length, written.crc))
    assert [b.to_pydict() for b in found] == [b.to_pydict() for b in given]
    assert written.rows == 19_000


def test_no_file_is_written_without_rows(tmp_path):
    assert write_staged(tmp_path / "f.arrow", [batch()]) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_damaged_staged_file_is_refused(tmp_path, damage):
    file = tmp_path / "f.arrow"
    written = write_staged(file, [batch(b"abc")])
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content if damage == "changed" else content[:-1])
    with pytest.raises(StreamCorrupt, match="another length or CRC than the deposit says"):
        read_staged(file, written.length, written.crc)


def test_many_small_batches_become_few_and_keep_rows_and_order():
    def part(number):
        columns = {"payload": pa.array([b"%d" % number] * 3)}
        if number % 3:
            columns["h.s.kind"] = pa.array(["a", "b", None]).dictionary_encode()
        if number % 5 == 0:
            columns["h.s.name"] = pa.array([f"{number}", None, "n"])
        elif number % 7 == 0:
            columns["h.s.name"] = pa.array(["n"] * 3).dictionary_encode()
        return pa.record_batch(columns)

    given = [part(number) for number in range(4000)]
    found = list(join_batches(given))
    assert [b.num_rows for b in found][:-1] == [ENOUGH_ROWS // 3 * 3 + 3]
    expected = [row for b in given for row in b.to_pylist()]
    rows = [row for b in found for row in b.to_pylist()]
    assert [{k: v for k, v in row.items() if v is not None} for row in rows] == [
        {k: v for k, v in row.items() if v is not None} for row in expected
    ]


def test_joined_batches_keep_only_the_words_that_occur():
    words = pa.array([f"w{n}" for n in range(50_000)] * 2).dictionary_encode()
    [found] = join_batches([pa.record_batch({"h.s.word": words.slice(7, 3)})])
    assert found.nbytes < 1000
    assert found.column(0).to_pylist() == ["w7", "w8", "w9"]


# ---- deposits ----------------------------------------------------------------------------------------


def test_a_deposit_appends_the_files_it_names_in_order_and_removes_them(path):
    files = [staged(path, "2.arrow", batch(b"a", b"b")), staged(path, "1.arrow", batch(b"c"))]
    other = staged(path, "3.arrow", batch(b"an orphan"))
    with Stream.open(path) as stream:
        assert stream.deposit_staged("spark", 0, files)
    assert payloads(path) == [b"a", b"b", b"c"]
    assert staged_names(path) == [other.name]
    assert deposits(path) == []
    assert not verify(path).problems


def test_a_repeated_deposit_is_dropped_with_the_files_it_names(path):
    with Stream.open(path) as stream:
        stream.deposit_staged("spark", 3, [staged(path, "1.arrow", batch(b"a"))])
        stream.deposit_staged("spark", 3, [staged(path, "2.arrow", batch(b"again"))])
        stream.deposit_staged("spark", 2, [staged(path, "3.arrow", batch(b"older"))])
    assert payloads(path) == [b"a"]
    assert staged_names(path) == []


def test_a_waiting_deposit_is_not_replaced(path):
    first, second = staged(path, "1.arrow", batch(b"a")), staged(path, "2.arrow", batch(b"a"))
    assert write_reference(path, "spark", 0, [first])
    assert not write_reference(path, "spark", 0, [second])
    assert all_named_files(path) == {staged_folder(path) / "1.arrow"}
    adopt_deposits(path)
    assert payloads(path) == [b"a"]
    assert staged_names(path) == ["2.arrow"]


def test_the_lock_holder_adopts_the_files_a_deposit_names(path):
    with Stream.open(path) as holder, holder.producer("busy"):
        with Stream.open(path) as outsider:
            files = [staged(path, "1.arrow", batch(b"theirs"))]
            assert not outsider.deposit_staged("spark", 1, files)
        consumer = holder.consume(follow=True)
        assert next(consumer).payload == b"theirs"
        consumer.close()
    assert staged_names(path) == []


def test_a_deposit_made_while_a_task_holds_the_lock_is_adopted_when_it_ends(path, monkeypatch):
    seal = stream_module.seal_segments

    def sealing(*arguments, **named):
        with Stream.open(path) as outsider:
            files = [staged(path, "1.arrow", batch(b"theirs"))]
            assert not outsider.deposit_staged("spark", 0, files)
        return seal(*arguments, **named)

    monkeypatch.setattr(stream_module, "seal_segments", sealing)
    with Stream.open(path) as stream:
        stream.seal()
    assert payloads(path) == [b"theirs"]


def test_a_deposit_is_stored_as_a_whole_or_not_at_all(path, monkeypatch):
    files = [staged(path, f"{n}.arrow", batch(*[b"%d" % n] * 25)) for n in range(3)]
    write_reference(path, "spark", 0, files)
    append, chunks = Writer._append, []

    def failing(self, *arguments, **named):
        chunks.append(1)
        if len(chunks) == 2:
            raise OSError(28, "No space left on device")
        return append(self, *arguments, **named)

    monkeypatch.setattr(Writer, "_append", failing)
    with pytest.raises(Exception, match="No space left"):
        adopt_deposits(path)
    assert payloads(path) == []
    assert len(staged_names(path)) == 3
    monkeypatch.undo()
    assert adopt_deposits(path)
    assert payloads(path) == [b"0"] * 25 + [b"1"] * 25 + [b"2"] * 25


class Killed(BaseException):
    """Nothing after it runs, as after SIGKILL."""


@pytest.mark.parametrize("step", ["before the deposit goes", "before the files go"])
def test_a_process_killed_while_it_adopts_stores_nothing_twice(path, monkeypatch, step):
    files = [staged(path, "1.arrow", batch(b"a", b"b"))]
    write_reference(path, "spark", 0, files)

    def killed(*_):
        raise Killed

    with monkeypatch.context() as patch:
        if step == "before the deposit goes":
            # What the process had on disk when it died: appended, and the deposit still there.
            kept = deposit_path(path, "spark", 0).read_bytes()
        patch.setattr(inbox, "remove_staged", killed)
        with pytest.raises(Killed):
            adopt_deposits(path)
        if step == "before the deposit goes":
            deposit_path(path, "spark", 0).write_bytes(kept)
    adopt_deposits(path)
    assert payloads(path) == [b"a", b"b"]
    left = orphans(staged_folder(path), all_named_files(path), horizon_s=0)
    assert [file.name for file in left] == ([] if "deposit" in step else ["1.arrow"])


def test_a_deposit_whose_staged_file_is_missing_is_rejected_with_the_reason(path):
    files = [staged(path, "1.arrow", batch(b"a")), staged(path, "2.arrow", batch(b"b"))]
    write_reference(path, "spark", 0, files)
    (staged_folder(path) / "2.arrow").unlink()
    adopt_deposits(path)
    assert payloads(path) == []
    assert deposits(path) == []
    [reason] = (path / "inbox").glob("*.rejected.txt")
    assert "2.arrow is gone" in reason.read_text()
    assert all_named_files(path) == {staged_folder(path) / f"{n}.arrow" for n in (1, 2)}


def test_a_deposit_that_another_thread_adopts_first_is_not_rejected(path, monkeypatch):
    file = staged(path, "1.arrow", batch(b"a"))
    write_reference(path, "spark", 0, [file])
    [deposit] = deposits(path)
    (staged_folder(path) / file.name).unlink()
    read = inbox._read_files

    def late(*arguments):
        deposit.path.unlink()  # the other one is done
        return read(*arguments)

    monkeypatch.setattr(inbox, "_read_files", late)
    with pytest.raises(FileNotFoundError):
        read_deposit(deposit)
    adopt_deposits(path)
    assert list((path / "inbox").glob("*.rejected")) == []


def test_a_deposit_cannot_name_a_file_outside_of_its_folder(path):
    for name in ("../../stream.json", "/etc/passwd"):
        with pytest.raises(StreamCorrupt, match="out of its folder"):
            StagedFile(name, 0, 0)


def test_files_younger_than_the_horizon_are_not_orphans(path):
    for name in ("old.arrow", "new.arrow"):
        staged(path, name, batch(b"a"))
    folder = staged_folder(path)
    os.utime(folder / "old.arrow", (1, 1))
    assert orphans(folder, (), horizon_s=3600) == [folder / "old.arrow"]
    assert orphans(folder, {folder / "old.arrow"}, horizon_s=3600) == []


def test_the_files_a_deposit_names_are_read_from_its_meta_alone(path):
    file = staged(path, "1.arrow", batch(b"a"))
    write_reference(path, "spark", 5, [file])
    [deposit] = deposits(path)
    assert named_files(deposit) == (file,)
