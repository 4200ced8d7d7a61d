from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from headgate.errors import StreamOptionsError
from headgate.message import Message
from headgate.streams.read import consumer
from headgate.streams.read import entry_filters as entry
from headgate.streams.read.entry_filters import Decision, load_entry_filter, resolve_entry_filters
from headgate.streams.segments.hot_chunk import HotChunk
from headgate.streams.segments.segment import ChunkMetadata
from headgate.streams.stream import Stream

# Seed 004: <region=us,eu; version=1,2>, msg1 … msg8.
PROPERTIES: list[Mapping[str, str]] = [
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
    ({"region": "eu"}, 2),
    ({"region": "eu", "version": "1"}, 2),
    ({"region": "us", "version": "1"}, 1),
    ({"region": "us", "version": "2"}, 1),
    ({"region": "us"}, 2),
]


class Recording:
    """Accepts the chunks whose properties include these, and remembers what it saw."""

    def __init__(self, **wanted: str) -> None:
        self.wanted, self.seen = wanted, []

    def decide(self, chunk: ChunkMetadata) -> Decision:
        self.seen.append((dict(chunk.properties), chunk.count))
        wanted = self.wanted.items() <= chunk.properties.items()
        return Decision.ACCEPT if wanted else Decision.REJECT


@pytest.fixture
def restricted_stream(tmp_path: Path) -> Stream:
    restriction = {"region": ["us", "eu"], "version": ["1", "2"]}
    made = Stream.create(tmp_path / "s", restrict_same_values=restriction)
    with made.producer() as producer:
        for i, headers in enumerate(PROPERTIES, 1):
            producer.publish(Message(b"msg%d" % i, headers=headers))
    return made


def payloads(stream: Stream, filter: object) -> list[bytes]:
    return [m.payload for m in stream.consume(entry_filter=filter)]  # type: ignore[arg-type]


def test_an_entry_filter_sees_the_five_batches_of_the_seed(restricted_stream: Stream) -> None:
    everything = Recording()
    assert payloads(restricted_stream, everything) == [b"msg%d" % i for i in range(1, 9)]
    assert everything.seen == BATCHES


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"region": "eu"}, [1, 2, 3, 4]),
        ({"region": "us"}, [5, 6, 7, 8]),
        ({"version": "1"}, [3, 4, 5]),
        ({"region": "us", "version": "2"}, [6]),
        ({"region": "mars"}, []),
    ],
)
def test_an_entry_filter_decides_alike_after_sealing(
    restricted_stream: Stream, wanted: dict[str, str], found: list[int]
) -> None:
    expected = [b"msg%d" % i for i in found]
    assert payloads(restricted_stream, Recording(**wanted)) == expected
    restricted_stream.seal(all=True)
    after = Recording(**wanted)
    assert payloads(restricted_stream, after) == expected
    assert sorted(after.seen, key=repr) == sorted(BATCHES, key=repr)


def test_a_rejected_chunk_is_not_opened_and_none_of_its_messages_decoded(
    restricted_stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded, opened = [], []
    decode, start = consumer.decode_records, HotChunk.__init__
    monkeypatch.setattr(
        consumer, "decode_records", lambda batch: decoded.append(batch.num_rows) or decode(batch)
    )
    monkeypatch.setattr(HotChunk, "__init__", lambda self, *a: opened.append(1) or start(self, *a))
    assert payloads(restricted_stream, Recording(region="mars")) == []
    assert (decoded, opened) == ([], [])
    assert payloads(restricted_stream, Recording(region="eu", version="1")) == [b"msg3", b"msg4"]
    assert (decoded, opened) == ([2], [1])


def test_rejected_chunks_are_counted(restricted_stream: Stream) -> None:
    scan = restricted_stream.scan(entry_filter=Recording(region="eu"))
    assert sum(batch.num_rows for batch in scan) == 4
    assert (scan.stats.chunks_rejected, scan.stats.chunks_all) == (3, 2)


def test_an_entry_filter_and_a_filter_must_both_agree(restricted_stream: Stream) -> None:
    found = restricted_stream.consume(
        "version = '1'", entry_filter=[Recording(region="us"), Recording()]
    )
    assert [m.payload for m in found] == [b"msg5"]


def test_a_package_offers_an_entry_filter_by_name(
    restricted_stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = EntryPoint("europe", f"{__name__}:Europe", entry.GROUP)
    broken = EntryPoint("broken", "builtins:dict", entry.GROUP)
    monkeypatch.setattr(
        entry, "entry_points", lambda group: EntryPoints([point, broken]).select(group=group)
    )
    monkeypatch.setattr(EntryPoint, "load", lambda self: Europe if self.name == "europe" else dict)
    assert payloads(restricted_stream, "europe") == [b"msg1", b"msg2", b"msg3", b"msg4"]
    with pytest.raises(StreamOptionsError, match=r"no installed package.*'asia'.*broken, europe"):
        load_entry_filter("asia")
    with pytest.raises(StreamOptionsError, match="broken is not an entry filter"):
        load_entry_filter("broken")


class Europe:
    def decide(self, chunk: ChunkMetadata) -> Decision:
        return Decision.ACCEPT if chunk.properties.get("region") == "eu" else Decision.REJECT


def test_a_stream_can_name_an_entry_filter_for_every_reader(
    restricted_stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = EntryPoint("europe", "somewhere:Europe", entry.GROUP)
    monkeypatch.setattr(entry, "entry_points", lambda group: EntryPoints([point]))
    monkeypatch.setattr(EntryPoint, "load", lambda self: Europe)
    path = restricted_stream.path
    restricted_stream.close()
    with Stream.open(path) as reopened:
        everything = len(list(reopened.consume()))
        reopened.reconfigure(entry_filters=["europe"])
        assert 0 < len(list(reopened.consume())) < everything
    with Stream.open(path) as again:
        assert again.options.entry_filters == ("europe",)
        assert len(list(again.consume())) < everything


@pytest.mark.parametrize("given", [3, Europe, object()])
def test_an_object_without_decide_is_refused(given: object) -> None:
    with pytest.raises(StreamOptionsError, match="is not an entry filter"):
        resolve_entry_filters(given)  # type: ignore[arg-type]
