"""Which database, and which schema in it: several Headgates may share a database, each in a schema of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from headgate.errors import QueueOptionsError

DEFAULT_SCHEMA: Final = "headgate"
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,39}")


@dataclass(frozen=True, slots=True)
class Target:
    url: str  # as libpq takes it
    schema: str = DEFAULT_SCHEMA

    @property
    def search_path(self) -> str:
        return f'"{self.schema}", pg_temp'

    @property
    def channel(self) -> str:
        """What to LISTEN to; `wake_up` and `wake_waiting` in the schema say it too."""
        return f"headgate.{self.schema}"


def target_of(url: str, schema: str | None = None) -> Target:
    """The target of a URL; the schema may stand in it too: `postgresql://…?schema=orders`."""
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    named = [value for name, value in pairs if name == "schema"]
    others = [(n, v) for n, v in pairs if n != "schema"]
    rest = urlencode(others, safe="/", quote_via=quote)  # libpq takes a plus for a plus
    chosen = schema or (named[-1] if named else DEFAULT_SCHEMA)
    if not _SCHEMA.fullmatch(chosen):
        raise QueueOptionsError(
            f"the schema {chosen!r} cannot be used: at most 40 of a-z, 0-9 and _, not beginning with a digit"
        )
    # With no host, urlunsplit would drop the two slashes that libpq wants.
    whole = urlunsplit(parts._replace(query=rest)) if named else url
    return Target(whole, chosen)
