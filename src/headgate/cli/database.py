"""The database that commands on queues and subscriptions work on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, TypeAlias

import typer

from headgate.queues import Access, Database, connect
from headgate.settings import load_settings

DatabaseUrl: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--db",
        help="sqlite:///orders.db or postgresql://…; by default the setting `database`.",
        metavar="URL",
    ),
]


@contextmanager
def opened(url: str | None, access: Access = "change") -> Iterator[Database]:
    """The database at that URL, or the one that is set. Only `create` makes it, so that a slip in a URL does not."""
    with connect(load_settings(database=url).database, access=access) as database:
        yield database
