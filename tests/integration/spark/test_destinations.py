"""Destinations: whatever the place, a batch arrives as a whole and once, and nothing staged is left behind."""

import os
import pickle
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import apsw
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from headgate.columns.shred import shred_chunk
from headgate.errors import (
    DatabaseUnavailable,
    QueueError,
    SchemaTooNew,
    SparkOptionsError,
    StagingError,
    StreamExists,
)
from headgate.message import OPAQUE, Message
from headgate.queues.database import connect
from headgate.spark.sink.destination import BatchMark, Owner, destination_of, owner_of
from headgate.spark.sink.parquet import OURS
from headgate.spark.sink.staging import stage, valid_columns
from headgate.spark.sink.writer import MessageSink, batch_writer, query_id
from headgate.streams.stream import Stream

KINDS = ["stream", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres), "parquet"]
FIRST, NEXT = BatchMark("q", 0), BatchMark("q", 1)


class Place:
    """A destination under test, and how to look into it."""

    def __init__(self, kind, folder, url=""):
        self.kind, self.folder = kind, folder
        self.owner = Owner("owner", str(folder / "scratch"))
        self.to = {
            "stream": f"stream:{folder}/s",
            "parquet": f"parquet:{folder}/p",
            "sqlite": f"queue:sqlite:///{folder}/q.db",
            "postgres": f"queue:{url}#q-{uuid.uuid4().hex}",
        }[kind]
        self.destination = destination_of(self.to, "orders", self.owner)

    def payloads(self):
        if self.kind == "stream":
            with Stream.open(self.folder / "s") as stream:
                return [message.payload for message in stream.consume()]
        if self.kind == "parquet":
            files = sorted((self.folder / "p").glob("*.parquet"))
            return [p for file in files for p in pq.read_table(file)["payload"].to_pylist()]
        with connect(self.destination.url) as database:
            return [
                each.message.payload for each in database.queue(self.destination.queue).browse()
            ]

    def staged(self):
        return sorted(os.listdir(self.destination.staging))


@pytest.fixture
def place(request, tmp_path):
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""
    made = Place(request.param, tmp_path, url)
    made.destination.open()
    return made


everywhere = pytest.mark.parametrize("place", KINDS, indirect=True)


def columns(*messages):
    payloads = [message.payload for message in messages]
    return pa.record_batch(shred_chunk(messages, payloads, (), 1))


def staged(place, *payloads):
    batch = columns(*[Message(payload, "t", {"n": 1}) for payload in payloads])
    [part] = place.destination.prepare(stage(place.destination.staging, [batch]))
    return part


@everywhere
def test_a_batch_is_stored_in_the_order_of_its_files_and_no_staged_file_remains(place):
    files = [staged(place, b"a", b"b"), staged(place, b"c")]
    place.destination.commit(FIRST, files)
    assert place.payloads() == [b"a", b"b", b"c"]
    place.destination.collect_orphans()
    assert place.staged() == []


@everywhere
def test_a_repeated_batch_is_ignored(place):
    place.destination.commit(FIRST, [staged(place, b"a")])
    place.destination.commit(NEXT, [staged(place, b"b")])
    for mark in (FIRST, NEXT):
        place.destination.commit(mark, [staged(place, b"again"), staged(place, b"and again")])
    place.destination.collect_orphans()
    assert place.payloads() == [b"a", b"b"]
    assert place.staged() == []


@everywhere
def test_an_equal_number_of_another_query_is_another_batch(place):
    place.destination.commit(FIRST, [staged(place, b"a")])
    place.destination.commit(BatchMark("a new checkpoint", 0), [staged(place, b"a")])
    assert place.payloads() == [b"a", b"a"]


@everywhere
def test_an_empty_batch_changes_nothing(place):
    place.destination.commit(FIRST, [])
    assert place.payloads() == []


@everywhere
def test_files_of_a_batch_that_failed_are_discarded(place):
    place.destination.discard([staged(place, b"a")])
    assert place.staged() == []
    place.destination.commit(FIRST, [staged(place, b"b")])
    assert place.payloads() == [b"b"]


@everywhere
def test_orphans_are_collected_at_once_but_those_of_others_only_when_old(place):
    staged(place, b"orphan")
    other = replace(place.destination, owner=replace(place.owner, name="other"))
    other.open()
    batch = columns(Message(b"theirs"))
    young, old = (Path(other.prepare(stage(other.staging, [batch]))[0].file) for _ in range(2))
    os.utime(old, (1, 1))
    place.destination.collect_orphans()
    assert place.staged() == []
    assert (young.exists(), old.exists()) == (True, False)


