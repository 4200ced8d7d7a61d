"""Streams in asyncio: nothing blocks the event loop, and no cancellation loses a message."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate import aio, file_watch
from headgate.aio import AsyncProducer, AsyncStream, AsyncStreamConsumer
from headgate.errors import (
    FilterSyntaxError,
    InvalidMessage,
    StreamBusy,
    StreamClosed,
    StreamError,
    StreamExists,
    StreamNotFound,
    StreamOptionsError,
    StreamWriteError,
)
from headgate.message import Message
from headgate.streams.event_loop import call_in_thread
from headgate.streams.read import async_consumer
from headgate.streams.read.consumer import StreamConsumer
from headgate.streams.read.cursors import Cursors
from headgate.streams.stream import Stream
from headgate.streams.write import async_producer
from headgate.streams.write.producer import Producer

PATIENCE = 30.0
SOON = timedelta(milliseconds=50)


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in a new event loop that reports what was forgotten."""

    async def within_time() -> Any:
        async with asyncio.timeout(PATIENCE):
            return await coroutine

    return asyncio.run(within_time())


def with_stream(test: Callable[[AsyncStream], Coroutine[Any, Any, None]], path: Path) -> None:
    async def enter() -> None:
        async with await AsyncStream.create(path, linger=timedelta(milliseconds=1)) as stream:
            await test(stream)

    run(enter())


def stored(path: Path) -> list[bytes]:
    """The payloads that another reader sees."""
    with Stream.open(path) as stream:
        return [message.payload for message in stream.consume()]


async def publish(stream: AsyncStream, *payloads: bytes) -> None:
    async with await stream.producer() as producer:
        await asyncio.gather(*map(producer.publish, payloads))


async def payloads_of(consumer: AsyncStreamConsumer) -> list[bytes]:
    return [message.payload async for message in consumer]


def wait_in_thread(event: threading.Event) -> None:
    assert event.wait(PATIENCE)


async def until(event: threading.Event) -> None:
    """Wait for another thread without blocking the event loop."""
    await asyncio.to_thread(wait_in_thread, event)


# ---- opening -----------------------------------------------------------------------------------------


def test_a_stream_is_created_opened_and_refused_as_by_the_synchronous_face(tmp_path: Path) -> None:
    async def test() -> None:
        async with await AsyncStream.create(tmp_path / "s", indexed=["region"]) as stream:
            assert (stream.path, stream.options.indexed) == (tmp_path / "s", ("region",))
        async with await AsyncStream.open(tmp_path / "s") as stream:
            assert stream.options.indexed == ("region",)
        with pytest.raises(StreamExists):
            await AsyncStream.create(tmp_path / "s")
        with pytest.raises(StreamNotFound):
            await AsyncStream.open(tmp_path / "nothing")

    run(test())


