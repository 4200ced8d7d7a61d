"""Following the archive of a queue, without Spark: every acked message is in exactly one batch, in any order of acks."""

from __future__ import annotations

import pickle
import uuid
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from headgate.errors import DataLost, HeadgateError, SparkOptionsError
from headgate.filters.logic import matches_filter
from headgate.filters.normal import bind_now
from headgate.filters.parser import parse
from headgate.filters.printer import to_text
from headgate.message import Message
from headgate.queues.database import Database, connect
from headgate.queues.engine import Operation, Publication, Rows, State, Statement
from headgate.queues.queue import Queue
from headgate.queues.sql.dialect import migrations_of
from headgate.queues.sql.operations import SqlOperations
from headgate.spark.datasource import HeadgateSource
from headgate.spark.options import parse_queue_follow
from headgate.spark.schema import queue_columns
from headgate.spark.source import queue_scan as scan
from headgate.spark.source.queue_micro import QueueMicroReader
from headgate.spark.source.queue_scan import scan_of
from tests import generate
from tests.unit.spark.ddl import struct

FIRST_WITH_TURNS = 4
SHARED_COLUMNS = (
    "SELECT name FROM pragma_table_info(?, 'main') "
    "INTERSECT SELECT name FROM pragma_table_info(?, 'newer')"
)


@pytest.fixture
def queue(database: Database) -> Queue:
    """Beside another one with an archive, whose turns are none of its own."""
    other = database.queue("another", archive=True)
    other.publish_many([b"x"] * 3)
    ack(other, 3)
    return database.queue("orders", archive=True)


def reader(url: str, schema: str = "offset bigint", **options: str) -> Any:
    given = {"path": f"queue:{url}#orders", "states": "archived", **options}
    return HeadgateSource(given).streamReader(struct(schema))


def ack(queue: Queue, count: int) -> list[int]:
    """Take the next ones and finish them; their ids."""
    taken = queue.claim(count)
    for delivery in taken:
        delivery.ack()
    return [delivery.id for delivery in taken]


def read(reader: Any, start: dict[str, int], end: dict[str, int]) -> list[dict[str, Any]]:
    """The rows of a batch, its tasks being elsewhere."""
    rows: list[dict[str, Any]] = []
    for partition in reader.partitions(start, end):
        task = pickle.loads(pickle.dumps((reader, partition)))
        for batch in task[0].read(task[1]):
            assert batch.schema.equals(reader.arrow)
            rows += batch.to_pylist()
    return rows


def offsets(reader: Any, start: dict[str, int], end: dict[str, int]) -> list[int]:
    return [row["offset"] for row in read(reader, start, end)]


EVERYTHING = ReadAllAvailable()


def test_a_later_ack_is_in_a_later_batch_whatever_the_id(url: str, queue: Queue) -> None:
    ids = queue.publish_many([b"x"] * 6)
    [first, *others] = queue.claim(3)
    for delivery in others:
        delivery.ack()
    made = reader(url)
    start = made.initialOffset()
    middle = made.latestOffset(start, EVERYTHING)
    assert offsets(made, start, middle) == ids[1:3]
    first.ack()
    assert ack(queue, 1) == ids[3:4]
    end = made.latestOffset(middle, EVERYTHING)
    assert offsets(made, middle, end) == [ids[0], ids[3]]
    assert made.latestOffset(end, EVERYTHING) == end
    assert end["messages"] == 4


def test_a_repeated_batch_has_equal_messages(url: str, queue: Queue) -> None:
    queue.publish_many([b"x"] * 20)
    ids = ack(queue, 8)
    made = reader(url)
    start = made.initialOffset()
    end = made.latestOffset(start, EVERYTHING)
    ack(queue, 8)
    again = reader(url, partitions="2")
    assert offsets(made, start, end) == offsets(again, start, end) == ids


@pytest.mark.postgres
def test_who_acks_first_and_commits_last_is_waited_for(postgres_url: str) -> None:
    import psycopg

    url = f"{postgres_url}&schema=s_{uuid.uuid4().hex[:12]}"
    schema = url.rpartition("=")[2]
    with connect(url) as database:
        queue = database.queue("orders", archive=True)
        ids = queue.publish_many([b"x"] * 4)
        slow, *others = queue.claim(3)
        made = reader(url)
        start = made.initialOffset()
        with psycopg.connect(postgres_url) as theirs:
            theirs.execute(f"SET search_path = {schema}")
            theirs.execute(
                "INSERT INTO archive (queue, id, acked_at, attempts, topic, headers, properties, priority, timestamp, payload) "
                "SELECT %s, %s, 0, 1, topic, headers, properties, priority, timestamp, payload FROM message WHERE id = %s",
                (queue.info.id, slow.id, slow.id),
            )
            for delivery in others:
                delivery.ack()  # and this is committed at once
            assert made.latestOffset(start, EVERYTHING) == start
            theirs.commit()
        middle = made.latestOffset(start, EVERYTHING)
        assert offsets(made, start, middle) == ids[:3]
        with psycopg.connect(postgres_url) as theirs:  # who has a turn, and never comes with it
            theirs.execute("SELECT pg_current_xact_id()")
            [last] = ack(queue, 1)
            assert made.latestOffset(middle, EVERYTHING) == middle
            theirs.rollback()
        assert offsets(made, middle, made.latestOffset(middle, EVERYTHING)) == [last]


