"""The reader of a queue, without Spark: what its tasks give is what the reference predicate selects."""

from __future__ import annotations

import pickle
import sys
import uuid
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pyarrow as pa
import pytest
from pyspark.sql.datasource import GreaterThan, IsNotNull, LessThan
from pyspark.sql.types import (
    BooleanType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from headgate.errors import (
    DatabaseUnavailable,
    HeadgateError,
    MissingExtra,
    QueueNotFound,
    SchemaTooNew,
    SparkOptionsError,
)
from headgate.filters.logic import matches_filter
from headgate.filters.normal import bind_now
from headgate.filters.parser import parse
from headgate.filters.printer import to_text
from headgate.message import OPAQUE, Message
from headgate.pipelines.definition import STATES, parse_states
from headgate.queues.database import Database, connect
from headgate.queues.engine import DeliverySnapshot, Operation, Publication, Rows, State, Statement
from headgate.queues.queue import Queue
from headgate.queues.sql.operations import SqlOperations
from headgate.spark.datasource import HeadgateSource
from headgate.spark.schema import LOSSLESS, queue_columns
from headgate.spark.source.queue_batch import worthwhile_tasks
from headgate.spark.source.queue_scan import next_page, scan_of, split_range
from tests import generate
from tests.pushed import answered_by_spark, in_spark, some_filter
from tests.unit.spark.ddl import struct

NAMES = ("a", "b", "c", "region", "x-y", "with space", "a.b", "é😀")
TYPES = (StringType(), LongType(), IntegerType(), DoubleType(), BooleanType())


@pytest.fixture
def queue(database: Database) -> Queue:
    """Beside another one, so that ids have gaps and numbers of queues differ."""
    other = database.queue("another")
    other.publish_many([b"x"] * 3)
    return database.queue("orders")


def reader(url: str, schema: StructType | str = "offset bigint", **options: str) -> Any:
    given = {"path": f"queue:{url}#orders", **options}
    return HeadgateSource(given).reader(
        schema if isinstance(schema, StructType) else struct(schema)
    )


def read(reader: Any) -> list[dict[str, Any]]:
    """The rows of all tasks, each of them as a worker has it."""
    rows: list[dict[str, Any]] = []
    for partition in reader.partitions():
        task = pickle.loads(pickle.dumps((reader, partition)))
        for batch in task[0].read(task[1]):
            assert batch.schema.equals(reader.arrow)
            rows += batch.to_pylist()
    return rows


def offsets(reader: Any) -> list[int]:
    return [row["offset"] for row in read(reader)]


def some_schema(rng: Random) -> StructType:
    schema = StructType().add("offset", LongType())
    for name in rng.sample(NAMES, 3):
        schema.add(name, rng.choice(TYPES))
    more = [("timestamp", TimestampType()), ("topic", StringType()), ("priority", IntegerType())]
    for name, type_ in rng.sample(more, 2):
        schema.add(name, type_)
    return schema


def reference(held: Iterable[DeliverySnapshot], filter: Any, columns: Any, conditions: Any) -> Any:
    """What Spark has to show, worked out message by message."""
    for one in held:
        row = {column.name: in_spark(one.message, column) for column in columns[1:]}
        if matches_filter(filter, one.message) and all(
            answered_by_spark(condition, row[asked_of(condition)]) for condition in conditions
        ):
            yield {"offset": one.id, **row}


def asked_of(condition: Any) -> str:
    inner = getattr(condition, "child", condition)
    name: str = inner.attribute[0]
    return name


def test_the_tasks_give_what_the_filter_and_spark_s_conditions_select(
    url: str, queue: Queue, seed: int, full: bool
) -> None:
    rng = Random(f"{seed} queue")
    for message in generate.messages(rng, 300):
        queue.publish(message)
    held = list(queue.browse())
    assert len(held) == 300
    rounds = 1000 if url.startswith("sqlite") else 150  # a connection to a server takes its time
    for _ in range(rounds if full else 20):
        filter, schema = bind_now(generate.filter(rng), generate.NOW_US), some_schema(rng)
        columns = queue_columns(schema)
        conditions = [some_filter(rng, rng.choice(columns[1:])) for _ in range(rng.randint(0, 2))]
        made = reader(url, schema, filter=to_text(filter), partitions=str(rng.randint(1, 3)))
        kept = list(made.take(conditions))
        known = [condition for condition in conditions if condition not in kept]
        expected = list(reference(held, filter, columns, known))
        assert read(made) == expected, (to_text(filter), conditions)


def test_every_part_of_a_message_is_read_with_its_type(url: str, queue: Queue) -> None:
    headers = {"s": "é", "i": 2**62, "f": 1.0, "b": True, "o": OPAQUE, "null": "null"}
    queue.publish(Message(b"\0\xff", "t", headers, 7, 5, "id", "v", "k", {"subject": "s"}))
    [row] = read(reader(url, struct(LOSSLESS)))
    nothing = dict.fromkeys("sifb")
    assert dict(row.pop("headers")) == {
        "s": {**nothing, "s": "é"},
        "i": {**nothing, "i": 2**62},
        "f": {**nothing, "f": 1.0},
        "b": {**nothing, "b": True},
        "o": nothing,
        "null": {**nothing, "s": "null"},
    }
    assert dict(row.pop("properties")) == {"subject": {**nothing, "s": "s"}}
    assert row.pop("timestamp").microsecond == 5
    assert row == {
        "offset": row["offset"], "topic": "t", "priority": 7, "id": "id", "filter_value": "v", "key": "k",
        "payload": b"\0\xff",
    }  # fmt: skip


# ---- tasks -------------------------------------------------------------------------------------------


def test_a_queue_is_cut_by_ids_into_tasks_of_about_the_same_size(url: str, queue: Queue) -> None:
    ids = queue.publish_many([b"x"] * 2000)
    parts = [partition.value for partition in reader(url, partitions="4").partitions()]
    assert [low for low, _ in parts[1:]] == [high for _, high in parts[:-1]]
    assert (parts[0][0], parts[-1][1]) == (ids[0], ids[-1] + 1)
    assert all(400 <= sum(low <= id < high for id in ids) <= 600 for low, high in parts)
    assert offsets(reader(url, partitions="4")) == ids
    assert len(reader(url, partitions="1").partitions()) == 1


def test_messages_published_after_planning_are_not_read(url: str, queue: Queue) -> None:
    ids = queue.publish_many([b"x"] * 10)
    made = reader(url)
    planned = made.partitions()
    queue.publish_many([b"later"] * 10)
    found = [row["offset"] for part in planned for b in made.read(part) for row in b.to_pylist()]
    assert found == ids


def test_bounds_of_ids_are_planned_with(url: str, queue: Queue) -> None:
    ids = queue.publish_many([b"x"] * 1000)
    made = reader(url, partitions="3")
    assert (
        list(made.take([GreaterThan(("offset",), ids[99]), LessThan(("offset",), ids[200])])) == []
    )
    parts = [partition.value for partition in made.partitions()]
    assert (parts[0][0], parts[-1][1]) == (ids[100], ids[200])
    assert offsets(made) == ids[100:200]


def test_an_empty_queue_has_no_tasks(url: str, queue: Queue) -> None:
    assert reader(url).partitions() == []
    ids = queue.publish_many([b"x"])
    behind = reader(url)
    assert list(behind.take([GreaterThan(("offset",), ids[0])])) == []
    assert behind.partitions() == []


def test_a_range_is_read_page_by_page(url: str, queue: Queue) -> None:
    ids = queue.publish_many([Message(b"x" * 1000, headers={"n": i}) for i in range(3000)])
    assert offsets(reader(url, "offset bigint, payload binary", partitions="1")) == ids
    rare = reader(url, "offset bigint, payload binary", partitions="1", filter="n = 2999")
    assert offsets(rare) == ids[-1:]


def test_a_range_is_read_in_the_order_of_ids_without_sorting(
    database: Database, queue: Queue
) -> None:
    operations = database.engine.operations
    assert isinstance(operations, SqlOperations)
    dialect = operations.dialect
    scan = scan_of(
        queue.info.id, [State.READY], parse("n = 1"), queue_columns(struct("n int")), dialect, 0
    )
    query = Statement(dialect.text("explain", query=scan.text), (scan.queue, 1, 9, 9, *scan.params))

    def ask() -> Operation[Rows]:
        return (yield query)

    plan = "\n".join(str(row[-1]) for row in database.engine.run(ask()))
    assert "delivery_pkey" in plan or "d USING PRIMARY KEY (message>? AND message<?)" in plan
    assert "Sort" not in plan
    assert "B-TREE" not in plan


def test_a_page_grows_until_it_is_heavy() -> None:
    assert next_page(256, 256) == 2048
    assert next_page(2048, 2048) == 1 << 14
    assert next_page(1 << 14, 1 << 14) == 1 << 14
    assert next_page(256, 256 << 20) == 16
    assert next_page(1, 1 << 30) == 1


def test_there_are_no_more_tasks_than_borders() -> None:
    assert split_range([], 9, 4) == []
    assert split_range([3], 9, 4) == [(3, 9)]
    assert split_range([1, 2, 3, 4, 5], 9, 2) == [(1, 3), (3, 9)]
    assert worthwhile_tasks(0) == 1
    assert worthwhile_tasks(10**9) == 1000


# ---- states ------------------------------------------------------------------------------------------


def in_all_states(queue: Queue) -> dict[str, list[int]]:
    """The ids of messages in each state; those that are ready are the first and the last."""
    sent = [Publication(Message(b"x", priority=priority)) for priority in (0, 9, 8, 0)]
    sent.insert(1, Publication(Message(b"x"), delay_us=3_600_000_000))
    first, delayed, dead, leased, last = queue.publish_many(sent)
    [one] = queue.claim(lease=timedelta(hours=1))
    one.nack(requeue=False, reason="no such customer")
    [other] = queue.claim(lease=timedelta(hours=1))
    assert (one.id, other.id) == (dead, leased)
    return {"ready": [first, last], "delayed": [delayed], "leased": [leased], "dead": [dead]}


def test_ready_messages_are_read_and_not_claimed(url: str, queue: Queue) -> None:
    ids = in_all_states(queue)
    before = list(queue.browse())
    assert offsets(reader(url)) == ids["ready"]
    assert list(queue.browse()) == before


def test_other_states_are_read_with_the_option_states(url: str, queue: Queue) -> None:
    ids = in_all_states(queue)
    schema = "offset bigint, _state string, _attempts int, _group string, _reason string"
    rows = read(reader(url, schema, states="all"))
    for state, wanted in ids.items():
        assert [row["offset"] for row in rows if row["_state"] == state] == wanted
        assert offsets(reader(url, states=state.upper())) == wanted
    assert [row["_attempts"] for row in rows] == [0, 0, 1, 1, 0]
    assert offsets(reader(url, states="Leased, dead")) == ids["dead"] + ids["leased"]
    explained = reader(url, schema, states="all")
    assert list(explained.take([IsNotNull(("_reason",))])) == []
    assert [(row["_state"], row["_reason"]) for row in read(explained)] == [
        ("dead", "no such customer")
    ]


def test_the_archive_is_read_like_a_queue(url: str, database: Database) -> None:
    queue = database.queue("orders", archive=True)
    ids = queue.publish_many(
        [Publication(Message(b"x", headers={"n": i}), group="g") for i in range(9)]
    )
    for _ in range(5):
        for delivery in queue.claim():
            delivery.ack()
    schema = "offset bigint, _state string, _attempts int, _group string, _reason string, n bigint"
    rows = read(reader(url, schema, states="archived", filter="n > 1", partitions="2"))
    assert rows == [
        {
            "offset": ids[n],
            "_state": "archived",
            "_attempts": 1,
            "_group": "g",
            "_reason": None,
            "n": n,
        }
        for n in (2, 3, 4)
    ]
    assert offsets(reader(url)) == ids[5:]


def test_a_subscription_is_read_like_a_queue(url: str, database: Database, queue: Queue) -> None:
    database.subscription("large", "n > 5")
    queue.publish_many([Message(headers={"n": i}) for i in range(9)])
    found = read(reader(url, "n bigint", path=f"queue:{url}", queue="large"))
    assert [row["n"] for row in found] == [6, 7, 8]


def test_states_have_the_names_of_the_queue() -> None:
    assert [parse_states(name) for name in STATES] == [(state,) for state in State]
    for text in ("", "redy", "ready,archived", "all,dead"):
        with pytest.raises(SparkOptionsError, match=r"^states: give some of ready, delayed"):
            parse_states(text)


# ---- what cannot be read -----------------------------------------------------------------------------


def refused(options: dict[str, str], schema: str = "offset bigint") -> HeadgateError:
    with pytest.raises(HeadgateError) as found:
        HeadgateSource(options).reader(struct(schema))
    return found.value


def test_a_missing_queue_is_refused(url: str, queue: Queue) -> None:
    problem = refused({"path": f"queue:{url}#nobody"})
    assert isinstance(problem, QueueNotFound)
    assert problem.name == "nobody"


def test_tables_of_a_newer_headgate_are_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/q.db"
    connect(url).close()
    connection = apsw.Connection(str(tmp_path / "q.db"))
    connection.execute("INSERT INTO headgate_migration VALUES (9999)")
    connection.close()
    assert isinstance(refused({"path": f"queue:{url}#orders"}), SchemaTooNew)


def test_a_file_without_queues_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "q.db"
    assert "there is no database" in str(refused({"path": f"queue:sqlite:///{file}#orders"}))
    assert not file.exists()
    apsw.Connection(str(file)).execute("CREATE TABLE mine (a)").close()
    before = file.read_bytes()
    assert "holds no queues" in str(refused({"path": f"queue:sqlite:///{file}#orders"}))
    assert file.read_bytes() == before
    file.write_bytes(b"no database at all" * 100)
    assert str(file) in str(refused({"path": f"queue:sqlite:///{file}#orders"}))


@pytest.mark.postgres
def test_a_server_without_queues_is_refused_and_left_alone(postgres_url: str) -> None:
    for _ in range(2):
        problem = refused({"path": f"queue:{postgres_url}&schema=untouched#orders"})
        assert "holds no queues in schema 'untouched'" in str(problem)
    nowhere = postgres_url.replace("/postgres?", "/nowhere?")
    problem = refused({"path": f"queue:{nowhere}#orders"})
    assert isinstance(problem, DatabaseUnavailable)
    assert 'database "nowhere" does not exist' in str(problem)
    problem = refused({"path": "queue:postgresql://nobody@127.0.0.1:1/x#orders"})
    assert "PostgreSQL cannot be reached" in str(problem)


@pytest.mark.postgres
def test_a_read_only_role_is_enough_and_a_lesser_one_learns_what_it_needs(
    postgres_url: str,
) -> None:
    schema, role = f"s_{uuid.uuid4().hex[:12]}", f"r_{uuid.uuid4().hex[:12]}"
    url = f"{postgres_url}&schema={schema}"
    theirs = url.replace("postgres:@", f"{role}:@")
    with connect(url) as database:
        [id] = database.queue("orders").publish_many([b"x"])
        _as_superuser(postgres_url, f"CREATE ROLE {role} LOGIN")
        assert "42501" not in str(problem := refused({"path": f"queue:{theirs}#orders"}))
        assert f"schema {schema!r}" in str(problem)
        _as_superuser(postgres_url, f"GRANT USAGE ON SCHEMA {schema} TO {role}")
        assert "SELECT on its tables" in str(refused({"path": f"queue:{theirs}#orders"}))
        _as_superuser(postgres_url, f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}")
        assert offsets(reader(theirs)) == [id]


def _as_superuser(url: str, statement: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)


def test_without_adbc_the_error_has_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql.dbapi", None)
    problem = refused({"path": "queue:postgresql://localhost/db#orders"})
    assert isinstance(problem, MissingExtra)
    assert "pip install 'headgate[spark]'" in str(problem)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"path": "queue:mysql://host/db#q"}, "is no database; write queue:sqlite:///PATH#name"),
        ({"path": "queue:sqlite:///#q"}, "is no database"),
        ({"path": "queue:postgresql://host/db"}, "names no queue; write"),
        (
            {"from": "first"},
            "from: only streams have this option; a queue is read with path, queue, filter",
        ),
        ({"maxMessagesPerTrigger": "5"}, "maxMessagesPerTrigger: only streams have this option"),
        ({"to": "stream:x"}, "no option 'to'"),
        (
            {"states": "redy"},
            "states: give some of ready, delayed, leased, dead, or all, or archived",
        ),
        ({"states": "ready,archived"}, "'archived' cannot be combined"),
        ({"partitions": "0"}, "partitions: give a whole number"),
        ({"filter": "a = = 1"}, "at line 1, column 5"),
        ({"path": "queue:sqlite:///nowhere.db#q", "paths": "a"}, "read one queue with .load"),
    ],
)
def test_options_are_checked_before_a_database_is_opened(
    options: dict[str, str], said: str
) -> None:
    assert said in str(refused({"path": "queue:sqlite:///nowhere.db#q", **options}))