@everywhere
def test_a_pickled_destination_is_equal(place):
    assert pickle.loads(pickle.dumps(place.destination)) == place.destination
    assert hash(destination_of(place.to, "orders", place.owner)) == hash(place.destination)


@everywhere
def test_a_file_the_driver_does_not_see_is_an_error_and_not_a_loss(place):
    files = [staged(place, b"a"), staged(place, b"b")]
    Path(files[1].file).unlink()
    with pytest.raises(StagingError, match="does not exist on the driver"):
        place.destination.commit(FIRST, files)
    assert place.payloads() == []


@everywhere
def test_an_executor_without_the_folder_raises(place):
    os.rmdir(place.destination.staging)
    with pytest.raises(StagingError, match="mount one file system"):
        staged(place, b"a")


@everywhere
def test_a_commit_that_is_interrupted_is_finished_by_the_next(place, monkeypatch):
    """Between any two files that are moved, opened or linked."""
    failing = {"stream": "link", "parquet": "rename"}.get(place.kind)
    files = [staged(place, b"a"), staged(place, b"b")]
    if failing is None:
        Path(files[1].file).rename(files[1].file + ".away")
        with pytest.raises(StagingError):  # the first is published by then
            place.destination.commit(FIRST, files)
        Path(files[1].file + ".away").rename(files[1].file)
    else:
        with monkeypatch.context() as patch:
            patch.setattr(os, failing, interrupted(getattr(os, failing), place.kind == "parquet"))
            with pytest.raises(KeyboardInterrupt):
                place.destination.commit(FIRST, files)
    place.destination.discard(files)  # as Spark does when a commit failed
    place.destination.commit(FIRST, [staged(place, b"a"), staged(place, b"b")])
    place.destination.collect_orphans()
    assert place.payloads() == [b"a", b"b"]
    assert place.staged() == []


@everywhere
def test_a_batch_of_a_transaction_that_is_written_again_is_stored_once(place):
    """As a function for `foreachBatch` does it, with options and through the writers Spark calls."""

    def write(payload, application, version):
        writer = batch_writer(
            StructType([StructField("payload", BinaryType())]),
            {"to": place.to, "queue": "orders", "txnAppId": application, "txnVersion": version},
            overwrite=False,
        )
        rows = pa.record_batch({"payload": pa.array([payload], pa.binary())})
        writer.commit([writer.write(iter([rows]))])

    name = "load/é " + "x" * 110
    for version in ("0", "0", "1", "0", "1"):
        write(version.encode(), name, version)
    write(b"other", "another application", "0")
    assert sorted(place.payloads()) == [b"0", b"1", b"other"]


@everywhere
def test_one_of_two_concurrent_commits_of_a_batch_is_stored_as_a_whole(place):
    rounds, writers = 8, 3
    for number in range(rounds):
        files = [
            [staged(place, f"{number} {writer} {n}".encode()) for n in range(writer + 1)]
            for writer in range(writers)
        ]
        together = threading.Barrier(writers)

        def commit(mark, files, together=together):
            together.wait(10)
            place.destination.commit(mark, files)

        with ThreadPoolExecutor(writers) as pool:
            tasks = [pool.submit(commit, BatchMark("q", number), mine) for mine in files]
        assert [task.result() for task in tasks] == [None] * writers
    stored = [payload.split() for payload in place.payloads()]
    for number in range(rounds):
        whose = [int(writer) for batch, writer, _ in stored if int(batch) == number]
        assert whose == [whose[0]] * (whose[0] + 1)


def interrupted(function, after_one):
    calls = []

    def called(*arguments):
        calls.append(arguments)
        if after_one and len(calls) == 1:
            return function(*arguments)
        raise KeyboardInterrupt

    return called


# ---- what only one kind does -------------------------------------------------------------------------


def test_while_another_holds_the_stream_commits_wait_in_its_inbox(tmp_path):
    place = Place("stream", tmp_path)
    place.destination.open()
    with Stream.open(tmp_path / "s") as holder, holder.producer():
        holder._committer.close()  # it adopts nothing by itself now
        place.destination.commit(FIRST, [staged(place, b"a")])
        again = staged(place, b"a")
        place.destination.commit(FIRST, [again])
        place.destination.discard([again])
        place.destination.collect_orphans()
        assert len(place.staged()) == 1
        assert place.payloads() == []
    assert place.payloads() == [b"a"]
    assert place.staged() == []