def test_the_front_door_of_asyncio_loads_only_what_is_used() -> None:
    code = (
        "import sys, headgate.aio as aio; assert not {'pyarrow', 'apsw'} & set(sys.modules);"
        "aio.AsyncStream; assert 'psycopg' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert all(hasattr(aio, name) for name in aio.__all__)


# ---- publishing --------------------------------------------------------------------------------------


def test_publish_returns_once_the_message_is_stored(tmp_path: Path) -> None:
    async def test(stream: AsyncStream) -> None:
        producer = await stream.producer()
        assert await producer.publish(b"a", topic="orders", headers={"region": "EU"}) is True
        assert stored(stream.path) == [b"a"]
        assert await producer.publish(Message(b"b", topic="orders"))
        assert stored(stream.path) == [b"a", b"b"]

    with_stream(test, tmp_path / "s")


def test_a_thousand_concurrent_publishes_are_stored_in_order_by_a_few_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits, flush = [], Producer.flush
    monkeypatch.setattr(Producer, "flush", lambda self: (commits.append(1), flush(self)))

    async def test(stream: AsyncStream) -> None:
        producer = await stream.producer()
        numbers = [b"%d" % number for number in range(1000)]
        assert all(await asyncio.gather(*map(producer.publish, numbers)))
        assert stored(stream.path) == numbers
        assert len(commits) <= 3

    with_stream(test, tmp_path / "s")


def test_messages_published_during_a_commit_share_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, free, commits = threading.Event(), threading.Event(), []
    flush = Producer.flush

    def wait_and_flush(producer: Producer) -> None:
        commits.append(1)
        begun.set()
        wait_in_thread(free)
        flush(producer)

    async def test(stream: AsyncStream) -> None:
        producer = await stream.producer()
        with monkeypatch.context() as slow:
            slow.setattr(Producer, "flush", wait_and_flush)
            first = asyncio.ensure_future(producer.publish(b"first"))
            await until(begun)
            others = [asyncio.ensure_future(producer.publish(b"%d" % n)) for n in range(50)]
            await asyncio.sleep(0)
            free.set()
            await asyncio.gather(first, *others)
        assert len(commits) == 2

    with_stream(test, tmp_path / "s")


def test_an_invalid_message_fails_its_own_publish_alone(tmp_path: Path) -> None:
    async def test(stream: AsyncStream) -> None:
        producer = await stream.producer()
        results = await asyncio.gather(
            producer.publish(b"a"),
            producer.publish(b"b", headers={"nan": float("nan")}),
            producer.publish(b"c"),
            return_exceptions=True,
        )
        assert [type(result) for result in results] == [bool, InvalidMessage, bool]
        assert stored(stream.path) == [b"a", b"c"]

    with_stream(test, tmp_path / "s")


def test_a_publishing_id_is_stored_once(tmp_path: Path) -> None:
    async def test(stream: AsyncStream) -> None:
        producer = await stream.producer("p")
        assert await producer.publish(b"a", publishing_id=7)
        assert not await producer.publish(b"again", publishing_id=7)
        assert (producer.name, producer.last_publishing_id) == ("p", 7)
        assert stored(stream.path) == [b"a"]

    with_stream(test, tmp_path / "s")


def test_a_refused_commit_fails_every_publish_that_shared_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(producer: Producer) -> None:
        raise StreamWriteError("the disk is full")

    async def test(stream: AsyncStream) -> None:
        producer = await stream.producer()
        with monkeypatch.context() as full:
            full.setattr(Producer, "flush", refuse)
            both = (producer.publish(b"a"), producer.publish(b"b"))
            results = await asyncio.gather(*both, return_exceptions=True)
        assert [type(result) for result in results] == [StreamWriteError] * 2
        assert await producer.publish(b"c")  # what was accepted before is stored with it
        assert stored(stream.path) == [b"a", b"b", b"c"]

    with_stream(test, tmp_path / "s")


def test_a_cancelled_publish_leaves_the_others_alone(tmp_path: Path) -> None:
    async def test(stream: AsyncStream) -> None:
        producer = await stream.producer()
        cancelled, kept = (
            asyncio.ensure_future(producer.publish(payload)) for payload in (b"a", b"b")
        )
        await asyncio.sleep(0)
        cancelled.cancel()
        assert await kept
        assert b"b" in stored(stream.path)
        assert cancelled.cancelled()

    with_stream(test, tmp_path / "s")


def test_publish_nowait_is_stored_by_flush(tmp_path: Path) -> None:
    async def test(stream: AsyncStream) -> None:
        producer = await stream.producer()
        for number in range(100):
            producer.publish_nowait(b"%d" % number, topic="t")
        await producer.flush()
        assert stored(stream.path) == [b"%d" % number for number in range(100)]
        await producer.flush()  # with nothing to do

    with_stream(test, tmp_path / "s")


def test_flush_ends_while_others_go_on_publishing(tmp_path: Path) -> None:
    async def test(stream: AsyncStream) -> None:
        producer = await stream.producer()

        async def publish_on_and_on() -> None:
            while True:
                await producer.publish(b"x")

        others = [asyncio.ensure_future(publish_on_and_on()) for _ in range(3)]
        for _ in range(3):
            producer.publish_nowait(b"mine")
            await producer.flush()
        assert stored(stream.path).count(b"mine") == 3
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    with_stream(test, tmp_path / "s")


@pytest.mark.parametrize("limit", ["MOST_WAITING", "MOST_WAITING_BYTES"])
def test_publish_nowait_refuses_more_than_fits_until_a_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(async_producer, limit, 3)

    async def test(stream: AsyncStream) -> None:
        producer = await stream.producer()
        for _ in range(2):
            for _ in range(3):
                producer.publish_nowait(b"x")
            with pytest.raises(StreamBusy, match="3 messages wait to be stored; await flush"):
                producer.publish_nowait(b"x")
            await producer.flush()
        assert len(stored(stream.path)) == 6

    with_stream(test, tmp_path / "s")


def test_publish_nowait_refuses_an_invalid_message_at_once(tmp_path: Path) -> None:
    async def test(stream: AsyncStream) -> None:
        producer = await stream.producer()
        with pytest.raises(InvalidMessage):
            producer.publish_nowait(b"x", headers={"nan": float("nan")})
        await producer.flush()
        assert stored(stream.path) == []

    with_stream(test, tmp_path / "s")


def test_flush_raises_once_what_went_wrong_with_publish_nowait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(producer: Producer) -> None:
        raise StreamWriteError("the disk is full")

    async def test(stream: AsyncStream) -> None:
        producer = await stream.producer()
        with monkeypatch.context() as full:
            full.setattr(Producer, "flush", refuse)
            producer.publish_nowait(b"x")
            with pytest.raises(StreamWriteError, match="disk is full"):
                await producer.flush()
        await producer.flush()

    with_stream(test, tmp_path / "s")


def test_a_commit_does_not_block_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, flush = threading.Event(), Producer.flush

    def wait_and_flush(producer: Producer) -> None:
        wait_in_thread(free)
        flush(producer)

    async def test(stream: AsyncStream) -> None:
        producer = await stream.producer()
        with monkeypatch.context() as slow:
            slow.setattr(Producer, "flush", wait_and_flush)
            publishing = asyncio.ensure_future(producer.publish(b"x"))
            for _ in range(100):
                await asyncio.sleep(0)
            assert not publishing.done()
            free.set()  # were the loop blocked, this would never be reached
            assert await publishing

    with_stream(test, tmp_path / "s")


# ---- consuming ---------------------------------------------------------------------------------------


def test_a_consumer_gives_what_the_filter_selects(tmp_path: Path) -> None:
    async def test(stream: AsyncStream) -> None:
        producer = await stream.producer()
        for number in range(10):
            await producer.publish(b"%d" % number, headers={"even": number % 2 == 0})
        assert await payloads_of(stream.consume("even = TRUE")) == [b"0", b"2", b"4", b"6", b"8"]
        records = [record async for record in stream.consume("even = TRUE", start=5).records()]
        assert [record.offset for record in records] == [6, 8]

    with_stream(test, tmp_path / "s")


def test_batches_hold_what_the_consumer_would_deliver(tmp_path: Path) -> None:
    async def test(stream: AsyncStream) -> None:
        await publish(stream, *(b"%d" % number for number in range(10)))
        async with stream.consume(cursor="c", follow=True, timeout=timedelta(0)) as consumer:
            assert (await anext(consumer)).payload == b"0"
            found = [batch async for batch in consumer.batches()]
            assert [n for batch in found for n in batch.column("offset").to_pylist()] == [
                *range(1, 10)
            ]
            assert (consumer.position, consumer.offset) == (10, 9)
            await consumer.commit()
        assert await payloads_of(stream.consume(cursor="c")) == []
        async with stream.consume(post_filter=lambda message: True) as consumer:
            with pytest.raises(StreamOptionsError, match="post_filter"):
                await anext(consumer.batches())

    with_stream(test, tmp_path / "s")


def test_a_bad_filter_is_refused_where_it_is_given(tmp_path: Path) -> None:
    async def test(stream: AsyncStream) -> None:
        with pytest.raises(FilterSyntaxError):
            stream.consume("region = ")

    with_stream(test, tmp_path / "s")


def test_calls_of_the_synchronous_stream_are_awaited(tmp_path: Path) -> None:
    async def test(stream: AsyncStream) -> None:
        table = pa.table({"payload": [b"a", b"b"]})
        assert await stream.run(lambda stream: stream.append(table)) == 2
        assert len(await stream.run(lambda stream: stream.seal(all=True))) == 1
        assert await payloads_of(stream.consume()) == [b"a", b"b"]

    with_stream(test, tmp_path / "s")


def test_a_following_consumer_gets_what_is_published_while_it_waits(tmp_path: Path) -> None:
    async def test(stream: AsyncStream) -> None:
        producer = await stream.producer()
        async with stream.consume(follow=True) as consumer:
            for number in range(20):
                waiting = asyncio.ensure_future(anext(consumer))
                await asyncio.sleep(0)
                await producer.publish(b"%d" % number)
                assert (await waiting).payload == b"%d" % number

    with_stream(test, tmp_path / "s")


def test_a_following_consumer_gets_what_another_process_publishes(tmp_path: Path) -> None:
    code = (
        "import sys; from headgate import Stream; producer = Stream.open(sys.argv[1]).producer();"
        "[(producer.publish(line.strip()), producer.flush(), print('stored', flush=True))"
        " for line in sys.stdin.buffer]"
    )

    async def test(stream: AsyncStream) -> None:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, str(stream.path),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert child.stdin is not None
        async with stream.consume(follow=True) as consumer:
            for number in range(5):
                waiting = asyncio.ensure_future(anext(consumer))
                await asyncio.sleep(0)
                child.stdin.write(b"%d\n" % number)
                assert (await waiting).payload == b"%d" % number
        child.stdin.close()
        await child.communicate()
        assert child.returncode == 0

    with_stream(test, tmp_path / "s")


def test_a_waiting_consumer_reads_after_changes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, fill_buffer = [], StreamConsumer.fill_buffer

    def count(consumer: StreamConsumer) -> bool:
        looks.append(1)
        return fill_buffer(consumer)

    async def test(stream: AsyncStream) -> None:
        producer = await stream.producer()
        await producer.publish(b"first")
        monkeypatch.setattr(StreamConsumer, "fill_buffer", count)
        quiet = stream.consume(follow=True, start="next", timeout=timedelta(milliseconds=300))
        assert await payloads_of(quiet) == []
        assert len(looks) <= 5

    with_stream(test, tmp_path / "s")


def test_a_consumer_follows_where_the_kernel_reports_no_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_watch, "_add_watch", lambda inotify, directory: None)
    path = tmp_path / "s"

    async def test(stream: AsyncStream) -> None:
        async with stream.consume(follow=True) as consumer:
            waiting = asyncio.ensure_future(anext(consumer))
            await asyncio.sleep(0)
            await publish(stream, b"x")
            assert (await waiting).payload == b"x"

    with_stream(test, path)


