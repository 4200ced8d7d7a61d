"""restrict_same_values: seed 004's example, tuples as numbers, and what a filter knows from them."""

from random import Random

import numpy as np
import pytest

from headgate.columns.decode import BatchColumns
from headgate.columns.shred import shred_messages
from headgate.filters.compile.verdict import Verdict, judge
from headgate.filters.facts import Facts
from headgate.filters.nodes import Compare, Field, Literal
from headgate.message import OPAQUE, Message
from headgate.streams.options import StreamOptions
from headgate.streams.segments.restriction import Restriction, restricted_facts
from headgate.streams.stream import Stream
from headgate.streams.write.batching import cut_by_size, cut_messages, runs_of_codes

SEED = {"region": ["us", "eu"], "version": ["1", "2"]}
MESSAGES = [
    {"region": "eu"},
    {"region": "eu"},
    {"region": "eu", "version": "1", "tag": "a"},
    {"region": "eu", "version": "1"},
    {"region": "us", "version": "1"},
    {"region": "us", "version": "2"},
    {"region": "us", "version": "5"},
    {"region": "us", "version": "6"},
]
BATCHES = [
    ({"region": "eu"}, [b"msg1", b"msg2"]),
    ({"region": "eu", "version": "1"}, [b"msg3", b"msg4"]),
    ({"region": "us", "version": "1"}, [b"msg5"]),
    ({"region": "us", "version": "2"}, [b"msg6"]),
    ({"region": "us"}, [b"msg7", b"msg8"]),
]


def chunks_of(stream):
    from headgate.streams.read.catalog import SegmentCatalog

    catalog = SegmentCatalog(stream.path)
    for file in catalog.files:
        segment = catalog.open(file)
        for i in range(len(segment)):
            payloads = segment.chunk(i).take(None, ["payload"]).column("payload").to_pylist()
            yield dict(segment.metadata(i).properties), payloads


def test_the_example_of_seed_004_gives_its_five_batches(tmp_path):
    with Stream.create(tmp_path / "s", restrict_same_values=SEED) as stream:
        with stream.producer() as producer:
            for number, headers in enumerate(MESSAGES, 1):
                producer.publish(Message(f"msg{number}".encode(), headers=headers))
        assert list(chunks_of(stream)) == BATCHES


def test_the_example_of_seed_004_keeps_its_batches_after_sealing(tmp_path):
    with Stream.create(tmp_path / "s", restrict_same_values=SEED) as stream:
        with stream.producer() as producer:
            producer.publish_many(
                Message(f"msg{number}".encode(), headers=headers)
                for number, headers in enumerate(MESSAGES, 1)
            )
        stream.seal(all=True)
        found = sorted(chunks_of(stream), key=lambda chunk: chunk[1])
        assert found == BATCHES


def test_a_tuple_is_restored_from_its_code():
    restriction = Restriction({"a": ["x", "y"], "b": [1, True, 1.0], "c": ["z"]})
    rng = Random(1)
    for _ in range(300):
        headers = {name: rng.choice(["x", "y", "z", 1, 1.0, True, OPAQUE, None]) for name in "abc"}
        properties = restriction.properties(restriction.code(headers))
        listed = {"a": ["x", "y"], "b": [1, True, 1.0], "c": ["z"]}
        expected = {
            name: value
            for name, value in headers.items()
            if any(type(v) is type(value) and v == value for v in listed[name])
        }
        assert {n: (type(v), v) for n, v in properties.items()} == {
            n: (type(v), v) for n, v in expected.items()
        }
        assert restriction.code(properties) == restriction.code(headers)


def test_rows_of_columns_have_the_codes_of_their_messages():
    restriction = Restriction({"region": ["us", "eu"], "n": [1, 2.0, False]})
    rng = Random(2)
    messages = [
        Message(
            b"",
            headers={
                "region": rng.choice(["us", "eu", "as", 1]),
                "n": rng.choice([1, 2.0, 2, False]),
            },
        )
        for _ in range(200)
    ]
    codes = restriction.codes(BatchColumns(shred_messages(messages)))
    assert codes.tolist() == [restriction.code(message.headers) for message in messages]
    lengths = [count for _, count in runs_of_codes(codes)]
    assert sum(lengths) == 200