def test_aborting_after_a_deposit_keeps_its_files(tmp_path):
    place = Place("stream", tmp_path)
    place.destination.open()
    files = [staged(place, b"a")]
    with Stream.open(tmp_path / "s") as holder, holder.producer():
        holder._committer.close()
        place.destination.commit(FIRST, files)
        place.destination.discard(files)
    assert place.payloads() == [b"a"]


def test_parquet_files_hold_every_header_with_its_type(tmp_path):
    place = Place("parquet", tmp_path)
    place.destination.open()
    message = Message(b"p", "t", {"s": "x", "i": 1, "f": 0.5, "b": True, "o": OPAQUE}, 3, 5, "id")
    file = stage(place.destination.staging, [columns(message)])
    place.destination.commit(FIRST, place.destination.prepare(file))
    [row] = pq.read_table(tmp_path / "p").to_pylist()
    none = dict.fromkeys("sifb")
    assert dict(row.pop("headers")) == {
        "s": none | {"s": "x"},
        "i": none | {"i": 1},
        "f": none | {"f": 0.5},
        "b": none | {"b": True},
        "o": none,
    }
    assert row.pop("timestamp").timestamp() == 5e-6
    assert row == {
        "topic": "t",
        "priority": 3,
        "id": "id",
        "filter_value": None,
        "key": None,
        "properties": [],
        "payload": b"p",
    }
    assert {path.name for path in (tmp_path / "p").iterdir()} == {
        "_headgate",
        "part-0000000000-0000-q.parquet",
    }


def test_of_each_query_only_the_last_batch_is_remembered_beside_parquet(tmp_path):
    place = Place("parquet", tmp_path)
    place.destination.open()
    for number in range(3):
        place.destination.commit(BatchMark("q", number), [staged(place, b"%d" % number)])
    assert [path.name for path in (tmp_path / "p" / OURS).glob("*.json")] == ["q.json"]


def test_a_dropped_queue_forgets_its_batches(tmp_path):
    place = Place("sqlite", tmp_path)
    place.destination.open()
    place.destination.commit(FIRST, [staged(place, b"a")])
    with connect(place.destination.url) as database:
        database.delete("orders")
    place.destination.commit(FIRST, [staged(place, b"a")])
    assert place.payloads() == [b"a"]


def test_subscriptions_get_the_messages_of_a_batch(tmp_path):
    place = Place("sqlite", tmp_path)
    place.destination.open()
    with connect(place.destination.url) as database:
        sub = database.subscription("some", "n > 0")
        batch = columns(Message(b"a", "t", {"n": 1}), Message(b"b", "t", {"n": 0}))
        place.destination.commit(FIRST, [stage(place.destination.staging, [batch])])
        assert [each.message.payload for each in sub.browse()] == [b"a"]


@pytest.mark.parametrize(
    ("to", "problem"),
    [
        ("orders", "is no place for messages"),
        ("stream:", "names no place; write stream:data/orders"),
        ("stream:s3://bucket/x", "not in a file system mounted here"),
        ("queue:mysql://x", "is no database"),
        ("queue:sqlite:///", "is no database"),
        ("queue:sqlite:///x.db", "names no queue"),
    ],
)
def test_a_place_that_cannot_be_used_is_refused_with_how_to_write_it(to, problem):
    with pytest.raises(SparkOptionsError, match=problem):
        destination_of(to, "")


