"""Values in the body of a request, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.web.problems import bad_request

MAX_DEPTH = 20


def boolean(given: Mapping[str, Any], name: str, default: bool) -> bool:
    """A truth value; tools also send it as text."""
    value = given.get(name)
    if value is None or value == "":
        return default
    if value in (True, "true"):
        return True
    if value in (False, "false"):
        return False
    raise bad_request(f"{name} must be true or false, not {_show(value)}")


def integer(given: Mapping[str, Any], name: str) -> int:
    """A whole number; tools also send it as text."""
    value = given.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            pass
    raise bad_request(f"{name} must be a whole number, not {_show(value)}")


def optional_integer(given: Mapping[str, Any], name: str) -> int | None:
    return None if given.get(name) is None else integer(given, name)


def text(given: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = given.get(name, default)
    if value is None and default is not None:
        return default
    if value is None:
        raise bad_request(f"key_missing: {name}")
    if not isinstance(value, str):
        raise bad_request(f"{name} must be text, not {_show(value)}")
    return value


def table(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Arguments or headers: an object whose values AMQP has, too."""
    value = given.get(name)
    if value in (None, "", []):
        return {}
    if not isinstance(value, dict):
        raise bad_request(f"{name} must be an object, not {_show(value)}")
    _check(value, name, 0)
    return value


def _check(value: Any, name: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise bad_request(f"{name} is nested more than {MAX_DEPTH} deep")
    if isinstance(value, dict):
        for key, inner in value.items():
            if len(key.encode(errors="replace")) > 255:
                raise bad_request(f"a name in {name} is longer than 255 bytes")
            _check(inner, name, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            _check(inner, name, depth + 1)
    elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise bad_request(f"a number in {name} has more than 64 bits")
    elif isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as problem:
            raise bad_request(f"a text in {name} is not Unicode") from problem


def _show(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
