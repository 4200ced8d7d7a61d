"""Where messages may go, as a pipeline file writes it, and paths made absolute from where the file lies.

stream:data/eu-high                  a Headgate stream
queue:sqlite:///orders.db#eu-high    a queue in a database; the sink's own queue unless #name says another
queue:postgresql://host/db
parquet:out/eu-high                  Parquet files
none:                                counted, and not kept
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import quote

from headgate.pipelines.definition import NOWHERE
from headgate.pipelines.queue_url import QUEUE
from headgate.queues import SERVERS, SQLITE, hide_password

KINDS: Final = ("stream:", QUEUE, "parquet:", NOWHERE)
_IN_URLS: Final = {ord(c): quote(c) for c in "%#?"}  # what would end a path, or be read as a code


def absolute(path: str, base: Path) -> str:
    """The path seen from `base`; what is no plain path, but a URI, is left as it is."""
    if "://" in path or path.startswith("file:"):
        return path
    return str((base / Path(path).expanduser()).absolute())


def place(to: str, queue: str, base: Path) -> str:
    """The place in full; raises ValueError with what is wrong and what to write."""
    kind, colon, rest = to.partition(":")
    if kind + colon not in KINDS:
        raise ValueError(
            f"{hide_password(to)!r} is no place for messages; write stream:PATH, queue:sqlite:///PATH, "
            "queue:postgresql://…, parquet:PATH or none:"
        )
    if to == NOWHERE:
        return to
    if not rest or kind == "none":
        raise ValueError(f"{to!r} names no place; write {_EXAMPLES[kind]}")
    return f"{kind}:{_queue(rest, queue, base) if kind == 'queue' else absolute(rest, base)}"


_EXAMPLES: Final = {
    "stream": "stream:data/orders",
    "queue": "queue:sqlite:///orders.db",
    "parquet": "parquet:data/orders",
    "none": "none: and nothing behind it",
}


def _queue(rest: str, queue: str, base: Path) -> str:
    url, hash_, name = rest.partition("#")
    shown = hide_password(QUEUE + rest)
    if hash_ and not name:
        raise ValueError(f"{shown!r} names no queue behind the #; write #name or leave it out")
    if url.startswith(SERVERS):
        return f"{url}#{name or queue}"
    if not url.startswith(SQLITE):
        raise ValueError(
            f"{shown!r} is no database; write queue:sqlite:///orders.db or queue:postgresql://host/name"
        )
    return f"{_sqlite(url, base)}#{name or queue}"


def _sqlite(url: str, base: Path) -> str:
    file, mark, options = url.removeprefix(SQLITE).partition("?")
    if not file:
        raise ValueError(f"{url!r} names no file; write sqlite:///orders.db")
    lying = Path(str(base).translate(_IN_URLS))
    return f"{SQLITE}{absolute(file, lying)}{mark}{options}"
