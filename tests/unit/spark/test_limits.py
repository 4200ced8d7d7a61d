from __future__ import annotations

from random import Random

from headgate.spark.source.stream_micro import limit_offsets


def test_what_is_within_the_limit_is_read_whole() -> None:
    assert limit_offsets({"a": 5}, {"a": 25}, 20) == {"a": 25}


def test_every_stream_gets_a_part_in_proportion_to_what_it_has() -> None:
    assert limit_offsets({"a": 0, "b": 100}, {"a": 900, "b": 200}, 100) == {"a": 90, "b": 110}


def test_a_limit_is_never_exceeded_and_there_is_always_progress(seed: int) -> None:
    rng = Random(seed)
    for _ in range(500):
        begin = {name: rng.randint(0, 50) for name in "abcd"[: rng.randint(1, 4)]}
        end = {name: offset + rng.choice((0, 1, 7, 1000)) for name, offset in begin.items()}
        most = rng.randint(1, 60)
        found = limit_offsets(begin, end, most)
        assert all(begin[name] <= found[name] <= end[name] for name in begin)
        ahead = sum(end.values()) - sum(begin.values())
        assert sum(found.values()) - sum(begin.values()) == min(most, ahead) or len(begin) > 1
        assert sum(found.values()) - sum(begin.values()) <= most
        assert found != begin or not ahead


def test_everything_is_read_in_the_end_with_the_smallest_limit() -> None:
    at, end, steps = {"a": 0, "b": 3}, {"a": 4, "b": 9}, 0
    while at != end:
        at, steps = limit_offsets(at, end, 1), steps + 1
    assert steps == 10


def test_a_message_heavier_than_the_limit_is_read_alone() -> None:
    assert limit_offsets({"a": 0, "b": 0}, {"a": 9, "b": 3}, 10, {"a": 100.0, "b": 50.0}) == {
        "a": 1,
        "b": 0,
    }
