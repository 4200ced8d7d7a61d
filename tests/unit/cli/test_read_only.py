"""Commands that only read change nothing, and work where nothing may be written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

import apsw
import pytest

from headgate.cli.app import run
from headgate.errors import DatabaseNotFound, DatabaseUnavailable, QueueError
from headgate.queues import connect

NOBODY = 65534
READING = {
    "ls": ["queue", "ls"],
    "info": ["queue", "info", "orders"],
    "stats": ["queue", "stats", "orders"],
    "peek": ["queue", "peek", "orders"],
    "peek a subscription": ["queue", "peek", "paid"],
    "browse": ["queue", "browse", "orders", "--filter", "type = 'paid'"],
    "browse a subscription": ["queue", "browse", "paid"],
    "archive": ["queue", "archive", "orders"],
    "dead letters": ["queue", "dead", "ls", "orders"],
    "advise": ["queue", "index", "advise", "orders", "type = 'paid'"],
    "subscriptions": ["sub", "ls"],
    "schedules": ["schedule", "ls"],
}
WRITING = {
    "publish": ["queue", "publish", "orders", "x"],
    "claim": ["queue", "claim", "orders"],
    "ack": ["queue", "ack", "orders", "1:1"],
    "nack": ["queue", "nack", "orders", "1:1"],
    "pause a queue": ["queue", "pause", "orders"],
    "resume a queue": ["queue", "resume", "orders"],
    "rm": ["queue", "rm", "orders", "--yes"],
    "prune": ["queue", "prune", "orders", "--older-than", "1d", "--yes"],
    "relay": ["queue", "outbox", "relay", "--once"],
    "schedule run": ["schedule", "run", "--once"],
    "schedule rm": ["schedule", "rm", "daily"],
    "purge": ["queue", "purge", "orders", "--yes"],
    "requeue": ["queue", "dead", "requeue", "orders"],
    "index": ["queue", "index", "add", "orders", "region"],
    "pause": ["sub", "pause", "paid"],
    "resume": ["sub", "resume", "paid"],
    "set-filter": ["sub", "set-filter", "paid", "type = 'x'"],
    "delete": ["sub", "delete", "paid", "--yes"],
}
reading = pytest.mark.parametrize("command", READING.values(), ids=READING)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Not as root, who may write everywhere. Modules are imported before: another user may not be able to read them."""
    assert run(["--help"]) == 0
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that every user can read."""
    made = Path(mkdtemp(prefix="headgate-read-only-"))
    made.chmod(0o755)
    yield made
    made.chmod(0o755)
    shutil.rmtree(made)


@pytest.fixture
def orders_url(directory: Path) -> str:
    """The URL of a database with a queue, a subscription, and a message inserted into the view `inbox`."""
    made = f"sqlite:///{directory}/queues.db"
    with connect(made) as db:
        db.queue("orders", filter_headers=["type"]).publish(b"x", headers={"type": "paid"})
        db.subscription("paid", "type = 'paid'")
        connection = apsw.Connection(f"{directory}/queues.db")
        connection.execute("INSERT INTO inbox (queue, payload, headers) VALUES (?, ?, ?)",
                           ("orders", b"y", '{"type": "paid"}'))  # fmt: skip
        connection.close()
    return made


def contents(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in directory.iterdir()}


@reading
def test_a_reading_command_changes_no_byte_and_leaves_no_file(directory, orders_url, command):
    before = contents(directory)
    assert run([*command, "--db", orders_url]) == 0
    assert contents(directory) == before


@reading
def test_a_reading_command_works_where_nothing_may_be_written(directory, orders_url, command):
    (directory / "queues.db").chmod(0o444)
    directory.chmod(0o555)
    with unprivileged():
        assert run([*command, "--db", orders_url]) == 0


@reading
def test_a_reading_command_works_beside_a_writer_whose_files_it_may_not_write(
    directory, orders_url, command
):
    with connect(orders_url) as db:
        db.find("orders").publish(b"z")
        for file in directory.iterdir():
            file.chmod(0o444)
        directory.chmod(0o555)
        with unprivileged():
            assert run([*command, "--db", orders_url]) == 0
        directory.chmod(0o755)
        for file in directory.iterdir():
            file.chmod(0o644)


@pytest.mark.parametrize(
    "command", [*READING.values(), *WRITING.values()], ids=[*READING, *WRITING]
)
def test_a_typing_error_in_the_url_creates_no_database(directory, capsys, command):
    assert run([*command, "--db", f"sqlite:///{directory}/typo.db"]) == 2
    assert "there is no database" in capsys.readouterr().err
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize(
    "command", [*READING.values(), *WRITING.values()], ids=[*READING, *WRITING]
)
def test_the_database_of_another_program_is_not_changed(directory, capsys, command):
    with apsw.Connection(str(directory / "other.db")) as other:
        other.execute("CREATE TABLE t (x)")
    other.close()
    before = contents(directory)
    assert run([*command, "--db", f"sqlite:///{directory}/other.db"]) == 2
    assert "contains no queues" in capsys.readouterr().err
    assert contents(directory) == before


def test_a_database_opened_to_look_refuses_writes(orders_url):
    with connect(orders_url, access="look") as db:
        orders = db.find("orders")
        assert [standing.message.payload for standing in orders.peek(10)] == [b"x", b"y"]
        with pytest.raises(DatabaseUnavailable, match="opened with access='look'"):
            orders.publish(b"z")
        with pytest.raises(DatabaseUnavailable, match="opened with access='look'"):
            orders.claim()
    with connect(orders_url) as db:
        assert db.find("orders").stats().ready == 2


def test_opening_to_look_does_not_migrate_tables_of_an_older_version(directory, orders_url):
    with connect(orders_url):
        connection = apsw.Connection(f"{directory}/queues.db")
        connection.execute("DELETE FROM headgate_migration WHERE version = (SELECT max(version) FROM headgate_migration)")  # fmt: skip
        connection.close()
    with pytest.raises(QueueError, match="any program that publishes or claims"):
        connect(orders_url, access="look")


def test_a_memory_database_cannot_be_opened_to_look():
    with pytest.raises(DatabaseNotFound):
        connect("memory:", access="look")
    with pytest.raises(QueueError, match="access is create, change, look"):
        connect("memory:", access="read")