def test_a_directory_with_other_files_is_refused_as_a_stream(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    destination = destination_of(f"stream:{tmp_path}", "")
    for act in (destination.check, destination.open):
        with pytest.raises(StreamExists, match="not empty"):
            act()


def test_checking_creates_no_files(tmp_path):
    for to in ("stream:{}/s", "queue:sqlite:///{}/q.db#q", "parquet:{}/p"):
        destination_of(to.format(tmp_path), "").check()
    assert list(tmp_path.iterdir()) == []


# ---- a sink of several -------------------------------------------------------------------------------


def test_a_crash_between_two_parts_of_a_sink_leaves_each_batch_once_in_both(tmp_path, monkeypatch):
    places = [Place("stream", tmp_path), Place("sqlite", tmp_path)]
    sink = MessageSink(tuple(place.destination for place in places), None)
    sink.open()

    def files(payload):
        return [replace(staged(place, payload), destination=n) for n, place in enumerate(places)]

    with monkeypatch.context() as patch:
        queue = type(places[1].destination)
        patch.setattr(queue, "_publish", interrupted(queue._publish, False))
        with pytest.raises(KeyboardInterrupt):
            sink.commit(FIRST, files(b"a"))
    assert [place.payloads() for place in places] == [[b"a"], []]
    sink.commit(FIRST, files(b"a"))
    sink.commit(NEXT, files(b"b"))
    assert [place.payloads() for place in places] == [[b"a", b"b"]] * 2
    assert [place.staged() for place in places] == [[], []]


def test_two_destinations_that_are_one_place_get_the_files_of_both(tmp_path):
    place = Place("stream", tmp_path)
    sink = MessageSink((place.destination, Place("stream", tmp_path).destination), None)
    sink.open()
    sink.commit(FIRST, [staged(place, b"a"), replace(staged(place, b"b"), destination=1)])
    assert place.payloads() == [b"a", b"b"]


@pytest.mark.parametrize("place", KINDS[1:3], indirect=True)
def test_a_database_that_is_spelled_in_two_ways_is_one_place(place):
    """Else the second would find the batch remembered by the first, and drop its messages."""
    if place.kind == "sqlite":
        spelled = place.to.replace("/q.db", f"/../{place.folder.name}/q.db?synchronous=NORMAL")
    else:
        spelled = place.to.replace("postgresql://postgres:@", "postgres://postgres@").replace(
            "#", "&application_name=me#"
        )
    assert spelled != place.to
    sink = MessageSink((place.destination, destination_of(spelled, "orders", place.owner)), None)
    sink.open()
    sink.commit(FIRST, [staged(place, b"a"), replace(staged(place, b"b"), destination=1)])
    sink.commit(FIRST, [staged(place, b"again"), replace(staged(place, b"again"), destination=1)])
    assert place.payloads() == [b"a", b"b"]


# ---- whose work it is --------------------------------------------------------------------------------


def test_the_id_of_a_query_is_in_its_checkpoint(tmp_path):
    (tmp_path / "metadata").write_text('{"id":"f2d0c1"}')
    assert query_id(str(tmp_path)) == query_id(tmp_path.as_uri()) == "f2d0c1"
    assert owner_of(str(tmp_path)) == owner_of(tmp_path.as_uri())


def test_a_checkpoint_without_an_id_is_an_error_that_names_it(tmp_path):
    with pytest.raises(Exception, match="the id of the query cannot be read"):
        query_id(str(tmp_path))


def test_staged_rows_are_valid_or_refused_with_their_column():
    with pytest.raises(ValueError, match=r"column 'h\.f\.ratio'.*NaN"):
        valid_columns(pa.record_batch({"h.f.ratio": [1.0, float("nan")]}))


def test_checking_creates_no_tables_in_a_foreign_database(tmp_path):
    file = tmp_path / "theirs.db"
    apsw.Connection(str(file)).execute("CREATE TABLE theirs (a)").close()
    before = file.read_bytes()
    destination_of(f"queue:sqlite:///{file}#q", "").check()
    assert file.read_bytes() == before
    file.write_bytes(b"no database at all" * 100)
    with pytest.raises(QueueError, match=r"theirs\.db"):
        destination_of(f"queue:sqlite:///{file}#q", "").check()


@pytest.mark.postgres
def test_checking_makes_no_tables_on_a_server_and_refuses_one_that_does_not_answer(postgres_url):
    import psycopg

    schema = f"s_{uuid.uuid4().hex[:12]}"
    destination_of(f"queue:{postgres_url}&schema={schema}#q", "").check()
    with psycopg.connect(postgres_url) as connection:
        found = connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", (schema,))
        assert found.fetchall() == []
    with pytest.raises(DatabaseUnavailable):
        destination_of("queue:postgresql://nobody@127.0.0.1:1/x#q", "").check()


def test_tables_of_a_newer_headgate_are_refused_by_a_check(tmp_path):
    url = f"sqlite:///{tmp_path}/q.db"
    connect(url).close()
    apsw.Connection(str(tmp_path / "q.db")).execute(
        "INSERT INTO headgate_migration VALUES (9999)"
    ).close()
    with pytest.raises(SchemaTooNew):
        destination_of(f"queue:{url}#q", "").check()
