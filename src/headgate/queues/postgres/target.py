"""Which database, and which schema in it: several Headgates may share a database, each in a schema of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from headgate.errors import QueueOptionsError

DEFAULT_SCHEMA: Final = "headgate"
_OURS: Final = ("schema", "pooler")  # parameters that libpq does not know
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,39}")


@dataclass(frozen=True, slots=True)
class Target:
    url: str  # as libpq takes it
    schema: str = DEFAULT_SCHEMA
    # Whether a pooler between us and the server keeps a server connection for as long as we are connected.
    has_session_pooler: bool = False

    @property
    def search_path(self) -> str:
        return f'"{self.schema}", pg_temp'

    @property
    def channel(self) -> str:
        """What to LISTEN to; `wake_up` and `wake_waiting` in the schema say it too."""
        return f"headgate.{self.schema}"


def target_of(url: str, schema: str | None = None) -> Target:
    """The target of a URL; the schema may stand in it too: `postgresql://…?schema=orders`, and that there is a pooler
    in session mode: `?pooler=session`."""
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    named = {name: value for name, value in pairs if name in _OURS}
    others = [(n, v) for n, v in pairs if n not in _OURS]
    rest = urlencode(others, safe="/", quote_via=quote)  # libpq takes a plus for a plus
    chosen = schema or named.get("schema") or DEFAULT_SCHEMA
    pooler = named.get("pooler")
    if pooler not in (None, "session"):
        raise QueueOptionsError(f"pooler is session, or left out, not {pooler!r}")
    if not _SCHEMA.fullmatch(chosen):
        raise QueueOptionsError(
            f"the schema {chosen!r} cannot be used: at most 40 of a-z, 0-9 and _, not beginning with a digit"
        )
    # With no host, urlunsplit would drop the two slashes that libpq wants.
    whole = urlunsplit(parts._replace(query=rest)) if named else url
    return Target(whole, chosen, pooler is not None)
