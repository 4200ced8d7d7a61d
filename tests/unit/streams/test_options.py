"""Options: kept, refused, changed."""

from datetime import timedelta

import pytest

from headgate.errors import StreamNotFound, StreamOptionsError
from headgate.streams.options import StreamOptions, change_options, load_options, save_options


def test_options_are_read_back_from_the_file(tmp_path):
    options = StreamOptions(
        indexed=["region", "é"],
        filter_size=2048,
        restrict_same_values={"region": ["us", 1, 1.0, True]},
        fsync="always",
        linger=timedelta(0),
        max_age=timedelta(days=7),
    )
    save_options(tmp_path, options)
    found = load_options(tmp_path)
    assert found == options
    assert [type(v) for v in found.restrict_same_values["region"]] == [str, int, float, bool]


def test_the_filter_size_follows_what_is_in_the_filter():
    assert StreamOptions().filter_size == 16
    assert StreamOptions(indexed=["region"]).filter_size == 1024
    assert StreamOptions(filter_size=255).bloom_hashes == 2
    assert change_options(StreamOptions(), {"indexed": ["region"]}).filter_size == 1024


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"filter_size": 15}, "16 to 255"),
        ({"filter_size": 256}, "16 to 255"),
        ({"filter_size": 16385, "indexed": ["a"]}, "16 to 16384"),
        ({"indexed": ["a", "a"]}, "twice"),
        ({"indexed": ["a\x00"]}, "control characters"),
        ({"indexed": [str(i) for i in range(64)]}, "at most 63"),
        ({"fsync": "sometimes"}, "always, interval or never"),
        ({"restrict_same_values": {"a": "us"}}, "needs a list"),
        ({"restrict_same_values": {"a": [float("nan")]}}, "not a finite number"),
        ({"restrict_same_values": {str(i): [1] for i in range(64)}}, "combinations"),
        ({"chunk_messages": 0}, "chunk_messages"),
        ({"chunk_bytes": 0}, "chunk_bytes"),
        ({"segment_bytes": 1}, "segment_bytes"),
        ({"linger": timedelta(-1)}, "linger"),
        ({"max_age": timedelta(0)}, "max_age"),
        ({"max_bytes": 0}, "max_bytes"),
        ({"colour": "red"}, "there is no option 'colour'"),
    ],
)
def test_an_unusable_option_is_refused_by_name(options, complaint):
    with pytest.raises(StreamOptionsError, match=complaint):
        change_options(StreamOptions(), options)


def test_a_directory_without_stream_json_is_no_stream(tmp_path):
    with pytest.raises(StreamNotFound, match=r"Stream\.create"):
        load_options(tmp_path)


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"format": 99}', '{"format": 1, "colour": 1}']
)
def test_a_damaged_stream_json_is_an_error_that_names_the_file(tmp_path, content):
    (tmp_path / "stream.json").write_text(content)
    with pytest.raises(StreamOptionsError, match=r"stream\.json"):
        load_options(tmp_path)