def test_following_ends_after_a_timeout_without_a_message(tmp_path: Path) -> None:
    async def test(stream: AsyncStream) -> None:
        await publish(stream, b"a", b"b")
        assert await payloads_of(stream.consume(follow=True, timeout=SOON)) == [b"a", b"b"]

    with_stream(test, tmp_path / "s")


def test_a_consumer_with_many_messages_lets_other_tasks_run(tmp_path: Path) -> None:
    async def test(stream: AsyncStream) -> None:
        producer = await stream.producer()
        for number in range(5000):
            producer.publish_nowait(b"%d" % number)
        await producer.flush()
        turns = 0

        async def take_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        others = asyncio.ensure_future(take_turns())
        assert len(await payloads_of(stream.consume())) == 5000
        others.cancel()
        assert turns >= 5000 // async_consumer.MESSAGES_IN_A_ROW

    with_stream(test, tmp_path / "s")


# ---- cancellation ------------------------------------------------------------------------------------


def test_a_cancelled_wait_loses_no_message(tmp_path: Path) -> None:
    async def test(stream: AsyncStream) -> None:
        producer = await stream.producer()
        async with stream.consume(follow=True) as consumer:
            for number in range(10):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(consumer), 0.001)
                await producer.publish(b"%d" % number)
                assert (await anext(consumer)).payload == b"%d" % number
                assert consumer.position == number + 1

    with_stream(test, tmp_path / "s")


