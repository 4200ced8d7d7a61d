"""The names of columns, read backwards: which field, and which kind of its values, a column holds.

`filters.columns` writes them: h.s.region, p.i.group_sequence, topic.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from headgate.filters import SYS_KINDS, VIEWS, Field, Scope, View

SYSTEM_COLUMNS: Final = (
    "offset",
    "timestamp",
    "topic",
    "filter_value",
    "key",
    "priority",
    "id",
    "payload",
)
MAX_HEADER_COLUMNS: Final = 128  # headers past it travel in the overflow column
_SCOPES: Final[dict[str, Scope]] = {"h": "header", "p": "property"}
_VIEWS: Final[dict[str, View]] = {view[0]: view for view in VIEWS}


@lru_cache(maxsize=8192)
def field_and_view(column: str) -> tuple[Field | None, View | None]:
    """The field a column belongs to, and the kind it holds; (None, None) for offset, payload and overflow."""
    if column in SYS_KINDS:
        return Field("sys", column), SYS_KINDS[column]
    if len(column) < 4 or column[0] not in _SCOPES or column[1] != "." or column[3] != ".":
        return None, None
    return Field(_SCOPES[column[0]], column[4:]), _VIEWS[column[2]]


def field_key(field: Field) -> str:
    """A field's own name, whatever its kind: h.region, p.subject, filter_value."""
    return field.name if field.scope == "sys" else f"{field.scope[0]}.{field.name}"