def test_batches_of_many_runs_hold_every_match_once(
    url: str, queue: Queue, seed: int, full: bool
) -> None:
    rng = Random(f"{seed} following")
    position = reader(url).initialOffset()
    for _ in range(20 if full else 3):
        ids = queue.publish_many(list(map(Publication, generate.messages(rng, 120))))
        by_id = {one.id: one.message for one in queue.browse(page=500)}
        filter = bind_now(generate.filter(rng, depth=2), generate.NOW_US)
        found: list[int] = []
        acked: list[int] = []
        while len(acked) < len(ids):
            acked += ack(queue, rng.randint(1, 30))
            parts = str(rng.randint(1, 3))
            made = reader(url, filter=to_text(filter), partitions=parts)  # a new run each time
            while (end := made.latestOffset(position, ReadMaxRows(rng.randint(1, 40)))) != position:
                found += offsets(made, position, end)
                position = end
        assert found == [id for id in acked if matches_filter(filter, by_id[id])], to_text(filter)


def test_a_limit_cuts_batches_and_the_rest_is_told_as_lag(url: str, queue: Queue) -> None:
    queue.publish_many([b"x"] * 25)
    ids = ack(queue, 25)
    made = reader(url, maxMessagesPerTrigger="10")
    limit = made.getDefaultReadLimit()
    assert limit == ReadMaxRows(10)
    position, found, told = made.initialOffset(), [], []
    while (end := made.latestOffset(position, limit)) != position:
        found.append(offsets(made, position, end))
        told.append(made.reportLatestOffset()["messages"] - end["messages"])
        position = end
    assert found == [ids[:10], ids[10:20], ids[20:]]
    assert told == [15, 5, 0]
    assert reader(url).getDefaultReadLimit() == EVERYTHING


def test_an_available_now_query_ends_at_the_end_of_its_start(url: str, queue: Queue) -> None:
    queue.publish_many([b"x"] * 30)
    ids = ack(queue, 10)
    made = reader(url)
    start = made.initialOffset()
    made.prepareForTriggerAvailableNow()
    ack(queue, 10)
    end = made.latestOffset(start, EVERYTHING)
    assert offsets(made, start, end) == ids
    assert made.latestOffset(end, EVERYTHING) == end


def test_a_batch_is_cut_into_tasks_of_about_the_same_size(url: str, queue: Queue) -> None:
    ids = queue.publish_many([b"x"] * 2000)
    taken = queue.claim(2000)
    assert [delivery.id for delivery in taken] == ids
    queue.ack_and_claim(taken, 1)
    made = reader(url, partitions="4")
    start = made.initialOffset()
    end = made.latestOffset(start, EVERYTHING)
    parts = made.partitions(start, end)
    sizes = [sum(batch.num_rows for batch in made.read(part)) for part in parts]
    assert len(sizes) == 4
    assert all(400 <= size <= 600 for size in sizes)
    assert offsets(made, start, end) == ids
    assert [part.value.scanned for part in parts] == [2000, 0, 0, 0]


def test_the_turn_of_a_pruned_message_is_not_assigned_again(url: str, queue: Queue) -> None:
    queue.publish_many([b"x"] * 6)
    ack(queue, 3)
    made = reader(url)
    start = made.initialOffset()
    middle = made.latestOffset(start, EVERYTHING)
    assert queue.prune(timedelta(0)) >= 3
    assert made.latestOffset(middle, EVERYTHING) == middle
    queue.publish_many([b"y"] * 3)
    ids = ack(queue, 9)
    end = made.latestOffset(middle, EVERYTHING)
    assert offsets(made, middle, end) == ids != []