def test_a_read_that_is_cancelled_half_way_loses_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, free, fill_buffer = threading.Event(), threading.Event(), StreamConsumer.fill_buffer

    def wait_and_fill(consumer: StreamConsumer) -> bool:
        found = fill_buffer(consumer)
        reading.set()
        wait_in_thread(free)
        return found

    async def test(stream: AsyncStream) -> None:
        await publish(stream, *(b"%d" % number for number in range(100)))
        async with stream.consume(cursor="c") as consumer:
            with monkeypatch.context() as slow:
                slow.setattr(StreamConsumer, "fill_buffer", wait_and_fill)
                cancelled = asyncio.ensure_future(anext(consumer))
                await until(reading)
                cancelled.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await cancelled
                await consumer.commit()
                free.set()
            assert consumer.position == 0
            assert await payloads_of(consumer) == [b"%d" % number for number in range(100)]
        assert [record.position for record in await stream.run(list_cursors)] == [0]

    def list_cursors(stream: Stream) -> list[Any]:
        return stream.cursors().list()

    with_stream(test, tmp_path / "s")


def test_two_tasks_share_a_consumer_without_losing_or_doubling_a_message(tmp_path: Path) -> None:
    async def test(stream: AsyncStream) -> None:
        numbers = [b"%d" % number for number in range(3000)]
        await publish(stream, *numbers)
        await stream.run(lambda stream: stream.seal(all=True))
        consumer = stream.consume()
        halves = await asyncio.gather(payloads_of(consumer), payloads_of(consumer))
        assert sorted(halves[0] + halves[1]) == sorted(numbers)

    with_stream(test, tmp_path / "s")


