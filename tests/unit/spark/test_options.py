from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from headgate.errors import FilterSyntaxError, SparkOptionsError, StreamNotFound
from headgate.filters.parser import parse
from headgate.spark.options import default_cursor, directory_of, parse_stream_read, stream_paths
from headgate.streams.stream import Stream
from headgate.streams.superstream import SuperStream


@pytest.fixture
def path(stream: Stream) -> str:
    return str(stream.path)


def test_options_that_are_not_set_have_defaults(path: str) -> None:
    options = parse_stream_read({"path": path})
    assert (options.paths, options.start, options.end) == ((path,), "first", "next")
    assert (options.max_messages, options.max_bytes, options.partitions) == (None, None, 0)
    assert options.fail_on_data_loss
    assert options.cursor == default_cursor((path,), options.filter)


def test_names_of_options_do_not_care_for_case(path: str) -> None:
    given = {"PATH": path, "maxmessagespertrigger": "5", "FROM": "1h", "FailOnDataLoss": "FALSE"}
    options = parse_stream_read({key.lower(): value for key, value in given.items()})
    assert (options.max_messages, options.start) == (5, timedelta(hours=1))
    assert not options.fail_on_data_loss


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"filtr": "a = 1"}, "no option 'filtr'; did you mean 'filter'"),
        ({"zzz": "1"}, "no option 'zzz'; the options are path, paths, filter"),
        ({"partitions": "0"}, "partitions: give a whole number of at least 1, not '0'"),
        ({"partitions": "9" * 5000}, "partitions: give a whole number"),
        ({"maxMessagesPerTrigger": str(2**63)}, "maxMessagesPerTrigger: give a whole number"),
        ({"maxBytesPerTrigger": "1k"}, "maxBytesPerTrigger: give a whole number"),
        ({"from": "1", "startingOffset": "1"}, "from and startingOffset mean the same option"),
        ({"startingOffset": "yesterday"}, "startingOffset: cannot start at 'yesterday'"),
        ({"endingOffset": "last"}, "endingOffset: give an offset, a moment or 'next'"),
        ({"failOnDataLoss": "perhaps"}, "failOnDataLoss: give true or false"),
        ({"paths": "[1]"}, "paths: give a list of directories"),
        ({"paths": "[oops"}, "is no JSON list"),
        (
            {"path": "s3://bucket/x"},
            "a stream is a directory that driver and executors share, not s3:",
        ),
        ({"path": ""}, "no stream is given"),
    ],
)
def test_invalid_options_are_refused(given: dict[str, str], problem: str, path: str) -> None:
    with pytest.raises(SparkOptionsError, match=problem):
        parse_stream_read({"path": path, **given})


def test_a_missing_stream_and_a_bad_filter_are_refused(path: str) -> None:
    with pytest.raises(StreamNotFound, match="there is no stream in"):
        parse_stream_read({"path": path + "-not"})
    with pytest.raises(FilterSyntaxError, match=r"(?m)\^$"):
        parse_stream_read({"path": path, "filter": "a = "})


def test_several_streams_are_a_list_or_separated_by_commas(tmp_path: Path) -> None:
    for name in "ab":
        Stream.create(tmp_path / name).close()
    both = (str(tmp_path / "a"), str(tmp_path / "b"))
    assert stream_paths({"paths": f" {both[0]}, {both[1]}"}) == both
    assert stream_paths({"paths": f'["{both[0]}", "{both[1]}"]'}) == both
    with pytest.raises(SparkOptionsError, match="is listed twice"):
        stream_paths({"paths": f"{both[0]},{both[0]}"})


def test_a_super_stream_counts_as_its_partitions(tmp_path: Path) -> None:
    SuperStream.create(tmp_path / "many", 3).close()
    assert stream_paths({"path": str(tmp_path / "many")}) == tuple(
        str(tmp_path / "many" / f"partition-{i}") for i in range(3)
    )


def test_paths_are_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert directory_of("data/x") == str(tmp_path / "data/x")
    assert directory_of("file:///data/a%20b") == "/data/a b"


def test_a_query_keeps_its_cursor_after_a_restart_and_another_query_has_another() -> None:
    one = default_cursor(["/a"], parse("x = 1"))
    assert one == default_cursor(["/a"], parse("x  =  1"))
    assert (
        len({one, default_cursor(["/b"], parse("x = 1")), default_cursor(["/a"], parse("x = 2"))})
        == 3
    )
