"""Streams as LazyFrames of Polars: the same rows as Polars alone finds, and only the chunks that may hold them."""

import random
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import and_, or_

import pyarrow as pa
import pytest

from headgate import Message
from headgate.columns import plain_columns
from headgate.errors import StreamNotFound, StreamOptionsError
from headgate.filters import to_text
from headgate.streams.stream import Stream
from headgate.streams.superstream import SuperStream

pl = pytest.importorskip("polars")
testing = pytest.importorskip("polars.testing")
from headgate.polars import scan_stream  # noqa: E402 - needs polars
from headgate.polars.predicate import Pushed, translate  # noqa: E402

MOMENT = datetime(2026, 11, 18, tzinfo=UTC)
MOMENT_US = int(MOMENT.timestamp()) * 1_000_000
REGIONS = ["EU", "US", "APAC", "ÅL", "e%u_", ""]
BIG = 2**53


def message(i, random):
    headers = {"region": random.choice(REGIONS), "amount": random.randrange(-5, 20)}
    if random.random() < 0.1:
        headers["amount"] = random.choice([BIG, BIG + 1, -BIG - 1, 2**62])
    if random.random() < 0.5:
        headers["rate"] = random.choice([0.5, -0.0, 0.0, 3.0, 1e300, -2.25])
    if random.random() < 0.5:
        headers["express"] = random.random() < 0.5
    if random.random() < 0.3:
        headers["mixed"] = random.choice(["3", 3, 3.0, True, BIG + 1])
    return Message(
        b"%d" % i,
        f"orders.{i % 3}",
        headers,
        priority=i % 4,
        timestamp=MOMENT_US + i * 1000,
        key=random.choice([None, "a", "b"]),
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """600 messages, in a sealed segment, then in small hot chunks."""
    path = tmp_path_factory.mktemp("polars") / "orders"
    draw = random.Random(7)
    with Stream.create(path, chunk_messages=25, indexed=["region"]) as stream:
        with stream.producer() as producer:
            producer.publish_many([message(i, draw) for i in range(300)])
        stream.seal(all=True)
        with stream.producer() as producer:
            for i in range(300, 600):
                producer.publish(message(i, draw))
    return path


@pytest.fixture(scope="module")
def everything(path):
    with Stream.open(path) as stream:
        return pl.DataFrame(stream.scan())


def test_the_columns_are_those_of_a_reader(path, everything):
    frame = scan_stream(path)
    assert frame.collect_schema() == everything.schema
    assert everything.schema["region"] == pl.String
    assert everything.schema["timestamp"] == pl.Datetime("us", "UTC")
    testing.assert_frame_equal(frame.collect(), everything)


# ---- generated predicates ----------------------------------------------------------------------------


def leaf(draw):
    """A condition on one column, of the kinds that are pushed and of some that are not."""
    col = pl.col
    text, number = draw.choice(REGIONS), draw.choice([-1, 0, 3, 3.0, 2.5, 7, BIG, BIG + 1])
    compare = draw.choice(["__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"])
    moment = MOMENT + timedelta(milliseconds=draw.randrange(600))
    offset = draw.randrange(-5, 610)
    return draw.choice(
        [
            lambda: getattr(col("region"), compare)(text),
            lambda: getattr(col("amount"), compare)(number),
            lambda: getattr(col("rate"), compare)(number),
            lambda: getattr(col("h.i.mixed"), compare)(number),
            lambda: col("h.s.mixed") == "3",
            lambda: getattr(col("timestamp"), compare)(moment),
            lambda: getattr(col("priority"), compare)(draw.randrange(5)),
            lambda: getattr(col("offset"), compare)(offset),
            lambda: getattr(pl.lit(offset), compare)(col("offset")),
            lambda: col("offset").is_between(offset, offset + 50, closed=draw.choice(CLOSED)),
            lambda: col("amount").is_between(0, 4, closed=draw.choice(CLOSED)),
            lambda: col("region").is_in(draw.sample(REGIONS, 2)),
            lambda: ~col("region").is_in(draw.sample(REGIONS, 2)),
            lambda: col("amount").is_in([1, 2, BIG + 1]),
            lambda: col("rate").is_in([0.0, 0.5]),
            lambda: col("key").is_null(),
            lambda: col("rate").is_null(),
            lambda: col("rate").is_not_null(),
            lambda: col("express"),
            lambda: ~col("express"),
            lambda: col("express").ne_missing(True),
            lambda: col("region").eq_missing(text),
            lambda: col("region").str.starts_with(text[:1]),
            lambda: col("region").str.ends_with(text[-1:]),
            lambda: col("region").str.contains(text, literal=True),
            lambda: col("region").str.contains("^[EU]"),
            lambda: col("topic") == "orders.1",
            lambda: col("payload") == b"17",
            lambda: col("amount") + 1 > 3,
            lambda: col("amount").cast(pl.String) == "3",
            lambda: col("region") == col("key"),
        ]
    )()


CLOSED = ["both", "left", "right", "none"]


def predicate(draw, depth=3):
    if depth == 0 or draw.random() < 0.3:
        return leaf(draw)
    parts = [predicate(draw, depth - 1) for _ in range(draw.randrange(1, 4))]
    found = reduce(draw.choice([and_, or_]), parts)
    return ~found if draw.random() < 0.15 else found


@pytest.mark.parametrize("seed", range(120))
def test_polars_finds_the_same_rows_without_us(path, everything, seed):
    draw = random.Random(seed)
    where = predicate(draw)
    columns = draw.choice([None, ["offset"], ["amount", "region"], ["payload", "h.i.mixed"]])
    lazy, eager = scan_stream(path), everything.lazy()
    match draw.randrange(4):
        case 0:
            lazy, eager = lazy.head(40).filter(where), eager.head(40).filter(where)
        case 1:
            lazy, eager = lazy.filter(where).head(7), eager.filter(where).head(7)
        case _:
            lazy, eager = lazy.filter(where), eager.filter(where)
    if columns is not None:
        lazy, eager = lazy.select(columns), eager.select(columns)
    engine = draw.choice(["in-memory", "streaming"])
    testing.assert_frame_equal(lazy.collect(engine=engine), eager.collect())


@pytest.mark.parametrize("values", [[0.5, 3.0], [0.5, None]])
def test_rows_without_a_header_are_found_where_nulls_are_equal(path, everything, values):
    listed = pl.col("rate").is_in(values, nulls_equal=True)
    for where in (listed, ~listed):
        found = scan_stream(path).filter(where).collect()
        testing.assert_frame_equal(found, everything.filter(where))


# ---- what is pushed ----------------------------------------------------------------------------------

COLUMNS = {
    column.name: column
    for column in plain_columns(
        {
            "offset": pa.int64(),
            "timestamp": pa.timestamp("us", "UTC"),
            "key": pa.string(),
            "payload": pa.binary(),
            "region": pa.string(),
            "amount": pa.int64(),
            "rate": pa.float64(),
            "express": pa.bool_(),
        }
    )
}
EU = pl.col("region") == "EU"


def push(where):
    return translate(where.meta.serialize(format="json"), COLUMNS)


@pytest.mark.parametrize(
    ("where", "text"),
    [
        (EU, "region = 'EU'"),
        (EU & (pl.col("amount") > pl.lit(3, pl.Int64)), "region = 'EU' AND amount > 3"),
        (EU | (pl.col("rate") <= 2.5), "region = 'EU' OR rate <= 2.5"),
        (pl.lit("EU") != pl.col("region"), "region <> 'EU'"),
        (pl.lit(3) < pl.col("amount"), "amount > 3"),
        (pl.col("region").is_in(["EU", "US"]), "region IN ('EU', 'US')"),
        (pl.col("region").is_in(["EU"], nulls_equal=True), "region IN ('EU')"),
        (~pl.col("region").is_in(["EU"], nulls_equal=True), "TRUE"),
        (pl.col("region").is_in(["EU", None], nulls_equal=True), "TRUE"),
        (~pl.col("region").is_in(["EU", "US"]), "region NOT IN ('EU', 'US')"),
        (pl.col("amount").is_between(1, 4, closed="left"), "amount >= 1 AND amount < 4"),
        (pl.col("region").str.starts_with("5%"), "region LIKE '5\\%%' ESCAPE '\\'"),
        (pl.col("express"), "express = TRUE"),
        (~pl.col("express"), "express = FALSE"),
        (pl.col("region").is_not_null(), "region IS NOT NULL"),
        # What a filter cannot say exactly stays with Polars, and the rest of a conjunction is pushed.
        (EU & (pl.col("amount") + 1 > 3), "region = 'EU'"),
        (EU & (pl.col("payload") == b"x"), "region = 'EU'"),
        (EU & (pl.col("rate") > 2.0**53), "region = 'EU'"),
        (EU & (pl.col("region") == pl.col("key")), "region = 'EU'"),
        (EU | (pl.col("amount") + 1 > 3), "TRUE"),
        (~(EU & pl.col("express")), "TRUE"),
        (pl.col("region").is_null(), "TRUE"),
        (pl.col("region").str.contains("E.*"), "TRUE"),
        (pl.col("region") == "nul\0", "TRUE"),
        (pl.col("amount").is_in(list(range(5000))), "TRUE"),
    ],
)
def test_a_predicate_becomes_a_filter(where, text):
    pushed = push(where)
    assert to_text(pushed.filter) == text
    assert (pushed.low, pushed.high) == (0, 2**63 - 1)


@pytest.mark.parametrize(
    ("where", "bounds"),
    [
        (pl.col("offset") >= 5, (5, 2**63 - 1)),
        ((pl.col("offset") > 5) & (pl.col("offset") <= 9), (6, 10)),
        (pl.col("offset") == 5, (5, 6)),
        (pl.col("offset").is_between(5, 9, closed="none"), (6, 9)),
        (pl.col("offset") < -5, (0, 0)),
    ],
)
def test_offsets_become_the_ends_of_the_scan(where, bounds):
    assert push(where) == Pushed(low=bounds[0], high=bounds[1])


@pytest.mark.parametrize("tree", ['{"BinaryExpr": {}}', '"odd"', '{"Function": {}}', "no JSON"])
def test_a_tree_in_another_form_is_left_to_polars(tree):
    assert translate(tree, COLUMNS) == Pushed()


def test_chunks_are_skipped_and_only_the_columns_in_use_are_read(path, monkeypatch):
    scans = []
    real = Stream.scan

    def scan(stream, *arguments, **options):
        scans.append(real(stream, *arguments, **options))
        return scans[-1]

    frame = scan_stream(path)
    monkeypatch.setattr(Stream, "scan", scan)
    found = frame.filter(EU, pl.col("offset") >= 550).select("amount").collect()
    assert found.height > 0
    stats = scans[-1].stats
    assert stats.rows_matched == found.height
    assert stats.chunks_some + stats.chunks_all + stats.chunks_none < 20  # those of 50 messages


# ---- arguments ---------------------------------------------------------------------------------------


def test_a_filter_and_a_schema_are_given(path, everything):
    schema = {"amount": pl.Int64, "region": pl.String, "never": pl.Boolean}
    found = scan_stream(path, "region = 'EU'", schema=schema, start=100).collect()
    expected = everything.filter(EU, pl.col("offset") >= 100).select(
        "amount", "region", never=pl.lit(None, pl.Boolean)
    )
    testing.assert_frame_equal(found, expected)


def test_what_is_published_later_is_there_when_it_is_collected_again(tmp_path):
    with Stream.create(tmp_path / "s") as stream:
        stream.append(pa.table({"n": [1]}))
        frame = scan_stream(tmp_path / "s")
        assert frame.collect()["n"].to_list() == [1]
        stream.append(pa.table({"n": [2]}))
        assert frame.filter(pl.col("n") > 0).collect()["n"].to_list() == [1, 2]


def test_a_super_stream_has_a_column_of_partitions(tmp_path):
    with SuperStream.create(tmp_path / "s", 3) as stream, stream.producer() as producer:
        producer.publish_many([Message(b"", key=f"k{i}", headers={"i": i}) for i in range(30)])
    frame = scan_stream(tmp_path / "s")
    counts = frame.group_by("partition").len().collect()
    assert counts["len"].sum() == 30
    found = frame.filter(pl.col("i") < 10, pl.col("offset") < 100).select("i", "partition")
    assert sorted(found.collect()["i"]) == list(range(10))
    assert frame.select("partition").collect().height == 30
    named = scan_stream(tmp_path / "s", schema={"i": pl.Int64}).collect()
    assert named.columns == ["partition", "i"]


def test_mistakes_are_refused(tmp_path, path):
    with pytest.raises(StreamNotFound):
        scan_stream(tmp_path / "nothing")
    with pytest.raises(StreamOptionsError, match="schema: give the type of each column"):
        scan_stream(path, schema=["region"])
    with pytest.raises(StreamOptionsError, match="'region' can be"):
        scan_stream(path, schema={"region": pl.Int8})
