"""Which queue of which database a text names, however it is spelled.

queue:sqlite:///orders.db#eu-high        a file; its path is made absolute
queue:postgresql://user@host/db#eu-high  a database on a server; ?schema=… where it is not `headgate`
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headgate.errors import SparkOptionsError
from headgate.queues import (
    SERVERS,
    SQLITE,
    State,
    canonical_url,
    hide_credentials,
    hide_password,
    sqlite_file,
    tables_of,
)

QUEUE: Final = "queue:"  # begins the text that names one
ARCHIVED: Final = "archived"  # the state of what was acked and kept
STATES: Final = tuple(state.name.lower() for state in State)  # by their numbers
_ALL: Final = "all"
_HOW: Final = "write queue:sqlite:///PATH#name or queue:postgresql://host/database#name"


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """A queue and the URL of its database, in its one spelling."""

    url: str
    name: str

    @property
    def file(self) -> Path | None:
        """Of a SQLite database; None for one on a server."""
        return sqlite_file(self.url)

    @property
    def shown(self) -> str:
        """The text for people: without user, password and settings."""
        return f"{QUEUE}{hide_credentials(self.url)}#{self.name}"


def queue_place(text: str, queue: str = "") -> QueuePlace:
    """The place of a `queue:…`; `queue` is the queue's name where the text gives none."""
    url, _, name = text.removeprefix(QUEUE).partition("#")
    if not url.startswith(SERVERS) and url.removeprefix(SQLITE) in ("", url):
        raise SparkOptionsError(f"{hide_password(text)!r} is no database; {_HOW}")
    if not name and not queue:
        shown = hide_password(text)
        raise SparkOptionsError(
            f"{shown!r} names no queue; write {shown}#name, or set option 'queue'"
        )
    try:
        place = QueuePlace(canonical_url(url), name or queue)
        tables_of(place.url)
    except (OSError, ValueError) as problem:  # a NUL, half an address in brackets
        raise SparkOptionsError(f"{hide_password(text)!r} is no database: {problem}") from None
    return place


def states_of(text: str) -> tuple[State, ...]:
    """The states that a text lists; none for the archive."""
    names = [name.strip().lower() for name in text.split(",")]
    if names == [ARCHIVED]:
        return ()
    if names == [_ALL]:
        return tuple(State)
    unknown = [name for name in names if name not in STATES]
    if unknown:
        alone = (
            f"{unknown[0]!r} stands alone" if unknown[0] in (ARCHIVED, _ALL) else f"not {text!r}"
        )
        raise SparkOptionsError(
            f"states: give some of {', '.join(STATES)}, or {_ALL}, or {ARCHIVED}; {alone}"
        )
    return tuple(State(STATES.index(name)) for name in STATES if name in names)
