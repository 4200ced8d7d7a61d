"""Write the reference of the HTTP API from its table of endpoints: `python tools/http_reference.py`, or `make docs`."""

from __future__ import annotations

import inspect
from pathlib import Path

from headgate.web.api import TABLES
from headgate.web.endpoints import Endpoint

PLACE = Path(__file__).parent.parent / "docs/reference/http-api.md"
MARK = "<!-- below: written by tools/http_reference.py -->\n"


def write_reference(text: str) -> str:
    """The page with the tables of all endpoints below the mark."""
    prose, _, _ = text.partition(MARK)
    groups: dict[str, list[Endpoint]] = {}
    for table in TABLES:
        for endpoint in table.endpoints:
            title = "headgate" if endpoint.segments[1] == "headgate" else endpoint.segments[1]
            groups.setdefault(title, []).append(endpoint)
    parts = [prose + MARK]
    for title, endpoints in groups.items():
        rows = [_row(endpoint) for endpoint in sorted(endpoints, key=lambda e: e.path)]
        parts.append("\n".join([f"### {title}\n", "| | tag | |", "|---|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def _row(endpoint: Endpoint) -> str:
    summary = (inspect.getdoc(endpoint.answer) or "").partition("\n")[0].replace("|", "\\|")
    return f"| `{endpoint.method} {endpoint.path}` | {endpoint.needs or 'none'} | {summary} |"


if __name__ == "__main__":
    PLACE.write_text(write_reference(PLACE.read_text()))
