"""Whatever a stream has been through, a filter returns exactly what the reference predicate selects, in order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from headgate.columns.decode import Record, decode_records
from headgate.filters.logic import matches_filter
from headgate.filters.normal import bind_now
from headgate.message import OPAQUE, Message
from headgate.streams.cold import compaction, write
from headgate.streams.cold.compaction import compact
from headgate.streams.read import scan as reader
from headgate.streams.segments import clustering as cluster
from headgate.streams.stream import Stream
from tests import generate
from tests.conftest import FULL, SEED

ROUNDS = 400 if FULL else 8
FILTERS = 20


class History:
    """A stream, and the messages that must be in it."""

    def __init__(self, path: Path, rng: Random) -> None:
        self.path, self.rng = path, rng
        self.messages: list[Message] = []
        self.clock = 1_750_000_000_000_000
        self.stream = Stream.create(path, **self._options())

    def _options(self) -> dict[str, object]:
        rng = self.rng
        options: dict[str, object] = {
            "indexed": rng.sample(generate.HEADERS, rng.randint(0, 4)),
            "chunk_messages": rng.choice((1, 2, 7, 30, 200)),
            "segment_bytes": rng.choice((4096, 20_000, 1 << 20)),
        }
        if rng.random() < 0.3:
            values = rng.sample(["EU", "US", "a", 1, 2.5, True], 2)
            options["restrict_same_values"] = {rng.choice(generate.HEADERS[:4]): values}
        return options

    def step(self) -> None:
        do = self.rng.choice(
            (
                self.publish,
                self.publish,
                self.publish,
                self.append,
                self.seal,
                self.compact,
                self.restart,
            )
        )
        do()

    def publish(self) -> None:
        batch = [self._message() for _ in range(self.rng.choice((1, 3, 20, 60)))]
        with self.stream.producer() as producer:
            for message in batch:
                producer.publish(message)
                if self.rng.random() < 0.05:
                    producer.flush()
        self.messages += batch

    def append(self) -> None:
        """Append Arrow data: a header may be text in one table and a number in the next."""
        rows = self.rng.randint(1, 50)
        kind = self.rng.choice((generate.STRINGS, generate.INTS, generate.FLOATS))
        values = [self.rng.choice((*kind, None)) for _ in range(rows)]
        stamps = [self._stamp() for _ in range(rows)]
        column = (
            pa.array(values) if any(v is not None for v in values) else pa.nulls(rows, pa.string())
        )
        self.stream.append(pa.table({"timestamp": pa.array(stamps, pa.int64()), "region": column}))
        self.messages += [
            Message(headers={} if v is None else {"region": v}, timestamp=t)
            for v, t in zip(values, stamps, strict=True)
        ]

    def seal(self) -> None:
        self.stream.seal(all=self.rng.random() < 0.6)

    def compact(self) -> None:
        """Compact some or all sealed segments; covered files stay, hidden, while the stream is being written."""
        everything = self.rng.random() < 0.5
        self.stream.seal(all=everything)
        before = None if everything else self.rng.randint(0, len(self.messages) + 1)
        compact(self.path, before_offset=before, created_us=self.clock)

    def restart(self) -> None:
        self.stream.close()
        self.stream = Stream.open(self.path)
        if self.rng.random() < 0.6:
            self.stream.reconfigure(**self._options())

    def _stamp(self) -> int:
        self.clock += self.rng.randint(0, 1000)
        return self.clock - self.rng.choice((0, 0, 500_000))

    def _message(self) -> Message:
        made = generate.message(self.rng)
        headers = {name: value for name, value in made.headers.items() if value is not None}
        if self.rng.random() < 0.02:  # past the cap of columns
            names = self.rng.sample(range(500), 140)
            headers |= {f"extra{n}": generate.scalar(self.rng) for n in names}
        if self.rng.random() < 0.02:
            headers["a"] = OPAQUE
        return Message(
            self.rng.randbytes(self.rng.choice((0, 5, 300))), made.topic, headers, made.priority,
            self._stamp(), made.id, made.filter_value, made.key, made.properties,
        )  # fmt: skip


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of a test are small: so must their chunks be."""
    monkeypatch.setattr(cluster, "CHUNK_ROWS", 20)
    monkeypatch.setattr(reader, "BATCH_ROWS", 50)
    monkeypatch.setattr(write, "ROW_GROUP_ROWS", 40)
    monkeypatch.setattr(compaction, "COLD_BYTES", 60_000)


@pytest.mark.parametrize("turn", range(ROUNDS))
def test_consume_and_scan_return_exactly_what_the_reference_selects(
    tmp_path: Path, turn: int
) -> None:
    rng = Random(f"{SEED}/{turn}")
    history = History(tmp_path / "s", rng)
    for _ in range(rng.randint(4, 12)):
        history.step()
    for _ in range(FILTERS):
        check(history, rng)
    history.stream.close()


def check(history: History, rng: Random) -> None:
    filter = bind_now(generate.filter(rng), generate.NOW_US)
    start = rng.choice(("first", "first", rng.randint(0, len(history.messages))))
    first = 0 if start == "first" else start
    wanted = [
        Record(offset, message)
        for offset, message in enumerate(history.messages)
        if offset >= first and matches_filter(filter, message)
    ]
    scan = history.stream.scan(filter, start=start)
    assert_same([r for batch in scan for r in decode_records(batch)], wanted, filter)
    assert scan.stats.rows_matched == len(wanted)
    assert scan.position == max(first, len(history.messages))
    consumer = history.stream.consume(filter, start=start)
    assert_same(list(consumer.records()), wanted, filter)
    assert consumer.position == scan.position


def assert_same(found: Sequence[Record], wanted: Sequence[Record], filter: object) -> None:
    assert [r.offset for r in found] == [r.offset for r in wanted], filter
    assert list(found) == list(wanted)


@pytest.mark.parametrize("turn", range(ROUNDS // 4))
def test_filter_values_are_exact_hot_sealed_and_cold(tmp_path: Path, turn: int) -> None:
    rng = Random(f"{SEED}/{turn}")
    history = History(tmp_path / "s", rng)
    for _ in range(4):
        history.publish()
    for becoming in (lambda: None, lambda: history.stream.seal(all=True), history.compact):
        becoming()
        for values in (["EU"], ["EU", "US"], ["nowhere"], []):
            for unfiltered in (False, True):
                found = history.stream.consume(filter_values=values, match_unfiltered=unfiltered)
                assert [m.payload for m in found] == [
                    m.payload
                    for m in history.messages
                    if m.filter_value in values or (unfiltered and m.filter_value is None)
                ]