def test_messages_pruned_between_planning_and_reading_are_an_error_unless_allowed(
    url: str, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    queue.publish_many([b"x"] * 6)
    ack(queue, 6)
    made, going_on = reader(url), reader(url, failOnDataLoss="false")
    start = made.initialOffset()
    end = made.latestOffset(start, EVERYTHING)
    [planned] = made.partitions(start, end)
    assert queue.prune(timedelta(0)) >= 6
    with pytest.raises(DataLost, match=r"6 of 6 archived messages were pruned.*fail_on_data_loss"):
        list(made.read(planned))
    with pytest.raises(DataLost, match="6 of 6 archived messages were pruned"):
        made.partitions(start, end)
    assert offsets(going_on, start, end) == []
    assert "6 of 6 archived messages were pruned" in caplog.text


def test_messages_pruned_while_a_task_reads_are_an_error(
    url: str, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "_FIRST_PAGE", 4)
    queue.publish_many([b"x"] * 12)
    ack(queue, 12)
    made = reader(url)
    start = made.initialOffset()
    [planned] = made.partitions(start, made.latestOffset(start, EVERYTHING))
    found = made.messages(planned.value)
    assert next(found).num_rows == 4
    queue.prune(timedelta(0))
    with pytest.raises(DataLost, match="12 of 12 archived messages were pruned"):
        list(found)


def test_a_range_is_read_in_its_order_without_sorting(database: Database, queue: Queue) -> None:
    operations = database.engine.operations
    assert isinstance(operations, SqlOperations)
    dialect = operations.dialect
    scan = scan_of(
        queue.info.id, (), parse("n = 1"), queue_columns(struct("n int")), dialect, 0, in_turn=True
    )
    params = (scan.queue, 1, 1, 9, 1, 9, *scan.params)
    query = Statement(dialect.text("explain", query=scan.text), params)

    def ask() -> Operation[Rows]:
        return (yield query)

    plan = "\n".join(str(row[-1]) for row in database.engine.run(ask()))
    assert "archive_turn" in plan
    assert "Sort" not in plan
    assert "B-TREE" not in plan
    assert "m.headers" in scan.text  # the filter is the database's to answer
    assert scan.residual is None


# ---- the messages of a queue, read once ---------------------------------------------------------------


def looking(url: str, **options: str) -> QueueMicroReader:
    given = {"path": f"queue:{url}#orders", "states": "ready", **options}
    return QueueMicroReader(struct("offset bigint"), parse_queue_follow(given))


def test_a_queue_that_is_read_once_ends_where_its_first_run_began(url: str, queue: Queue) -> None:
    ids = queue.publish_many([b"x"] * 25)
    made = looking(url)
    position, found = made.initialOffset(), []
    end = made.latestOffset(position, ReadMaxRows(10))
    found += offsets(made, position, end)
    queue.publish_many([b"later"] * 10)
    again = looking(url)  # another run goes on from the checkpoint
    again.prepareForTriggerAvailableNow()
    while (further := again.latestOffset(end, ReadMaxRows(10))) != end:
        found += offsets(again, end, further)
        end = further
    assert found == ids
    assert sum(one.state == State.READY for one in queue.browse()) == 35  # nothing was claimed


def test_a_queue_that_is_read_once_skips_messages_that_were_taken(url: str, queue: Queue) -> None:
    ids = queue.publish_many([b"x"] * 25)
    made = looking(url)
    position = made.initialOffset()
    end = made.latestOffset(position, ReadMaxRows(10))
    ack(queue, 20)
    assert offsets(made, position, end) == []
    rest = made.latestOffset(end, ReadMaxRows(10))
    assert offsets(made, end, rest) == ids[20:]
    assert made.latestOffset(rest, ReadMaxRows(10)) == rest


# ---- what cannot be parse_queue_follow -------------------------------------------------------------------------


def test_a_queue_that_was_created_again_is_refused(
    url: str, database: Database, queue: Queue
) -> None:
    queue.publish_many([b"x"] * 3)
    ack(queue, 3)
    made = reader(url)
    end = made.latestOffset(made.initialOffset(), EVERYTHING)
    database.delete("orders")
    database.queue("orders", archive=True)
    with pytest.raises(DataLost, match="new checkpoint"):
        made.latestOffset(end, EVERYTHING)


def test_an_older_copy_of_the_database_is_not_followed_on(url: str, queue: Queue) -> None:
    made = reader(url)
    ahead = {**made.initialOffset(), "turn": 2**50, "id": 7}
    with pytest.raises(DataLost, match="an older copy"):
        made.latestOffset(ahead, EVERYTHING)
    with pytest.raises(DataLost, match="an older copy"):
        made.partitions(ahead, {**ahead, "id": 9})


def test_a_task_on_a_lagging_server_is_refused(url: str, queue: Queue) -> None:
    queue.publish_many([b"x"] * 3)
    ack(queue, 3)
    made = reader(url)
    start = made.initialOffset()
    [part] = made.partitions(start, made.latestOffset(start, EVERYTHING))
    assert [batch.num_rows for batch in made.read(part)] == [3]
    ahead = InputPartition(part.value._replace(high=(2**50, 1)))
    with pytest.raises(DataLost, match="a replica that lags behind"):
        list(made.read(ahead))


@pytest.mark.postgres
def test_an_archive_out_of_a_dump_is_refused_until_its_turns_are_this_server_s(
    postgres_url: str,
) -> None:
    import psycopg

    schema = f"s_{uuid.uuid4().hex[:12]}"
    url = f"{postgres_url}&schema={schema}"
    with connect(url) as database, psycopg.connect(postgres_url, autocommit=True) as server:
        queue = database.queue("orders", archive=True)
        queue.publish_many([b"x"] * 6)
        ids = ack(queue, 3)
        server.execute(f"SET search_path = {schema}")
        server.execute("UPDATE archive SET turn = turn + 1000000000")
        made = reader(url)
        start = made.initialOffset()
        with pytest.raises(DataLost, match="restored from a dump") as refused:
            made.latestOffset(start, EVERYTHING)
        server.execute(str(refused.value).rpartition("once: ")[2])
        ids += ack(queue, 3)
        assert offsets(made, start, made.latestOffset(start, EVERYTHING)) == ids


def test_only_an_archive_is_followed(url: str, queue: Queue) -> None:
    for states in ("ready", "dead", "all"):
        with pytest.raises(
            SparkOptionsError, match="the messages of a queue cannot be read with readStream"
        ):
            reader(url, states=states)
    with pytest.raises(SparkOptionsError, match="from: only streams have this option"):
        reader(url, **{"from": "first"})


def test_tables_without_turns_are_refused_with_the_remedy(tmp_path: Path) -> None:
    file = tmp_path / "q.db"
    with connect(f"sqlite:///{file}") as database:
        database.queue("orders", archive=True)
    with_old_tables(file)
    made = reader(f"sqlite:///{file}")
    with pytest.raises(HeadgateError, match="to migrate them"):
        made.latestOffset(made.initialOffset(), EVERYTHING)
    with connect(f"sqlite:///{file}") as database:
        database.find("orders").publish(b"x")
        ids = ack(database.find("orders"), 1)
    start = made.initialOffset()
    assert offsets(made, start, made.latestOffset(start, EVERYTHING)) == ids


def with_old_tables(file: Path) -> None:
    """Give the database the tables from before there were turns, with the rows that it has."""
    file.rename(newer := file.with_suffix(".newer"))
    with closing(apsw.Connection(str(file))) as old:
        old.execute("CREATE TABLE headgate_migration (version INTEGER PRIMARY KEY)")
        for number, text in migrations_of("sqlite"):
            if number < FIRST_WITH_TURNS:
                old.execute(text)
        old.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        old.execute("ATTACH ? AS newer", (str(newer),))
        tables = (
            "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name LIKE 'headgate%'"
        )
        for (table,) in old.execute(tables).fetchall():
            shared = old.execute(SHARED_COLUMNS, (table, table)).fetchall()
            columns = ", ".join(f'"{name}"' for (name,) in shared)
            old.execute(f"DELETE FROM main.{table}")
            old.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM newer.{table}")
        old.execute("DELETE FROM main.headgate_migration WHERE version >= ?", (FIRST_WITH_TURNS,))


def test_messages_archived_before_turns_existed_come_first(tmp_path: Path) -> None:
    url, file = f"sqlite:///{tmp_path}/q.db", tmp_path / "q.db"
    with connect(url) as database:
        queue = database.queue("orders", archive=True)
        ids = queue.publish_many([Message(b"%d" % n) for n in range(10)])
        ack(queue, 5)
    with_old_tables(file)
    with connect(url) as database:
        queue = database.find("orders")
        ack(queue, 2)
        made = reader(url)
        start = made.initialOffset()
        some = made.latestOffset(start, ReadMaxRows(3))
        end = made.latestOffset(some, EVERYTHING)
        assert (offsets(made, start, some), offsets(made, some, end)) == (ids[:3], ids[3:7])


def test_an_ack_by_an_older_version_gets_a_turn(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/q.db"
    with connect(url) as database:
        queue = database.queue("orders", archive=True)
        queue.publish_many([b"x"] * 2)
        first = ack(queue, 1)
        connection = apsw.Connection(str(tmp_path / "q.db"))
        connection.execute(
            "INSERT INTO headgate_archive (queue, id, acked_at, attempts, topic, headers, properties, priority, timestamp, "
            "payload) VALUES (?, 99, 0, 1, 't', '{}', '{}', 0, 0, x'')",
            (queue.info.id,),
        )
        connection.close()
        made = reader(url)
        start = made.initialOffset()
        middle = made.latestOffset(start, EVERYTHING)
        last = ack(queue, 1)
        assert offsets(made, start, middle) == [*first, 99]
        assert offsets(made, middle, made.latestOffset(middle, EVERYTHING)) == last
