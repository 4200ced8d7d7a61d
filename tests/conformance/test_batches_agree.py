"""A batch that is read as a whole gives what its messages would give one by one, wherever it keeps their headers."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from headgate.columns.decode import BatchColumns
from headgate.errors import InvalidMessage
from headgate.filters.compile.arrow import compile_mask
from headgate.filters.logic import matches_filter
from headgate.filters.nodes import Compare, Field, Filter, Literal
from headgate.matching import batch as batches
from headgate.matching.matcher import Matcher
from headgate.message import Message
from headgate.streams.stream import Stream
from tests import generate
from tests.wide import LAYOUTS, PADDING, half_overflowing, widen

by_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


def rows_matching(messages: list[Message], tree: Filter) -> list[int]:
    return [at for at, message in enumerate(messages) if matches_filter(tree, message, 0)]


@by_layout
@pytest.mark.parametrize("worth_a_mask", [1, 5, 1_000])
def test_a_batch_is_matched_as_its_messages_are(seed, monkeypatch, worth_a_mask, layout):
    monkeypatch.setattr(batches, "WORTH_A_MASK", worth_a_mask)
    rng = Random(seed)
    matcher = Matcher((n, generate.timeless(rng)) for n in range(80))
    messages = generate.messages(rng, 100)
    found = matcher.match_batch(layout(messages))
    expected = [matcher.match(message) for message in messages]
    for handle in range(80):
        rows = [at for at, handles in enumerate(expected) if handle in handles]
        assert found.rows_of(handle).tolist() == rows
    assert found.reached.tolist() == [bool(handles) for handles in expected]


@by_layout
def test_a_mask_over_a_batch_keeps_what_matches_message_by_message(seed, layout):
    rng = Random(seed)
    messages = generate.messages(rng, 100)
    columns = BatchColumns(layout(messages))
    for tree in (generate.timeless(rng) for _ in range(60)):
        assert compile_mask(tree)(columns).nonzero()[0].tolist() == rows_matching(messages, tree)


@pytest.mark.parametrize("sealed", [False, True])
def test_a_scan_finds_headers_that_have_no_column(seed, tmp_path, sealed):
    rng = Random(seed)
    messages = widen(generate.messages(rng, 60))
    with Stream.create(tmp_path / "s", chunk_messages=25) as stream:
        with stream.producer() as producer:
            producer.publish_many(messages)
        if sealed:
            stream.seal(all=True)
        trees = [generate.timeless(rng) for _ in range(30)]
        trees = [t for t in trees if "timestamp" not in repr(t)]  # the stream stamps messages
        for tree in [*trees, Compare("=", Field("header", "!199"), Literal(PADDING["!199"]))]:
            found = stream.scan(tree).to_table().column("offset").to_pylist()
            assert found == rows_matching(messages, tree)


@pytest.mark.parametrize("sealed", [False, True])
def test_a_table_may_have_a_header_in_a_column_and_in_the_overflow(seed, tmp_path, sealed):
    rng = Random(seed)
    messages = generate.messages(rng, 60)
    with Stream.create(tmp_path / "s", indexed=generate.HEADERS[:2]) as stream:
        stream.append(pa.Table.from_batches([half_overflowing(messages)]))
        if sealed:
            stream.seal(all=True)
        trees = [generate.timeless(rng) for _ in range(30)]
        for tree in (t for t in trees if "timestamp" not in repr(t)):
            found = stream.scan(tree).to_table().column("offset").to_pylist()
            assert found == rows_matching(messages, tree)


def test_a_row_has_a_header_in_its_column_or_in_its_overflow_and_not_in_both(tmp_path):
    table = pa.table({"a": ["x", None], "overflow": pa.array([b'{"a":1}', None], pa.binary())})
    with (
        Stream.create(tmp_path / "s") as stream,
        pytest.raises(InvalidMessage, match="header 'a': has two values in one row"),
    ):
        stream.append(table)


def test_a_scanned_batch_can_be_appended_again(seed, tmp_path):
    messages = generate.messages(Random(seed), 60)  # some values among them no filter compares
    with Stream.create(tmp_path / "a") as first, Stream.create(tmp_path / "b") as second:
        with first.producer() as producer:
            producer.publish_many(messages)
        second.append(first.scan().to_table())
        assert [m.headers for m in second.consume()] == [m.headers for m in first.consume()]


def test_an_opaque_value_exists_in_a_column_and_in_the_overflow(tmp_path):
    table = pa.table(
        {
            "h.o.t": [True, False, False],
            "overflow": pa.array([None, b'{"t":[]}', None], pa.binary()),
        }
    )
    with Stream.create(tmp_path / "s") as stream:
        stream.append(table)
        assert stream.scan("EXISTS(t)").to_table().column("offset").to_pylist() == [0, 1]
