from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from headgate.errors import StreamError, StreamOptionsError
from headgate.streams.format import CURSORS_FILE
from headgate.streams.read.cursors import Cursor, Cursors


def test_a_cursor_is_stored_when_it_is_committed_and_may_go_back(tmp_path: Path) -> None:
    cursors = Cursors(tmp_path, clock=iter([11, 12, 13]).__next__)
    cursors.commit("b", 5)
    cursors.commit("a", 7)
    cursors.commit("b", 3)
    assert Cursors(tmp_path).list() == [Cursor("a", 7, 12), Cursor("b", 3, 13)]
    assert Cursors(tmp_path).get("b") == Cursor("b", 3, 13)
    cursors.close()


def test_reading_cursors_creates_no_file(tmp_path: Path) -> None:
    cursors = Cursors(tmp_path)
    assert cursors.get("nobody") is None
    assert cursors.list() == []
    assert not cursors.delete("nobody")
    assert list(tmp_path.iterdir()) == []


def test_a_cursor_can_be_deleted(tmp_path: Path) -> None:
    cursors = Cursors(tmp_path)
    cursors.commit("a", 1)
    assert cursors.delete("a")
    assert not cursors.delete("a")
    assert cursors.get("a") is None
    cursors.close()
    cursors.close()


@pytest.mark.parametrize("name", ["", "x" * 256, None, 5, "lone \ud800"])
def test_a_cursor_name_must_be_text(tmp_path: Path, name: object) -> None:
    with pytest.raises(StreamOptionsError, match="cursor's name"):
        Cursors(tmp_path).commit(name, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("position", [-1, 2**63])
def test_a_position_that_no_message_can_have_is_refused(tmp_path: Path, position: int) -> None:
    with pytest.raises(StreamOptionsError, match="is not an offset"):
        Cursors(tmp_path).commit("a", position)


class Interrupted:
    """A connection whose user presses Ctrl-C while it executes one statement."""

    def __init__(self, connection: apsw.Connection, statement: str) -> None:
        self._connection, self._statement = connection, statement

    def execute(self, statement: str, *parameters: object) -> object:
        found = self._connection.execute(statement, *parameters)  # type: ignore[arg-type]
        if statement == self._statement:
            raise KeyboardInterrupt
        return found

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)


@pytest.mark.parametrize("statement", ["BEGIN IMMEDIATE", "COMMIT"])
def test_an_interrupted_transaction_is_not_left_open(tmp_path: Path, statement: str) -> None:
    cursors = Cursors(tmp_path)
    cursors.commit("a", 1)
    connection = cursors._open()
    cursors._connection = Interrupted(connection, statement)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt), cursors.transaction(durable=True):
        pass
    cursors._connection = connection
    with cursors.transaction(durable=True) as again:
        assert again.execute("SELECT name FROM cursor").fetchall() == [("a",)]


def test_the_error_names_a_file_that_is_not_a_database(tmp_path: Path) -> None:
    (tmp_path / CURSORS_FILE).write_bytes(b"no database at all, but long enough to look at" * 100)
    with pytest.raises(StreamError, match=CURSORS_FILE):
        Cursors(tmp_path).get("a")
