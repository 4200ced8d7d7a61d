"""Consumer groups: every message reaches one member, and another one if the first dies before it has committed."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import chain, islice
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from headgate.aio import AsyncStream
from headgate.errors import PositionLost, StreamError, StreamOptionsError
from headgate.message import Message
from headgate.streams.format import MEMBERS
from headgate.streams.read import group as group_module
from headgate.streams.read.consumer import StreamConsumer
from headgate.streams.stream import Stream
from headgate.streams.superstream import SuperStream
from tests.forked import in_child
from tests.patience import PATIENCE, wait_until

VICTIM = Path(__file__).with_name("group_victim.py")
SOON = timedelta(milliseconds=200)


@pytest.fixture(autouse=True)
def small_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_module, "SHARE_MESSAGES", 10)


@pytest.fixture
def numbers(tmp_path: Path) -> Stream:
    """100 messages in chunks of 10: shares of 10."""
    stream = Stream.create(tmp_path / "numbers", chunk_messages=10)
    add(stream, range(100))
    return stream


def add(stream: Stream, numbers: range) -> None:
    with stream.producer() as producer:
        producer.publish_many([Message(b"%d" % n, headers={"n": n}) for n in numbers])


def offsets(member, count=None):
    return [record.offset for record in islice(member.records(), count)]


def position(stream: Stream, name: str = "g") -> int | None:
    cursor = stream.cursors().get(name)
    return None if cursor is None else cursor.position


def test_one_member_reads_everything_in_order(numbers: Stream) -> None:
    with numbers.join_group("g") as member:
        assert offsets(member) == list(range(100))
        assert position(numbers) == 0
        assert member.lag() == 100
        member.commit()
        assert position(numbers) == 100
        assert member.lag() == 0
    with numbers.join_group("g") as member:
        assert offsets(member) == []


def test_every_message_goes_to_one_member(numbers: Stream) -> None:
    with numbers.join_group("g") as first, numbers.join_group("g") as second:
        mine, yours = offsets(first, 3), offsets(second, 15)
        assert (mine, yours) == ([0, 1, 2], [*range(10, 25)])
        rest = offsets(first)
        assert rest == [*range(3, 10), *range(30, 100)]
        assert offsets(second) == [*range(25, 30)]
        second.commit()
        assert position(numbers) == 0  # the first ten are not done
        first.commit()
        assert position(numbers) == 100


def test_the_shares_of_a_member_that_is_closed_are_handed_on_from_its_last_commit(
    numbers: Stream,
) -> None:
    first, second = numbers.join_group("g"), numbers.join_group("g")
    assert offsets(first, 15) == list(range(15))
    first.commit()
    assert offsets(first, 3) == [15, 16, 17]
    assert offsets(second, 1) == [20]
    first.close()
    assert offsets(second) == [*range(21, 30), *range(15, 20), *range(30, 100)]
    second.commit()
    assert position(numbers) == 100
    second.close()
    assert list((numbers.path / MEMBERS).iterdir()) == []


def test_a_member_that_is_forgotten_is_as_one_that_is_closed(numbers: Stream) -> None:
    member = numbers.join_group("g")
    assert offsets(member, 5) == list(range(5))
    del member
    gc.collect()
    with numbers.join_group("g") as other:
        assert offsets(other, 5) == list(range(5))


def test_only_what_matches_is_returned_and_shares_without_a_match_need_no_commit(
    numbers: Stream,
) -> None:
    with numbers.join_group("g", "n = 37 OR n = 81") as member:
        assert offsets(member, 1) == [37]
        assert position(numbers) == 30
        member.commit()
        assert position(numbers) == 38
        assert offsets(member, 1) == [81]
        member.commit()
        assert offsets(member) == []
        assert (position(numbers), member.lag()) == (100, 0)


def test_members_with_other_filters_are_refused(numbers: Stream) -> None:
    with numbers.join_group("g", "n = 1"):
        with pytest.raises(StreamError, match=r"has members with the filter 'n = 1'"):
            numbers.join_group("g", "n = 2")
        numbers.join_group("other", "n = 2").close()
    with numbers.join_group("g", "n = 2") as member:  # the first has left
        assert offsets(member) == [2]
    assert list((numbers.path / MEMBERS).iterdir()) == []


def test_a_sealed_segment_whose_chunks_are_clustered_is_one_share(tmp_path: Path) -> None:
    with Stream.create(tmp_path / "s", indexed=["n"], chunk_messages=10) as stream:
        with stream.producer() as producer:
            producer.publish_many([Message(b"", headers={"n": str(i % 7)}) for i in range(100)])
        stream.seal(all=True)
        add(stream, range(100, 120))
        with stream.join_group("g") as first, stream.join_group("g") as second:
            assert offsets(first, 1) == [0]
            assert offsets(second, 1) == [100]
            assert offsets(first) == [*range(1, 100), *range(110, 120)]


def test_a_member_follows_what_is_published(numbers: Stream) -> None:
    with numbers.join_group("g", start="next", follow=True, timeout=SOON) as member:
        add(numbers, range(100, 105))
        assert offsets(member, 5) == [*range(100, 105)]
        member.commit()
        assert position(numbers) == 105
        assert offsets(member) == []  # after the timeout


def test_a_member_without_follow_ends_where_the_stream_ended_when_it_joined(
    numbers: Stream,
) -> None:
    with numbers.join_group("g") as member:
        add(numbers, range(100, 105))
        assert offsets(member) == list(range(100))


def test_batches_are_committed_by_share(numbers: Stream) -> None:
    with numbers.join_group("g") as member:
        rows = [batch.num_rows for batch in member.batches()]
        assert sum(rows) == 100
        member.commit()
    assert position(numbers) == 100


def test_a_post_filter_that_takes_none_needs_no_commit(numbers: Stream) -> None:
    with numbers.join_group("g", post_filter=lambda message: message.payload == b"55") as member:
        assert offsets(member, 1) == [55]
        member.commit()
        assert offsets(member) == []
    assert position(numbers) == 100


def test_a_prepared_commit_counts_what_was_returned_when_it_was_prepared(numbers: Stream) -> None:
    with numbers.join_group("g") as member:
        assert offsets(member, 15) == list(range(15))
        commit = member.prepare_commit()
        assert offsets(member, 20) == [*range(15, 35)]
        commit()
        assert position(numbers) == 15
        member.commit()
        assert position(numbers) == 35


def test_a_commit_that_meets_the_next_share_marks_nothing_of_it_done(
    numbers: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    position_of = StreamConsumer.position.fget
    assert position_of is not None
    with numbers.join_group("g") as second:
        with numbers.join_group("g") as first:
            assert offsets(first, 1) == [0]
            assert offsets(second, 10) == list(range(10, 20))
        reading = iter([True])

        def read_on(consumer: StreamConsumer) -> int:
            found: int = position_of(consumer)
            if next(reading, False):  # as the thread does that reads for asyncio
                assert consumer.fill_buffer()
            return found

        with monkeypatch.context() as patch:
            patch.setattr(StreamConsumer, "position", property(read_on))
            second.commit()
        assert position(numbers) == 0
        assert offsets(second, 10) == list(range(10))
        second.commit()
        assert position(numbers) == 20


def test_a_forked_child_leaves_the_group_to_its_parent(numbers: Stream) -> None:
    with numbers.join_group("g") as member:
        assert offsets(member, 5) == list(range(5))
        assert "has left the group" in in_child(member.commit)
        assert in_child(member.close) == "None"
        member.commit()
        assert position(numbers) == 5


def test_a_cursor_belongs_to_a_group_or_to_a_consumer(numbers: Stream) -> None:
    with numbers.join_group("g") as member:
        assert offsets(member, 5) == list(range(5))
        with pytest.raises(StreamOptionsError, match="cannot seek"):
            member.seek("first")
        with pytest.raises(StreamError, match="is that of a consumer group"):
            numbers.consume(cursor="g").commit()
        with pytest.raises(StreamOptionsError, match="a cursor's name is text"):
            numbers.join_group("")
    with pytest.raises(StreamError, match="delete the cursor first"):  # five are not done
        numbers.consume(cursor="g").commit()
    assert numbers.cursors().delete("g")
    numbers.consume(cursor="g", start=50).commit()
    with numbers.join_group("g") as member:  # goes on where the consumer was
        assert offsets(member, 1) == [50]


def test_a_group_whose_cursor_was_deleted_says_so(numbers: Stream) -> None:
    with numbers.join_group("g") as member:
        numbers.cursors().delete("g")
        with pytest.raises(StreamError, match="was deleted; join it again"):
            next(member)


def test_messages_that_retention_deleted_are_lost_to_the_group(tmp_path: Path) -> None:
    with Stream.create(tmp_path / "s", segment_bytes=4096, chunk_messages=1) as stream:
        with stream.producer() as producer:
            for _ in range(10):
                producer.publish(bytes(3000))
                producer.flush()
        with stream.join_group("g", on_lost="first") as member:
            assert offsets(member, 1) == [0]
            stream.trim(before_offset=5)
        with pytest.raises(PositionLost):
            stream.join_group("g")
        with stream.join_group("g", on_lost="first") as member:
            assert offsets(member)[-5:] == [*range(5, 10)]
            member.commit()
        assert position(stream) == 10


def test_threads_share_a_group(numbers: Stream) -> None:
    add(numbers, range(100, 1000))

    def read(_: int) -> list[int]:
        found = []
        with numbers.join_group("g") as member:
            for record in member.records():
                found.append(record.offset)
                member.commit()
        return found

    with ThreadPoolExecutor(4) as threads:
        parts = list(threads.map(read, range(4)))
    assert sorted(chain(*parts)) == list(range(1000))
    assert position(numbers) == 1000


def test_a_super_stream_is_shared(tmp_path: Path) -> None:
    with SuperStream.create(tmp_path / "s", 3, chunk_messages=10) as stream:
        with stream.producer() as producer:
            producer.publish_many([Message(b"%d" % i, key=str(i)) for i in range(300)])
        with stream.join_group("g") as first, stream.join_group("g") as second:
            mine = [next(first).payload for _ in range(40)]
            yours = [message.payload for message in second]
            mine += [message.payload for message in first]
            first.commit()
            second.commit()
        assert sorted(map(int, mine + yours)) == list(range(300))
        assert min(len(mine), len(yours)) > 0
        (cursor,) = stream.cursors().list()
        assert sum(position or 0 for position in cursor.positions) == 300


def test_a_group_in_asyncio(numbers: Stream) -> None:
    async def read() -> list[list[int]]:
        async with await AsyncStream.open(numbers.path) as stream:
            parts: list[list[int]] = [[], []]

            async def member(found: list[int]) -> None:
                async with stream.join_group("g") as consumer:
                    async for record in consumer.records():
                        found.append(record.offset)
                        await consumer.commit()
                        await asyncio.sleep(0)

            await asyncio.gather(*map(member, parts))
            return parts

    parts = asyncio.run(read())
    assert sorted(chain(*parts)) == list(range(100))
    assert position(numbers) == 100


def test_appended_tables_reach_the_group(tmp_path: Path) -> None:
    with Stream.create(tmp_path / "s") as stream:
        stream.append(pa.table({"n": range(100)}))
        with stream.join_group("g") as member:
            assert len(offsets(member)) == 100


# ---- processes that are killed -----------------------------------------------------------------------


class Victims:
    """Members in processes of their own, and what they have written down."""

    def __init__(self, stream: Stream, directory: Path) -> None:
        self._stream, self._directory, self._number = stream, directory, 0
        self.alive: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self._number += 1
        ledger = self._directory / f"ledger-{self._number:03}"
        command = [sys.executable, str(VICTIM), str(self._stream.path), "g", str(ledger)]
        self.alive.append(subprocess.Popen([*command, str(self._number)]))

    def kill(self, victim: subprocess.Popen[bytes]) -> None:
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait(PATIENCE)
        self.alive.remove(victim)

    def lines(self) -> list[list[dict[str, object]]]:
        """The ledgers; the last line of a killed process may be torn."""
        ledgers = []
        for path in sorted(self._directory.glob("ledger-*")):
            whole = path.read_text().rpartition("\n")[0].splitlines()
            ledgers.append([json.loads(line) for line in whole])
        return ledgers

    def handled(self) -> int:
        return sum("did" in line for ledger in self.lines() for line in ledger)


def test_members_that_are_killed_lose_nothing_and_nothing_committed_is_handled_again(
    tmp_path: Path,
) -> None:
    draw = Random(os.environ.get("HEADGATE_SEED", "17"))
    with Stream.create(tmp_path / "s", chunk_messages=50, segment_bytes=1 << 16) as stream:
        victims = Victims(stream, tmp_path)
        total = 0
        for _ in range(3):
            victims.start()
        for _ in range(4):
            add(stream, range(total, total + 3000))
            total += 3000
            if draw.random() < 0.5:
                stream.seal()
            # In the middle of these messages, or at any time later.
            wait_until(lambda goal=total - 2000: victims.handled() >= goal)  # type: ignore[misc]
            victims.kill(draw.choice(victims.alive))
            victims.start()
        for victim in list(victims.alive):
            victims.kill(victim)
        with stream.join_group("g", "n >= 0") as last:  # takes over what they left
            rest = offsets(last)
            last.commit()
        assert position(stream) == total
    ledgers = victims.lines()
    did = Counter(line["did"] for ledger in ledgers for line in ledger if "did" in line)
    assert set(did) | set(rest) == set(range(total))
    committed = [
        offset
        for ledger in ledgers
        for line in ledger
        for offset in line.get("committed", ())  # type: ignore[attr-defined]
    ]
    assert len(committed) == len(set(committed)) > 0
    # What one member had committed no member got again.
    assert set(committed) & set(rest) == set()
    assert all(did[offset] == 1 for offset in committed if offset not in _uncommitted(ledgers))
    assert list((stream.path / MEMBERS).iterdir()) == []


def _uncommitted(ledgers: list[list[dict[str, object]]]) -> set[object]:
    """What members handled and did not commit before they were killed: another member got it, and rightly."""
    left: set[object] = set()
    for ledger in ledgers:
        open_ = []
        for line in ledger:
            if "did" in line:
                open_.append(line["did"])
            else:
                open_ = []
        left.update(open_)
    return left


def test_a_mistyped_option_is_refused(numbers: Stream) -> None:
    with pytest.raises(TypeError, match="folow"):
        numbers.join_group("g", folow=True)  # type: ignore[call-arg]
    with pytest.raises(StreamOptionsError, match="timeout: give a timedelta"):
        numbers.join_group("g", timeout=5)  # type: ignore[arg-type]
    assert position(numbers) is None
    assert not (numbers.path / MEMBERS).exists()