# ---- cursors -----------------------------------------------------------------------------------------


def test_a_named_consumer_goes_on_where_it_committed(tmp_path: Path) -> None:
    async def test(stream: AsyncStream) -> None:
        await publish(stream, *(b"%d" % number for number in range(5)))
        async with stream.consume(cursor="c") as consumer:
            assert [(await anext(consumer)).payload for _ in range(3)] == [b"0", b"1", b"2"]
            assert (consumer.offset, await consumer.lag()) == (2, 2)
            await consumer.commit()
            await anext(consumer)
        assert await payloads_of(stream.consume(cursor="c")) == [b"3", b"4"]

    with_stream(test, tmp_path / "s")


def test_a_commit_stores_the_position_of_the_moment_it_was_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, free, commit = threading.Event(), threading.Event(), Cursors.commit

    def wait_and_commit(cursors: Cursors, name: str, position: int) -> None:
        begun.set()
        wait_in_thread(free)
        commit(cursors, name, position)

    async def test(stream: AsyncStream) -> None:
        await publish(stream, b"a", b"b")
        monkeypatch.setattr(Cursors, "commit", wait_and_commit)
        async with stream.consume(cursor="c") as consumer:
            await anext(consumer)
            committing = asyncio.ensure_future(consumer.commit())
            await until(begun)
            await anext(consumer)
            free.set()
            await committing
        assert await payloads_of(stream.consume(cursor="c")) == [b"b"]

    with_stream(test, tmp_path / "s")


def test_a_consumer_without_a_name_cannot_commit(tmp_path: Path) -> None:
    async def test(stream: AsyncStream) -> None:
        async with stream.consume() as consumer:
            with pytest.raises(StreamOptionsError, match="only a consumer with a name"):
                await consumer.commit()
        with pytest.raises(StreamError, match="not open yet"):
            await stream.consume(cursor="c").commit()

    with_stream(test, tmp_path / "s")


# ---- closing -----------------------------------------------------------------------------------------


def test_closing_a_consumer_ends_the_tasks_that_wait(tmp_path: Path) -> None:
    async def test(stream: AsyncStream) -> None:
        consumer = stream.consume(follow=True)
        waiting = [asyncio.ensure_future(payloads_of(consumer)) for _ in range(3)]
        await publish(stream, b"x")
        while consumer.offset is None:
            await asyncio.sleep(0)
        await consumer.close()
        await consumer.close()
        assert sorted(await asyncio.gather(*waiting)) == [[], [], [b"x"]]
        assert await payloads_of(consumer) == []

    with_stream(test, tmp_path / "s")


def test_a_consumer_that_is_opening_when_its_stream_is_closed_ends(tmp_path: Path) -> None:
    async def test() -> None:
        stream = await AsyncStream.create(tmp_path / "s")
        consumer = stream.consume(follow=True, start="next", cursor="c")
        is_opening, may_open = threading.Event(), threading.Event()
        open_consumer = consumer._open_consumer

        def open_late() -> StreamConsumer:
            is_opening.set()
            may_open.wait(PATIENCE)
            return open_consumer()

        consumer._open_consumer = open_late
        waiting = asyncio.ensure_future(payloads_of(consumer))
        await asyncio.to_thread(is_opening.wait, PATIENCE)
        closing = asyncio.ensure_future(stream.close())
        for _ in range(10):  # a close that does not wait for the opening is done by then
            with suppress(StreamClosed):
                await call_in_thread(stream._executor, int)
        assert not closing.done()
        may_open.set()
        await closing
        assert await waiting == []
        assert await payloads_of(consumer) == []
        assert [batch async for batch in consumer.batches()] == []
        for use in (consumer.lag(), consumer.seek("first"), consumer.commit()):
            with pytest.raises(StreamClosed, match="was closed"):
                await use

    run(test())


