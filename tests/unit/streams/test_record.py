"""stream.json and super.json: no flipped bit loses a stream."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from headgate.errors import StreamError, StreamOptionsError
from headgate.message import Message
from headgate.streams.options import StreamOptions, damaged_options, load_options, save_options
from headgate.streams.stream import Stream
from headgate.streams.superstream import SuperStream

OPTIONS = StreamOptions(indexed=("region",), max_bytes=1 << 30)


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


@pytest.mark.parametrize("damaged", ["stream.json", "stream.json.copy"])
def test_no_flipped_bit_changes_an_option(
    tmp_path: Path, damaged: str, full: bool, caplog: pytest.LogCaptureFixture
) -> None:
    save_options(tmp_path, OPTIONS)
    caplog.set_level(logging.ERROR)  # the warnings are many
    bits = 8 * (tmp_path / damaged).stat().st_size
    for bit in range(0, bits, 1 if full else 7):  # with 7, every bit of a byte in its turn
        flip(tmp_path / damaged, bit)
        assert load_options(tmp_path) == OPTIONS, bit
        flip(tmp_path / damaged, bit)


def test_the_copy_is_read_with_a_warning_and_the_next_writer_restores_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Stream.create(tmp_path / "s", indexed=["region"]).close()
    for damaged in ("stream.json", "stream.json.copy"):
        file = tmp_path / "s" / damaged
        sound = file.read_bytes()
        flip(file, 100)
        assert list(damaged_options(tmp_path / "s")) == [file]
        with Stream.open(tmp_path / "s") as stream:
            assert stream.options.indexed == ("region",)
            assert file.read_bytes() != sound  # looking never writes
            with stream.producer() as producer:
                producer.publish(Message(b"x"))
        assert file.read_bytes() == sound
    assert "reading stream.json.copy instead" in caplog.text


def test_a_record_whose_copy_is_damaged_too_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    save_options(tmp_path, OPTIONS)
    for name in ("stream.json", "stream.json.copy"):
        flip(tmp_path / name, 100)
    with pytest.raises(StreamOptionsError, match=r"stream\.json cannot be read"):
        load_options(tmp_path)


def test_a_stream_of_an_earlier_version_gets_checksum_and_copy_when_it_is_written(
    tmp_path: Path,
) -> None:
    Stream.create(tmp_path / "s").close()
    known = json.loads((tmp_path / "s" / "stream.json").read_text())
    del known["crc32"]
    (tmp_path / "s" / "stream.json").write_text(json.dumps(known))
    (tmp_path / "s" / "stream.json.copy").unlink()
    with Stream.open(tmp_path / "s") as stream:
        assert not (tmp_path / "s" / "stream.json.copy").exists()
        stream.producer()
    assert "crc32" in (tmp_path / "s" / "stream.json").read_text()
    assert (tmp_path / "s" / "stream.json.copy").exists()


def test_a_stream_is_created_where_creating_one_was_interrupted(tmp_path: Path) -> None:
    save_options(tmp_path, OPTIONS)
    (tmp_path / "stream.json").unlink()
    Stream.create(tmp_path).close()
    assert load_options(tmp_path) == StreamOptions()


def test_no_flipped_bit_loses_a_super_stream(tmp_path: Path) -> None:
    SuperStream.create(tmp_path / "s", 3).close()
    for bit in range(0, 8 * (tmp_path / "s" / "super.json").stat().st_size, 3):
        flip(tmp_path / "s" / "super.json", bit)
        assert len(SuperStream.open(tmp_path / "s").partitions) == 3
        flip(tmp_path / "s" / "super.json", bit)
    (tmp_path / "s" / "super.json.copy").unlink()
    flip(tmp_path / "s" / "super.json", 30)
    with pytest.raises(StreamError, match=r"super\.json cannot be read"):
        SuperStream.open(tmp_path / "s")
