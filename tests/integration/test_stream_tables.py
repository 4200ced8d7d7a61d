"""Streams and other engines: scans that DuckDB, Polars and pandas read, tables of theirs that are appended."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from headgate import Message
from headgate.errors import InvalidMessage, StreamOptionsError
from headgate.message import OPAQUE
from headgate.streams.stream import Stream

MOMENT = datetime(2026, 11, 18, 1, 2, 3, 4, tzinfo=UTC)
MOMENT_US = int(MOMENT.timestamp()) * 1_000_000 + 4


def write(stream, count=300):
    """Publish to three segments; the last one is hot."""
    with stream.producer() as producer:
        for i in range(count):
            headers = {"region": ("EU", "US")[i % 2], "amount": i}
            if i % 3 == 0:
                headers["rate"] = i / 2
            if i % 5 == 0:
                headers["mixed"] = "text" if i % 2 else i
            producer.publish(
                Message(b"%d" % i, f"orders.{i % 4}", headers, timestamp=MOMENT_US + i, key=f"k{i}")
            )
            if i == count // 3 or i == 2 * count // 3:
                producer.flush()
                stream.seal(all=True)


@pytest.fixture
def orders(tmp_path):
    with Stream.create(tmp_path / "s", chunk_messages=16) as stream:
        write(stream)
        yield stream


def test_every_batch_of_a_reader_has_the_one_schema(orders):
    reader = orders.scan().to_reader()
    assert dict(zip(reader.schema.names, map(str, reader.schema.types), strict=True)) == {
        "offset": "int64",
        "timestamp": "timestamp[us, tz=UTC]",
        "topic": "string",
        "filter_value": "string",
        "key": "string",
        "priority": "uint8",
        "id": "string",
        "payload": "binary",
        "amount": "int64",
        "h.i.mixed": "int64",
        "h.s.mixed": "string",
        "rate": "double",
        "region": "string",
    }
    table = reader.read_all()
    assert table.num_rows == 300
    assert table.column("amount").to_pylist() == table.column("offset").to_pylist()
    assert table.column("timestamp")[7].as_py() == MOMENT.replace(microsecond=11)
    assert table.column("h.s.mixed")[5].as_py() == "text"
    assert table.column("h.i.mixed")[10].as_py() == 10
    assert table.column("rate").null_count == 200


def test_a_reader_selects_what_the_scan_selects_however_often_it_is_made(orders):
    scan = orders.scan("region = 'EU' AND amount >= 200")
    expected = list(range(200, 300, 2))
    for _ in range(2):
        assert scan.to_reader().read_all().column("offset").to_pylist() == expected
    assert pa.table(scan).column("amount").to_pylist() == expected
    assert scan.stats.rows_matched == 3 * len(expected)


def test_a_schema_names_the_columns_and_a_double_shows_integers(orders):
    schema = {"mixed": pa.float64(), "never": pa.string(), "timestamp": pa.int64()}
    table = orders.scan(start=10, end=12).to_reader(schema).read_all()
    assert table.to_pylist() == [
        {"mixed": 10.0, "never": None, "timestamp": MOMENT_US + 10},
        {"mixed": None, "never": None, "timestamp": MOMENT_US + 11},
    ]
    table = orders.scan(columns=["h.s.region"], end=1).to_reader().read_all()
    assert table.to_pylist() == [{"offset": 0, "h.s.region": "EU"}]


def test_types_may_be_given_by_name(orders):
    schema = {"amount": "float64", "h.s.region": "utf8", "offset": "int64"}
    table = orders.scan(end=1).to_reader(schema).read_all()
    assert table.to_pylist() == [{"amount": 0.0, "h.s.region": "EU", "offset": 0}]
    assert table.schema.types == [pa.float64(), pa.string(), pa.int64()]


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        (["region"], "give the type of each column"),
        ({"region": pa.int8()}, "'region' can be string, int64, double, bool, .* not int8"),
        ({"offset": pa.string()}, "'offset' can be int64, not string"),
        ({"h.i.amount": pa.string()}, "'h.i.amount' can be int64, not string"),
        ({}, "at least one"),
        ({"a\nb": pa.string()}, "control characters"),
    ],
)
def test_a_schema_that_cannot_be_filled_is_refused(orders, schema, complaint):
    with pytest.raises(StreamOptionsError, match=complaint):
        orders.scan().to_reader(schema)


def test_headers_with_the_names_of_fields_keep_their_full_names(tmp_path):
    with Stream.create(tmp_path / "s") as stream:
        with stream.producer() as producer:
            producer.publish(b"", headers={"topic": "x", "h.s.a": "y", "odd": OPAQUE}, subject="z")
        table = stream.scan().to_reader().read_all()
    row = table.select(["topic", "h.s.topic", "h.s.h.s.a", "h.o.odd", "p.s.subject"]).to_pylist()
    assert row == [
        {"topic": "", "h.s.topic": "x", "h.s.h.s.a": "y", "h.o.odd": True, "p.s.subject": "z"}
    ]


def test_an_empty_stream_has_the_fields_of_messages(tmp_path):
    with Stream.create(tmp_path / "s") as stream:
        table = pa.table(stream.scan())
    assert table.num_rows == 0
    assert table.schema.names[:3] == ["offset", "timestamp", "topic"]


def test_headers_in_the_overflow_are_found_by_name(tmp_path):
    with Stream.create(tmp_path / "s") as stream:
        with stream.producer() as producer:
            producer.publish(b"", headers={f"n{i:03}": i for i in range(200)})
        names = {f"n{i:03}": pa.int64() for i in range(200)}
        (row,) = stream.scan().to_reader(names).read_all().to_pylist()
    assert list(row.values()) == list(range(200))


# ---- engines -----------------------------------------------------------------------------------------


def test_duckdb_reads_a_scan_and_its_relation_is_appended(orders, tmp_path):
    duckdb = pytest.importorskip("duckdb")
    scan = orders.scan("amount >= 100")  # noqa: F841 - DuckDB finds it by its name
    found = duckdb.sql("SELECT region, count(*), sum(amount) FROM scan GROUP BY 1 ORDER BY 1")
    assert found.fetchall() == [("EU", 100, 19900), ("US", 100, 20000)]
    assert duckdb.sql("SELECT count(*) FROM scan").fetchall() == [(200,)]
    relation = duckdb.sql("SELECT 'o.eu' AS topic, region, amount * 2 AS amount FROM scan")
    with Stream.create(tmp_path / "copy") as copy:
        assert copy.append(relation) == 200
        assert {m.headers["amount"] for m in copy.consume("region = 'EU'")} == set(
            range(200, 600, 4)
        )


def test_polars_reads_a_scan_and_its_frame_is_appended(orders, tmp_path):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(orders.scan("region = 'EU'"))
    assert frame.height == 150
    frame = frame.with_columns(polars.col("region").cast(polars.Categorical))
    with Stream.create(tmp_path / "copy") as copy:
        assert copy.append(frame) == 150
        assert [m.payload for m in copy.consume()] == [b"%d" % i for i in range(0, 300, 2)]
        assert {m.headers["region"] for m in copy.consume()} == {"EU"}


def test_pandas_reads_a_scan_and_its_frame_is_appended_without_the_index(orders, tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = orders.scan(end=10).to_reader().read_pandas()
    assert isinstance(frame, pandas.DataFrame)
    chosen = frame[frame["region"] == "US"][["region", "amount"]]  # its index has gaps
    with Stream.create(tmp_path / "copy") as copy:
        assert copy.append(chosen) == 5
        assert [m.headers for m in copy.consume()] == [
            {"region": "US", "amount": i} for i in range(1, 10, 2)
        ]


def test_a_scan_is_appended_to_another_stream(orders, tmp_path):
    with Stream.create(tmp_path / "copy") as copy:
        assert copy.append(orders.scan("amount < 50")) == 50
        assert [m.headers for m in copy.consume()] == [
            m.headers for m in orders.consume("amount < 50")
        ]
        assert copy.append(pa.RecordBatchReader.from_batches(pa.schema([]), [])) == 0


def test_many_small_batches_become_few_chunks(tmp_path):
    batch = pa.record_batch({"region": pa.array(["EU"]).dictionary_encode(), "n": pa.array([1])})
    reader = pa.RecordBatchReader.from_batches(batch.schema, [batch] * 1000)
    with Stream.create(tmp_path / "s") as stream:
        assert stream.append(reader) == 1000
        scan = stream.scan()
        assert sum(b.num_rows for b in scan) == 1000
        assert scan.stats.chunks_all == 1


@pytest.mark.parametrize("table", [{"a": [1]}, [1], None, 5, "x"])
def test_what_is_no_table_is_refused(tmp_path, table):
    with (
        Stream.create(tmp_path / "s") as stream,
        pytest.raises(InvalidMessage, match="must be an Arrow table, record batch or reader"),
    ):
        stream.append(table)