def test_a_consumer_that_is_first_used_after_its_close_does_not_open(tmp_path: Path) -> None:
    async def test(stream: AsyncStream) -> None:
        await publish(stream, b"x")
        consumer = stream.consume()
        await consumer.close()
        assert await payloads_of(consumer) == []
        assert [batch async for batch in consumer.batches()] == []
        for use in (consumer.lag(), consumer.seek("first"), consumer.__aenter__()):
            with pytest.raises(StreamClosed, match="was closed"):
                await use

    with_stream(test, tmp_path / "s")


def test_closing_a_stream_stores_what_was_accepted_and_frees_the_lock(tmp_path: Path) -> None:
    async def test() -> tuple[AsyncStream, AsyncProducer]:
        stream = await AsyncStream.create(tmp_path / "s")
        producer = await stream.producer()
        waiting = asyncio.ensure_future(payloads_of(stream.consume(follow=True, start="next")))
        await asyncio.sleep(0)
        for number in range(10):
            producer.publish_nowait(b"%d" % number)
        await stream.close()
        await stream.close()
        await waiting
        for use in (stream.producer(), producer.publish(b"x"), stream.run(list)):
            with pytest.raises(StreamClosed):
                await use
        with pytest.raises(StreamClosed):
            stream.consume()
        return stream, producer

    run(test())
    assert stored(tmp_path / "s") == [b"%d" % number for number in range(10)]
    with Stream.open(tmp_path / "s") as again, again.producer() as producer:
        producer.publish(b"free")


def test_closing_is_not_left_half_done_by_a_cancellation(tmp_path: Path) -> None:
    async def test() -> None:
        stream = await AsyncStream.create(tmp_path / "s")
        producer = await stream.producer()
        producer.publish_nowait(b"x")
        closing = asyncio.ensure_future(stream.close())
        await asyncio.sleep(0)
        closing.cancel()
        await stream.close()
        assert stored(tmp_path / "s") == [b"x"]

    run(test())


# ---- what a stream does besides ----------------------------------------------------------------------


def test_many_messages_are_stored_together_behind_those_before(tmp_path: Path) -> None:
    async def test(stream: AsyncStream) -> None:
        async with await stream.producer("pos") as producer:
            producer.publish_nowait(b"0")
            assert await producer.publish_many([b"1", Message(b"2")]) == 2
            assert stored(tmp_path / "s") == [b"0", b"1", b"2"]
            assert await producer.publish_many([b"2", b"3"], first_publishing_id=2) == 1
            with pytest.raises(InvalidMessage):
                await producer.publish_many([b"4", Message(b"", topic=None)])  # type: ignore[arg-type]
            with pytest.raises(InvalidMessage, match="a list of messages"):
                await producer.publish_many(b"4")  # type: ignore[arg-type]
        with pytest.raises(StreamClosed):
            await producer.publish_many([b"5"])
        assert stored(tmp_path / "s") == [b"0", b"1", b"2", b"3"]

    with_stream(test, tmp_path / "s")


def test_a_consumer_seeks(tmp_path: Path) -> None:
    async def test(stream: AsyncStream) -> None:
        await publish(stream, b"0", b"1", b"2")
        consumer = stream.consume()
        await consumer.seek(1)  # before the first message, too
        assert await payloads_of(consumer) == [b"1", b"2"]
        await consumer.seek("first")
        assert await payloads_of(consumer) == [b"0", b"1", b"2"]
        await consumer.close()

    with_stream(test, tmp_path / "s")


def test_tables_are_appended_and_scanned_and_the_stream_is_tidied(tmp_path: Path) -> None:
    async def test(stream: AsyncStream) -> None:
        assert await stream.append(pa.table({"n": range(10)})) == 10
        batches = [batch async for batch in stream.scan("n >= 7", columns=["h.i.n"])]
        assert [b.column("h.i.n").to_pylist() for b in batches] == [[7, 8, 9]]
        with pytest.raises(FilterSyntaxError):
            await anext(stream.scan("n >="))
        assert await stream.seal(all=True) != []
        await stream.append(pa.table({"n": [10]}))
        assert len(await stream.trim(before_offset=10)) == 1
        assert (await stream.first_offset(), await stream.next_offset()) == (10, 11)
        async with await stream.producer():
            pass  # with the last producer, the lock is free
        await stream.reconfigure(max_bytes=1 << 30)
        assert stream.options.max_bytes == 1 << 30

    with_stream(test, tmp_path / "s")
