"""A disk without space under the broker's store and its streams: publishers wait, nothing confirmed is lost, and it goes on with space."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pika
import pytest
from pika.exceptions import AMQPError

from tests.patience import PATIENCE, wait_until
from tests.served import Served

FEW, MORE = 20, 40
REASONS = {"classic": "the store cannot commit", "stream": "a stream cannot be written"}
SMALL_BYTES = 4_096  # one page of the store, which is never all that a commit writes


def limit_files(pid: int, size: int) -> None:
    """Let no file of a process grow beyond a size, as on a disk that is full."""
    hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))


@pytest.fixture(params=["classic", "stream"])
def queue_type(request: pytest.FixtureRequest) -> str:
    return request.param


class Publisher(threading.Thread):
    """Publishes numbers, each when the one before is confirmed."""

    def __init__(self, served: Served) -> None:
        super().__init__(daemon=True)
        self.confirmed: list[int] = []
        self._served = served

    def run(self) -> None:
        with suppress(AMQPError), self._served.connect() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for number in range(FEW, FEW + MORE):
                lasting = pika.BasicProperties(delivery_mode=2)
                channel.basic_publish("", "orders", b"%d" % number, lasting)
                self.confirmed.append(number)


def fill_disk(served: Served) -> Publisher:
    """Let the disk be full, and begin to publish."""
    limit_files(served.pid, SMALL_BYTES)
    publisher = Publisher(served)
    publisher.start()
    wait_until(lambda: "alarm raised" in served.log)
    assert publisher.confirmed == []
    return publisher


def publish(served: Served, queue_type: str) -> None:
    with served.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True, arguments={"x-queue-type": queue_type})
        channel.confirm_delivery()
        for number in range(FEW):
            lasting = pika.BasicProperties(delivery_mode=2)
            channel.basic_publish("", "orders", b"%d" % number, lasting)


def list_numbers(served: Served, queue_type: str) -> list[int]:
    """Everything that is in the queue."""
    found: list[int] = []
    with served.connect() as connection:
        channel = connection.channel()
        if queue_type == "stream":
            channel.basic_publish("", "orders", b"-1")
            channel.basic_qos(prefetch_count=1_000)
            start = {"x-stream-offset": "first"}
            for _, _, body in channel.consume("orders", arguments=start):
                if int(body) == -1:
                    return list(dict.fromkeys(found))  # what was not confirmed may be there twice
                found.append(int(body))
        while (got := channel.basic_get("orders", auto_ack=True))[0] is not None:
            found.append(int(got[2]))
    return found


def test_publishers_wait_while_the_disk_is_full_and_nothing_is_lost(
    served: Served, queue_type: str
) -> None:
    publish(served, queue_type)
    publisher = fill_disk(served)
    told: list[str] = []
    with served.connect() as connection:
        connection.add_on_connection_blocked_callback(
            lambda _, method: told.append(method.method.reason)
        )
        connection.add_on_connection_unblocked_callback(lambda *_: told.append("unblocked"))
        connection.channel().basic_publish("", "nowhere", b"")
        while not told:
            connection.process_data_events(1)
        assert told == [REASONS[queue_type]]
        assert publisher.confirmed == []
        limit_files(served.pid, resource.RLIM_INFINITY)
        while len(told) < 2:
            connection.process_data_events(1)
    publisher.join(PATIENCE)
    assert publisher.confirmed == list(range(FEW, FEW + MORE))
    served.kill()
    served.start()
    assert list_numbers(served, queue_type) == list(range(FEW + MORE))


def test_a_broker_killed_on_a_full_disk_has_what_it_confirmed(
    served: Served, queue_type: str
) -> None:
    publish(served, queue_type)
    publisher = fill_disk(served)
    served.kill()
    publisher.join(PATIENCE)
    assert publisher.confirmed == []
    served.start()
    assert list_numbers(served, queue_type) == list(range(FEW))


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A directory in which nothing can be written, where that can be had."""
    place = tmp_path / "read-only"
    place.mkdir()
    if os.geteuid():
        place.chmod(0o555)
        yield place
        place.chmod(0o755)
        return
    try:
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(place)], capture_output=True)  # fmt: skip
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if made.returncode:
        pytest.skip("a read-only file system cannot be mounted here")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.parametrize("below", ["", "data"])
def test_a_read_only_directory_is_refused_in_one_sentence(read_only: Path, below: str) -> None:
    command = [sys.executable, "-m", "headgate", "serve", "--amqp-port", "0", "--http-port", "0"]
    data = read_only / below
    done = subprocess.run([*command, "--data", str(data)], capture_output=True, text=True, timeout=60)  # fmt: skip
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert str(data) in done.stderr