def test_a_value_that_is_listed_twice_counts_where_it_is_listed_first():
    listed = {"region": ["a", "b", "b"], "zero": [0.0, -0.0], "n": [1, 1]}
    restriction = Restriction(listed)
    messages = [
        Message(b"", headers={"region": region, "zero": zero, "n": 1})
        for region in ("a", "b", "c")
        for zero in (0.0, -0.0, 1.0)
    ]
    codes = restriction.codes(BatchColumns(shred_messages(messages)))
    assert codes.tolist() == [restriction.code(message.headers) for message in messages]
    assert restriction.properties(int(codes[3])) == {"region": "b", "zero": 0.0, "n": 1}


@pytest.mark.parametrize(
    ("before", "after", "headers", "filters"),
    [
        (
            {"a": ["x", "y"], "b": ["1", "2", "3"]},
            {"b": ["1", "2", "3"], "a": ["x", "y"]},
            {"a": "x", "b": "1"},
            {"a = 'x'": 1, "a = 'y'": 0, "b = '1'": 1, "b = '2'": 0},
        ),
        ({"x": [1]}, {"x": [True]}, {"x": True}, {"x = TRUE": 1, "x = 1": 0}),
        ({"x": [1]}, {"x": [1.0]}, {"x": 1.0}, {"x = 1": 1, "x = 2": 0}),
    ],
)
def test_another_order_or_kind_of_restricted_values_holds_after_a_reconfiguration(
    tmp_path, before, after, headers, filters
):
    with Stream.create(tmp_path / "s", restrict_same_values=before) as stream:
        with stream.producer() as producer:
            producer.publish(b"")
        stream.reconfigure(restrict_same_values=after)
        with stream.producer() as producer:
            producer.publish(b"", headers=headers)
        assert {filter: len(list(stream.consume(filter))) for filter in filters} == filters


def test_a_filter_decides_from_the_tuple_alone():
    restriction = Restriction(SEED)
    codes = np.array([restriction.code(h) for h in MESSAGES], np.uint64)
    rows = np.full(len(codes), 3)
    facts = Facts(
        rows, {Field("header", "region"): restricted_facts(restriction, "region", codes, rows)}
    )
    verdicts = judge(Compare("=", Field("header", "region"), Literal("eu")), facts)
    assert [verdicts[i] for i in range(8)] == [Verdict.ALL] * 4 + [Verdict.NONE] * 4
    facts = Facts(
        rows, {Field("header", "version"): restricted_facts(restriction, "version", codes, rows)}
    )
    verdicts = judge(Compare("=", Field("header", "version"), Literal("1")), facts)
    assert [verdicts[i] for i in range(4)] == [Verdict.SOME, Verdict.SOME, Verdict.ALL, Verdict.ALL]


def test_a_hot_chunk_without_a_listed_value_is_pruned(tmp_path):
    with Stream.create(tmp_path / "s", restrict_same_values=SEED) as stream:
        with stream.producer() as producer:
            for headers in ({"region": "us"}, {"region": "mars"}, {}, {"region": 5}):
                producer.publish(Message(b"", headers=headers))
                producer.flush()
        scan = stream.scan("region = 'us'")
        assert sum(batch.num_rows for batch in scan) == 1
        assert (scan.stats.chunks_none, scan.stats.chunks_all) == (3, 1)
        scan = stream.scan("region = 'mars'")
        assert sum(batch.num_rows for batch in scan) == 1


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([1], [(0, 1)]),
        ([1] * 7, [(0, 3), (3, 6), (6, 7)]),
        ([5, 5, 5], [(0, 2), (2, 3)]),
        ([50], [(0, 1)]),
        ([1, 50, 1, 1], [(0, 1), (1, 2), (2, 4)]),
        ([10, 1], [(0, 1), (1, 2)]),
    ],
)
def test_a_batch_is_cut_by_count_and_by_bytes(sizes, expected):
    assert list(cut_by_size(sizes, 3, 10)) == expected


def test_runs_of_equal_tuples_are_cut_by_size_too():
    messages = [Message(b"x", headers={"region": r}) for r in "aabbba"]
    options = StreamOptions(restrict_same_values={"region": ["a", "b"]}, chunk_messages=2)
    payloads = [message.payload for message in messages]
    found = cut_messages(messages, payloads, Restriction(options.restrict_same_values), options)
    assert [(cut.start, cut.end) for cut in found] == [(0, 2), (2, 4), (4, 5), (5, 6)]
