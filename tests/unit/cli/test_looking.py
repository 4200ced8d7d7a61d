"""Commands that only look leave everything as it was, and work where nothing may be written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

import pytest

from headgate.cli.app import run
from headgate.errors import DatabaseNotFound, DatabaseUnavailable, QueueError
from headgate.queues.database import connect

NOBODY = 65534
LOOKING = {
    "ls": ["queue", "ls"],
    "info": ["queue", "info", "orders"],
    "stats": ["queue", "stats", "orders"],
    "peek": ["queue", "peek", "orders"],
    "peek a subscription": ["queue", "peek", "paid"],
    "browse": ["queue", "browse", "orders", "--filter", "type = 'paid'"],
    "browse a subscription": ["queue", "browse", "paid"],
    "dead letters": ["queue", "dead", "ls", "orders"],
    "advise": ["queue", "index", "advise", "orders", "type = 'paid'"],
    "subscriptions": ["sub", "ls"],
}
CHANGING = {
    "publish": ["queue", "publish", "orders", "x"],
    "claim": ["queue", "claim", "orders"],
    "purge": ["queue", "purge", "orders", "--yes"],
    "requeue": ["queue", "dead", "requeue", "orders"],
    "index": ["queue", "index", "add", "orders", "region"],
    "pause": ["sub", "pause", "paid"],
    "resume": ["sub", "resume", "paid"],
    "set-filter": ["sub", "set-filter", "paid", "type = 'x'"],
    "delete": ["sub", "delete", "paid", "--yes"],
}
looking = pytest.mark.parametrize("command", LOOKING.values(), ids=LOOKING)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Not as root, who may write everywhere. Everything is imported before: not everybody may read Python's files."""
    assert run(["--help"]) == 0
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that everybody can read."""
    made = Path(mkdtemp(prefix="headgate-looking-"))
    made.chmod(0o755)
    yield made
    made.chmod(0o755)
    shutil.rmtree(made)


@pytest.fixture
def url(place: Path) -> str:
    """A queue with a message, and a subscription that one came to through the door."""
    made = f"sqlite:///{place}/queues.db"
    with connect(made) as db:
        db.queue("orders", filter_headers=["type"]).publish(b"x", headers={"type": "paid"})
        db.subscription("paid", "type = 'paid'")
        connection = db.engine._open()  # type: ignore[attr-defined]
        connection.execute("INSERT INTO inbox (queue, payload, headers) VALUES (?, ?, ?)",
                           ("orders", b"y", '{"type": "paid"}'))  # fmt: skip
        connection.close()
    return made


def contents(place: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in place.iterdir()}


@looking
def test_looking_changes_no_byte_and_leaves_no_file(place, url, command):
    before = contents(place)
    assert run([*command, "--db", url]) == 0
    assert contents(place) == before


@looking
def test_looking_works_where_nothing_may_be_written(place, url, command):
    (place / "queues.db").chmod(0o444)
    place.chmod(0o555)
    with unprivileged():
        assert run([*command, "--db", url]) == 0


@looking
def test_looking_works_beside_a_writer_whose_files_may_not_be_written(place, url, command):
    with connect(url) as db:
        db.find("orders").publish(b"z")
        for file in place.iterdir():
            file.chmod(0o444)
        place.chmod(0o555)
        with unprivileged():
            assert run([*command, "--db", url]) == 0
        place.chmod(0o755)
        for file in place.iterdir():
            file.chmod(0o644)


@pytest.mark.parametrize(
    "command", [*LOOKING.values(), *CHANGING.values()], ids=[*LOOKING, *CHANGING]
)
def test_a_slip_in_the_url_makes_no_database(place, capsys, command):
    assert run([*command, "--db", f"sqlite:///{place}/typo.db"]) == 2
    assert "there is no database" in capsys.readouterr().err
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    "command", [*LOOKING.values(), *CHANGING.values()], ids=[*LOOKING, *CHANGING]
)
def test_the_database_of_something_else_stays_as_it_is(place, capsys, command):
    import apsw

    with apsw.Connection(str(place / "other.db")) as other:
        other.execute("CREATE TABLE t (x)")
    other.close()
    before = contents(place)
    assert run([*command, "--db", f"sqlite:///{place}/other.db"]) == 2
    assert "holds no queues" in capsys.readouterr().err
    assert contents(place) == before


def test_who_looks_cannot_write(url):
    with connect(url, access="look") as db:
        orders = db.find("orders")
        assert [standing.message.payload for standing in orders.peek(10)] == [b"x", b"y"]
        with pytest.raises(DatabaseUnavailable, match="opened to look at it"):
            orders.publish(b"z")
        with pytest.raises(DatabaseUnavailable, match="opened to look at it"):
            orders.claim()
    with connect(url) as db:
        assert db.find("orders").stats().ready == 2


def test_tables_of_an_older_version_are_not_brought_up_to_date_by_looking(url):
    with connect(url) as db:
        connection = db.engine._open()  # type: ignore[attr-defined]
        connection.execute("DELETE FROM headgate_migration WHERE version = (SELECT max(version) FROM headgate_migration)")  # fmt: skip
        connection.close()
    with pytest.raises(QueueError, match="whatever publishes or claims"):
        connect(url, access="look")


def test_there_is_nothing_to_look_at_in_memory():
    with pytest.raises(DatabaseNotFound):
        connect("memory:", access="look")
    with pytest.raises(QueueError, match="access is create, change, look"):
        connect("memory:", access="read")
