"""Writing TOML: as much of it as a topology needs, read back by `tomllib` as the same values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_DELETE = "\x7f"


def to_toml(document: Mapping[str, Any]) -> str:
    """Tables of tables as [part.name], lists of tables as [[part]], everything below inline."""
    return "\n".join(line for name, part in document.items() for line in _part(name, part))


def _part(name: str, part: Any) -> Iterator[str]:
    if isinstance(part, list):
        for entry in part:
            yield f"[[{_key(name)}]]"
            yield from _lines(entry)
    else:
        for key, entry in part.items():
            yield f"[{_key(name)}.{_key(key)}]"
            yield from _lines(entry)


def _lines(entry: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{_key(key)} = {_value(value)}" for key, value in entry.items())
    yield ""


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _text(value)
        case int() | float():
            return repr(value)
        case list():
            return "[" + ", ".join(map(_value, value)) + "]"
        case dict():
            inside = ", ".join(f"{_key(name)} = {_value(part)}" for name, part in value.items())
            return f"{{ {inside} }}" if inside else "{}"
        case _:
            raise TypeError(f"TOML has no words for {value!r}")


def _text(text: str) -> str:
    # A JSON string is a TOML string, but for one control character JSON does not mind.
    return json.dumps(text, ensure_ascii=False).replace(_DELETE, "\\u007f")
