"""One stream under everything at once: published to without a pause while it is sealed, trimmed, compacted and read."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pyarrow as pa

from headgate.clock import now_us
from headgate.message import Message
from headgate.streams.cold.compaction import compact
from headgate.streams.read.consumer import StreamConsumer
from headgate.streams.stream import Stream
from headgate.streams.upkeep.verification import verify

TIME_LIMIT = timedelta(minutes=5)


class Crew:
    """Threads that each do one thing again and again until the work is over."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.problems: list[BaseException] = []

    @contextmanager
    def at_work(self, *tasks: Callable[[], object]) -> Iterator[None]:
        threads = [threading.Thread(target=self._repeat, args=(task,)) for task in tasks]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.over.set()
            for thread in threads:
                thread.join(TIME_LIMIT.total_seconds())
        assert self.problems == []

    def _repeat(self, task: Callable[[], object]) -> None:
        try:
            while not self.over.is_set():
                task()
        except BaseException as problem:
            self.problems.append(problem)


class Witness:
    """Reads everything, and knows how far; what it has seen may be dropped."""

    def __init__(self, consumer: StreamConsumer) -> None:
        self.consumer, self.next_offset = consumer, 0
        self.seen: dict[str, list[int]] = {}

    def look(self, most: int = 5000) -> bool:
        """Whether there was anything more."""
        for _ in range(most):
            record = self.consumer.poll()
            if record is None:
                return False
            assert record.offset == self.next_offset
            self.next_offset += 1
            self.seen.setdefault(record.message.topic, []).append(int(record.message.payload))
        return True


def deposited(number: int, rows: int) -> pa.Table:
    payloads = [b"%d" % (number * rows + i) for i in range(rows)]
    return pa.table({"topic": ["deposits"] * rows, "payload": pa.array(payloads, pa.binary())})


def test_every_message_is_stored_once_through_many_rolls_while_others_read_and_seal(
    tmp_path: Path, seed: int, full: bool
) -> None:
    rolls, rng = (600 if full else 50), random.Random(seed)
    stream = Stream.create(
        tmp_path / "s", segment_bytes=1 << 14, chunk_messages=64, linger=timedelta(milliseconds=1)
    )
    outsider = Stream.open(tmp_path / "s")
    witness = Witness(outsider.consume(follow=True))
    deposits = 0

    def deposit() -> None:
        nonlocal deposits
        outsider.deposit("outsider", deposits, deposited(deposits, 3))
        deposits += 1

    def trim() -> None:
        stream.trim(before_offset=max(witness.next_offset - rng.randrange(20_000), 0))

    def make_cold() -> None:
        compact(stream.path, before_offset=witness.next_offset, created_us=now_us())

    sent = _publish_while(stream, rolls, rng, [stream.seal, trim, make_cold, deposit, witness.look])
    while witness.look():
        pass
    assert witness.seen["sent"] == list(range(sent))
    assert witness.seen["deposits"] == list(range(3 * deposits))
    problems = verify(stream.path).problems
    # What becomes cold last is removed by the writer that opens next, where one held the lock at that moment.
    assert [p for p in problems if "became cold" not in p.what] == []
    with Stream.open(stream.path) as again:
        assert again.producer("p").confirmed_publishing_id == sent - 1
        assert again.next_offset == witness.next_offset
    outsider.close()
    assert verify(stream.path).fine


def _publish_while(
    stream: Stream, rolls: int, rng: random.Random, tasks: list[Callable[[], object]]
) -> int:
    """Send without a pause, through so many rolls, while the tasks run; how many were sent."""
    crew, sent, seen = Crew(), 0, {0}
    deadline = time.monotonic() + TIME_LIMIT.total_seconds()
    with stream, stream.producer("p") as producer, crew.at_work(*tasks):
        writer = stream._writer
        assert writer is not None
        while len(seen) <= rolls and time.monotonic() < deadline and not crew.problems:
            for _ in range(rng.randrange(1, 600)):
                producer.publish(Message(b"%d" % sent, topic="sent", headers={"n": sent % 7}))
                sent += 1
            seen.add(writer.active_first_offset)
    assert crew.problems == []
    assert len(seen) > rolls, "the time limit came first"
    return sent
