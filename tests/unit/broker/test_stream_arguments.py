"""Names of directories, and arguments of stream queues."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from headgate.broker.queue_definition import MAX_AGE_S, define_queue
from headgate.broker.refusals import PreconditionFailed
from headgate.broker.stream_arguments import (
    read_subscription,
    stored_filter_value,
    stream_options,
)
from headgate.broker.stream_home import MAX_FILE_NAME, encode_name
from headgate.streams import StreamOptions


@pytest.mark.parametrize(
    ("name", "encoded"),
    [
        ("orders", "orders"),
        ("/", "%2F"),
        ("..", "%2E."),
        (".hidden", "%2Ehidden"),
        ("a/../b", "a%2F..%2Fb"),
        ("", "%"),
        ("ü", "%C3%BC"),
    ],
)
def test_no_name_leaves_its_directory(name, encoded):
    assert encode_name(name) == encoded


def test_long_names_have_short_files_that_differ():
    names = ["ü" * 127 + end for end in "ab"]
    files = {encode_name(name) for name in names}
    assert len(files) == 2
    assert all(len(file) <= MAX_FILE_NAME for file in files)


def test_a_filter_value_that_no_stream_holds_is_replaced_by_a_digest():
    assert stored_filter_value("eu") == "eu"
    assert stored_filter_value("f" * 300) == stored_filter_value("f" * 300)
    assert stored_filter_value("f" * 300) != stored_filter_value("f" * 301)
    assert len(stored_filter_value("a\0b")) < 100


def test_arguments_of_a_consumer():
    wanted = read_subscription(
        "queue 'q'",
        {
            "x-stream-offset": "2h",
            "x-stream-filter": ["a", 5],
            "x-stream-match-unfiltered": True,
            "x-stream-filter-exact": True,
        },
    )
    assert wanted.start == timedelta(hours=2)
    assert wanted.keywords == {
        "filter_values": ("a",),
        "match_unfiltered": True,
        "whole_chunks": False,
    }
    assert read_subscription("q", {"x-stream-filter": []}).keywords["filter_values"] == ()
    assert read_subscription("q", {}).start == "next"
    assert read_subscription("q", {"x-stream-offset": -5}).start == 0


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-stream-offset": "tomorrow"},
        {"x-stream-offset": True},
        {"x-stream-offset": 1.5},
        {"x-stream-filter-exact": "yes"},
        {"x-filter": 7},
        {"x-filter": "region = "},
    ],
)
def test_arguments_that_cannot_be_used_are_refused(arguments):
    with pytest.raises(PreconditionFailed, match=next(iter(arguments))):
        read_subscription("queue 'q'", arguments)


def test_a_bad_filter_is_refused_with_a_caret():
    with pytest.raises(PreconditionFailed) as refused:
        read_subscription("queue 'q'", {"x-filter": "region == 'EU'"})
    assert "region == 'EU'\n" in str(refused.value)
    assert str(refused.value).endswith("^")


def test_options_of_the_stream_follow_from_the_arguments():
    definition = define_queue(
        "q",
        "/",
        {
            "x-queue-type": "stream",
            "x-max-age": "7D",
            "x-max-length-bytes": 10_000_000,
            "x-stream-max-segment-size-bytes": 100,
            "x-stream-filter-size-bytes": 64,
        },
    )
    assert stream_options(definition, "always") == {
        "fsync": "always",
        "filter_size": 64,
        "segment_bytes": 4096,
        "max_bytes": 10_000_000,
        "max_age": timedelta(days=7),
    }
    plain = define_queue("q", "/", {"x-queue-type": "stream", "x-stream-indexed": ["a"]})
    new = StreamOptions(indexed=["a"], fsync="always")
    assert replace(StreamOptions(max_age=timedelta(1)), **stream_options(plain, "always")) == new


@pytest.mark.parametrize("age", ["99999999999999999999Y", "9" * 5_000 + "s"])
def test_an_age_beyond_all_messages_is_cut(age):
    definition = define_queue("q", "/", {"x-queue-type": "stream", "x-max-age": age})
    half_a_century = timedelta(seconds=MAX_AGE_S)
    assert stream_options(definition, "always")["max_age"] == half_a_century
    assert read_subscription("q", {"x-stream-offset": age}).start == half_a_century
