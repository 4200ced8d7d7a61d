"""Messages on the screen, and as JSON lines in and out."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import typer
from rich.console import Console
from rich.text import Text

from headgate.errors import HeadgateError
from headgate.filters import SYS_KINDS
from headgate.message import OPAQUE, HeaderValue, Message

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIELDS: Final = tuple(SYS_KINDS)
_GIVEN: Final = ("payload", "payload_base64", *_FIELDS, "headers", "properties")
_PRINTED: Final = ("offset", "delivery")  # what was printed with --json can be published again
_EXAMPLE: Final = '{"payload": "…", "topic": "orders.eu"}'


@dataclass(frozen=True, slots=True)
class Printer:
    """How messages are printed: as lines of JSON or for a person, with their payloads or without."""

    as_json: bool
    headers_only: bool

    def print(self, message: Message, number: int, facts: Mapping[str, Any]) -> None:
        """One line: a person sees the message under its number, JSON tells the facts besides."""
        payload = not self.headers_only
        if self.as_json:
            shown = {**facts, **as_json(message, payload=payload)}
            typer.echo(json.dumps(shown, ensure_ascii=False))
        else:
            line = message_text(message, number, payload=payload)
            Console(highlight=False, soft_wrap=True).print(line)


# ---- JSON --------------------------------------------------------------------------------------------


def as_json(message: Message, *, payload: bool = True) -> dict[str, Any]:
    """What `from_json_lines` reads back; a payload that is no UTF-8 is told apart as base64."""
    shown: dict[str, Any] = {
        name: value for name in _FIELDS if (value := getattr(message, name)) not in (None, "", 0)
    }
    for name in ("headers", "properties"):
        values = {key: _json_value(value) for key, value in getattr(message, name).items()}
        shown |= {name: values} if values else {}
    return shown | (_payload_json(message.payload) if payload else {})


def _json_value(value: HeaderValue) -> Any:
    return {"opaque": True} if value is OPAQUE else value


def _payload_json(payload: bytes) -> dict[str, str]:
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode()}


def from_json_lines(
    lines: Iterable[str], defaults: Mapping[str, Any], *, otherwise: str = ""
) -> Iterator[Message]:
    """A message of each line that is not empty: {"payload": "…", "topic": "…", "headers": {…}, …}.

    Fields and headers that a line does not have are those of `defaults`. `otherwise` says what else can be done with a
    line that is no JSON.
    """
    for number, line in enumerate(lines, 1):
        if line.strip():
            given = _from_json(line, number, otherwise)
            headers = {**defaults.get("headers", {}), **_headers(given, number)}
            yield Message(**{**defaults, **given, "headers": headers})


def _headers(given: Mapping[str, Any], number: int) -> Mapping[str, HeaderValue]:
    headers = given.get("headers") or {}
    if not isinstance(headers, dict):
        raise HeadgateError(
            f'line {number}: headers must be an object such as {{"amount": 1200}}, not {headers!r}'
        )
    return headers


def _from_json(line: str, number: int, otherwise: str) -> dict[str, Any]:
    """The fields of a message that the line gives."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise HeadgateError(
            f"line {number} is no JSON: {problem}; write an object such as {_EXAMPLE}{otherwise}"
        ) from None
    if not isinstance(fields, dict):
        raise HeadgateError(
            f"line {number} must be an object such as {_EXAMPLE}, not {type(fields).__name__}"
        )
    unknown = fields.keys() - {*_GIVEN, *_PRINTED}
    if unknown:
        raise HeadgateError(
            f"line {number}: a message has no field {min(unknown)!r}; it has {', '.join(_GIVEN)}"
        )
    given = {name: value for name, value in fields.items() if name not in _PRINTED}
    text, raw = given.pop("payload", ""), given.pop("payload_base64", None)
    return {"payload": _payload(text) if raw is None else _decoded(raw, number), **given}


def _payload(text: Any) -> bytes:
    return text.encode() if isinstance(text, str) else json.dumps(text).encode()


def _decoded(raw: Any, number: int) -> bytes:
    try:
        return base64.b64decode(raw)
    except (binascii.Error, TypeError, ValueError) as problem:
        raise HeadgateError(
            f"line {number}: payload_base64 is no base64: {problem}; give text as payload"
        ) from None


# ---- for a person ------------------------------------------------------------------------------------


def time_text(microseconds: int | None) -> str:
    """UTC to the millisecond."""
    if microseconds is None:
        return "-"
    moment = _EPOCH + timedelta(microseconds=microseconds)
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def message_text(message: Message, number: int, *, payload: bool = True) -> Text:
    """One message a line: offset or id, time, topic, headers, the beginning of the payload."""
    line = Text.assemble(
        (f"{number:>10} ", "cyan"),
        (f"{time_text(message.timestamp)} ", "dim"),
        (message.topic or "-", "bold"),
    )
    for name, value in message.headers.items():
        line.append(f"  {name}=", "dim")
        line.append(
            value if isinstance(value, str) else json.dumps(_json_value(value), ensure_ascii=False)
        )
    if payload and message.payload:
        line.append("  ")
        line.append(_shortened(message.payload), "green")
    return line


def _shortened(payload: bytes, most: int = 80) -> str:
    text = payload[: most * 4].decode("utf-8", "replace")
    shown = "".join(c if c.isprintable() else "·" for c in text[:most])
    return shown + ("…" if len(text) > most or len(payload) > most * 4 else "")
