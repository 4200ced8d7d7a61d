"""A broker's directory is verified, repaired, backed up while it is in use, and restored."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import apsw
import pika
import pyarrow as pa
import pytest

from headgate.cli.app import run
from headgate.errors import HeadgateError, StoreCorrupt, StoreLocked, StoreTooNew
from headgate.server.data_directory import (
    back_up,
    repair_directory,
    restore_backup,
    verify_directory,
)
from headgate.streams import Stream
from headgate.streams.upkeep import copying
from headgate.streams.write.inbox import write_deposit
from headgate.testing import Broker
from tests.patience import wait_until

PERSISTENT = pika.BasicProperties(delivery_mode=2)
PAGE = 4096


def quiet(_: str) -> None:
    """Take no notice of a step."""


def open_channel(broker: Broker) -> pika.adapters.blocking_connection.BlockingChannel:
    channel = pika.BlockingConnection(pika.URLParameters(broker.url)).channel()
    channel.confirm_delivery()
    return channel


def publish(data: Path, count: int, size: int = 500) -> None:
    with Broker(data) as broker:
        channel = open_channel(broker)
        channel.queue_declare("held", durable=True)
        for number in range(count):
            channel.basic_publish("", "held", str(number).encode().ljust(size), PERSISTENT)
        channel.connection.close()


def held(data: Path) -> list[int]:
    """The numbers of the messages that a broker on this directory serves."""
    with Broker(data) as broker:
        channel = open_channel(broker)
        found = []
        while (got := channel.basic_get("held", auto_ack=True))[0] is not None:
            found.append(int(got[2]))
        channel.connection.close()
    return found


def test_a_backup_under_load_holds_everything_that_was_confirmed_before(tmp_path: Path) -> None:
    confirmed: list[int] = []
    enough, stop = threading.Event(), threading.Event()
    with Broker(tmp_path / "data") as broker:

        def publish_until_stopped() -> None:
            channel = open_channel(broker)
            channel.queue_declare("held", durable=True)
            while not stop.is_set():
                number = len(confirmed)
                channel.basic_publish("", "held", str(number).encode(), PERSISTENT)
                confirmed.append(number)
                if number == 100:
                    enough.set()
            channel.connection.close()

        publisher = threading.Thread(target=publish_until_stopped)
        publisher.start()
        assert enough.wait(30)
        before = len(confirmed)
        back_up(tmp_path / "data", tmp_path / "backup", quiet)
        stop.set()
        publisher.join()
    restore_backup(tmp_path / "backup", tmp_path / "again", quiet)
    found = held(tmp_path / "again")
    assert found == list(range(len(found)))
    assert before <= len(found) <= len(confirmed)
    assert not (tmp_path / "again" / "backup.json").exists()


def numbers(stream: Stream) -> list[int]:
    return [int(payload.as_py()) for payload in stream.scan().to_table()["payload"]]


def test_a_stream_is_copied_while_it_is_written_and_sealed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    publish(data, 1)
    stream = Stream.create(data / "streams" / "events", segment_bytes=64 << 10)
    stop, first = threading.Event(), threading.Event()

    def write() -> None:
        with stream.producer() as producer:
            for number in range(200_000):
                producer.publish(str(number).encode().ljust(50))
                if number % 200 == 199:
                    producer.flush()
                    first.set()
                    if stop.is_set():
                        return

    def seal() -> None:
        while not stop.is_set():
            stream.seal()

    workers = [threading.Thread(target=write), threading.Thread(target=seal)]
    for worker in workers:
        worker.start()
    try:
        assert first.wait(30)
        for number in range(4):
            before = stream.next_offset
            target = tmp_path / f"backup{number}"
            back_up(data, target, quiet)
            with Stream.open(target / "streams" / "events") as copy:
                found = numbers(copy)
            assert found == list(range(len(found)))
            assert len(found) >= before
    finally:
        stop.set()
        for worker in workers:
            worker.join()
        stream.close()
    assert verify_directory(target, quiet).fine


def test_a_message_written_between_an_index_and_its_log_does_not_spoil_the_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    publish(data, 1)
    copy = copying._copy
    with Stream.create(data / "streams" / "events") as stream, stream.producer() as producer:

        def copy_and_write(source: Path, target: Path) -> int:
            size = copy(source, target)
            if source.suffix == ".idx":
                producer.publish(b"2")
                producer.flush()
            return size

        producer.publish(b"1")
        producer.flush()
        monkeypatch.setattr(copying, "_copy", copy_and_write)
        back_up(data, tmp_path / "backup", quiet)
    monkeypatch.undo()
    assert restore_backup(tmp_path / "backup", tmp_path / "restored", quiet).streams == 1
    with Stream.open(tmp_path / "restored" / "streams" / "events") as restored:
        assert numbers(restored) == [1]


def test_a_deposit_that_waits_is_in_the_backup(tmp_path: Path) -> None:
    publish(tmp_path / "data", 1)
    with Stream.create(tmp_path / "data" / "streams" / "events") as stream:
        with stream.producer() as own:
            own.publish(b"1")
    # No writer holds the lock, so that the deposit stays where it is.
    write_deposit(stream.path, "elsewhere", 1, [pa.record_batch({"payload": [b"2"]})])
    back_up(tmp_path / "data", tmp_path / "backup", quiet)
    with Stream.open(tmp_path / "backup" / "streams" / "events") as copy, copy.producer() as third:
        third.publish(b"3")
        third.flush()
        wait_until(lambda: len(numbers(copy)) == 3)  # the deposit is adopted in the background
        assert sorted(numbers(copy)) == [1, 2, 3]


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A directory whose store lost some pages in the middle of its messages."""
    data = tmp_path / "data"
    publish(data, 400)
    store = data / "broker.db"
    pages = store.stat().st_size // PAGE
    with store.open("r+b") as file:
        for page in (pages // 2, pages // 2 + 7):
            file.seek(page * PAGE)
            file.write(b"\xaa" * PAGE)
    return data


def test_damage_is_reported_and_what_can_be_read_is_served_after_a_repair(damaged: Path) -> None:
    assert not verify_directory(damaged, quiet).fine
    with pytest.raises(StoreCorrupt, match="--repair"), Broker(damaged):
        pass
    done = repair_directory(damaged, quiet)
    assert done.report.fine
    assert done.salvaged is not None
    assert done.salvaged.unreadable
    assert done.damaged is not None
    assert done.damaged.exists()
    found = held(damaged)
    assert len(found) >= 350
    assert found == sorted(set(found))


def test_a_damaged_backup_is_not_restored(damaged: Path, tmp_path: Path) -> None:
    (damaged / "backup.json").write_text('{"format": 1}')
    with pytest.raises(HeadgateError, match="is damaged"):
        restore_backup(damaged, tmp_path / "new", quiet)
    assert not (tmp_path / "new").exists()


def test_what_cannot_be_done_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish(tmp_path / "data", 3)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for arguments, said in (
        (["backup", str(tmp_path / "nowhere"), str(tmp_path / "b")], "no broker.db in it"),
        (["backup", str(tmp_path / "data"), str(tmp_path / "full")], "is not empty"),
        (["restore", str(tmp_path / "data"), str(tmp_path / "b")], "is no finished backup"),
        (["verify", str(tmp_path / "full")], "no broker.db in it"),
    ):
        assert run(arguments) == 2
        assert said in capsys.readouterr().err
    assert run(["backup", str(tmp_path / "data"), str(tmp_path / "b")]) == 0
    assert run(["verify", str(tmp_path / "b")]) == 0
    assert "3 messages in queues, 0 in 0 streams: fine" in capsys.readouterr().out


def test_a_store_of_a_newer_format_is_refused_everywhere(tmp_path: Path) -> None:
    publish(tmp_path / "data", 1)
    database = apsw.Connection(str(tmp_path / "data" / "broker.db"))
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StoreTooNew, match="upgrade Headgate"):
        verify_directory(tmp_path / "data", quiet)
    with pytest.raises(StoreTooNew, match="upgrade Headgate"), Broker(tmp_path / "data"):
        pass


def test_a_directory_in_use_is_not_repaired(tmp_path: Path) -> None:
    publish(tmp_path / "data", 1)
    with Broker(tmp_path / "data"), pytest.raises(StoreLocked) as refused:
        repair_directory(tmp_path / "data", quiet)
    assert f"in use by a broker (pid {os.getpid()}, host " in str(refused.value)