def test_columns_of_a_queue_are_checked_as_those_of_a_stream(url: str, queue: Queue) -> None:
    given = {"path": f"queue:{url}#orders"}
    assert "'_state': must be string, not int" in str(refused(given, "_state int"))
    assert "'_reason': messages may lack it" in str(refused(given, "_reason string NOT NULL"))
    assert read(reader(url, "_state string NOT NULL, _attempts int NOT NULL")) == []


def test_the_messages_of_a_queue_cannot_be_read_as_a_stream() -> None:
    source = HeadgateSource({"path": "queue:sqlite:///nowhere.db#q"})
    with pytest.raises(
        SparkOptionsError, match="the messages of a queue cannot be read with readStream"
    ) as found:
        source.streamReader(struct("offset bigint"))
    assert "spark.read" in str(found.value)


def test_no_password_is_shown(tmp_path: Path) -> None:
    from headgate.pipelines.places import queue_place

    place = queue_place("queue:postgres://me:secret@Host:1/db?schema=s&sslmode=require#q")
    assert place.shown == "queue:postgresql://Host:1/db?schema=s#q"
    assert (
        queue_place("queue:postgresql://me:secret@host/db#q").shown
        == "queue:postgresql://host/db#q"
    )
    file = f"queue:sqlite:///{tmp_path}/q.db"
    assert queue_place(f"{file}?synchronous=NORMAL#q").shown == f"{file}#q"


def test_batches_hold_plain_arrow_types(url: str, queue: Queue) -> None:
    queue.publish_many([Message(b"x", headers={"r": "EU"}) for _ in range(500)])
    made = reader(url, "r string, topic string")
    [batch] = list(made.read(made.partitions()[0]))
    assert batch.schema.types == [pa.string(), pa.string()]
