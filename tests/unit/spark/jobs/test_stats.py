"""What stats say of a segment is what counting message by message says, hot or sealed, in parts or whole."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from headgate.message import OPAQUE, Message
from headgate.spark.jobs.stats import (
    measure_ranges,
    measure_segment,
    merge_stats,
    stats_from_json,
    stats_to_json,
)
from headgate.spark.jobs.tasks import open_segments, sample_ranges, segment_ranges
from headgate.streams.stream import Stream


def messages(count, seed):
    choose = random.Random(seed)
    for i in range(count):
        headers = {
            "region": choose.choice(["EU", "US", "APAC"]),
            "mixed": choose.choice([i % 7, "x", 2.5, True]),
        }
        if choose.random() < 0.2:
            headers["rare"] = f"id-{i}"
        if choose.random() < 0.1:
            headers["table"] = OPAQUE
        yield Message(
            b"p" * choose.randrange(300), topic=choose.choice(["a.b", "c"]), headers=headers
        )


def published(path, found, *, parts=3, seal_first=False):
    with Stream.create(path, segment_bytes=1 << 15) as stream:
        for part in range(parts):
            with stream.producer() as producer:
                for message in found[part::parts]:
                    producer.publish(message)
                producer.flush()
            if seal_first and not part:
                stream.seal(all=True)
    return path


@pytest.mark.parametrize("seal_first", [False, True])
def test_stats_count_messages_and_values(tmp_path, seal_first):
    found = list(messages(3000, seed=1))
    path = published(tmp_path / "s", found, seal_first=seal_first)
    stats = stats_from_json(measure_ranges(segment_ranges(path)))
    assert stats.messages == 3000
    assert stats.payload_bytes == sum(len(m.payload) for m in found)
    assert stats.largest_payload == max(len(m.payload) for m in found)
    assert stats.size_below(0.5) in (128, 256)
    assert ("sealed" in stats.tiers) == seal_first
    region = stats.headers()["region"]
    assert dict(region.heavy.top(9)) == Counter(m.headers["region"] for m in found)
    assert (region.kinds["string"].low, region.kinds["string"].high) == ("APAC", "US")
    mixed = stats.headers()["mixed"]
    assert sorted(mixed.kinds) == ["bool", "float", "int", "string"]
    assert mixed.distinct.estimate == 7 + 3
    rare = [m.headers["rare"] for m in found if "rare" in m.headers]
    assert stats.headers()["rare"].present == stats.headers()["rare"].distinct.estimate == len(rare)
    assert stats.headers()["table"].opaque == sum("table" in m.headers for m in found)
    assert dict(stats.fields["topic"].heavy.top(9)) == Counter(m.topic for m in found)


def test_headers_that_overflow_are_counted_too(tmp_path):
    found = [Message(b"", headers={f"h{n}": n for n in range(i % 2, 600, 2)}) for i in range(50)]
    stats = stats_from_json(measure_ranges(segment_ranges(published(tmp_path / "s", found))))
    assert {name: field.present for name, field in stats.headers().items()} == {
        f"h{n}": 25 for n in range(600)
    }


def test_the_parts_of_a_stream_add_up(tmp_path):
    path = published(tmp_path / "s", list(messages(4000, seed=2)), parts=6)
    ranges = segment_ranges(path)
    assert len(ranges) > 3
    parts = [stats_from_json(measure_ranges([one])) for one in ranges]
    assert stats_to_json(merge_stats(parts)) == stats_to_json(
        merge_stats(map(measure_segment, open_segments(ranges)))
    )


def test_a_deleted_segment_is_left_out(tmp_path):
    path = published(tmp_path / "s", list(messages(4000, seed=3)), parts=6)
    ranges = segment_ranges(path)
    with Stream.open(path) as stream:
        stream.trim(before_offset=ranges[2].low)
    assert stats_from_json(measure_ranges(ranges)).messages == ranges[-1].high - ranges[2].low


def test_a_sample_is_spread_from_the_oldest_to_the_newest():
    assert sample_ranges(list(range(10)), 20) == list(range(10))
    assert sample_ranges(list(range(101)), 5) == [0, 25, 50, 75, 100]
    assert sample_ranges(list(range(101)), 1) == [0]
