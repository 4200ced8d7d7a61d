"""Messages on the terminal, and as JSON lines in and out."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rich.text import Text

from headgate.cli.output import print_json, terminal
from headgate.errors import HeadgateError
from headgate.filters import SYS_KINDS
from headgate.insights import time_text
from headgate.message import OPAQUE, HeaderValue, Message

_FIELDS: Final = tuple(SYS_KINDS)
_ACCEPTED: Final = ("payload", "payload_base64", *_FIELDS, "headers", "properties")
_PRINTED: Final = ("offset", "delivery")  # printed with --json, and ignored when published again
_EXAMPLE: Final = '{"payload": "…", "topic": "orders.eu"}'


@dataclass(frozen=True, slots=True)
class Printer:
    """How messages are printed: as JSON lines or for a person, with payloads or without."""

    as_json: bool
    headers_only: bool

    def print(
        self, message: Message, number: int | str, facts: Mapping[str, Any], *, note: str = ""
    ) -> None:
        """Print a message on one line: a person sees its number and a note, a program all facts."""
        payload = not self.headers_only
        if self.as_json:
            print_json({**facts, **as_json(message, payload=payload)})
        else:
            line = message_text(message, number, payload=payload)
            line.append(f"  ({note})" if note else "", "yellow")
            terminal(soft_wrap=True).print(line)


# ---- JSON --------------------------------------------------------------------------------------------


def as_json(message: Message, *, payload: bool = True) -> dict[str, Any]:
    """The object that `from_json_lines` reads back; a payload that is not UTF-8 becomes `payload_base64`."""
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
    lines: Iterable[str], defaults: Mapping[str, Any], *, hint: str = ""
) -> Iterator[Message]:
    """One message for each line that is not empty: {"payload": "…", "topic": "…", "headers": {…}, …}.

    `defaults` fills in the fields and headers that a line does not have. `hint` ends the error about a line that
    is not JSON.
    """
    for number, line in enumerate(lines, 1):
        if line.strip():
            fields = _parse_line(line, number, hint)
            headers = {**defaults.get("headers", {}), **_check_headers(fields, number)}
            yield Message(**{**defaults, **fields, "headers": headers})


def _check_headers(fields: Mapping[str, Any], number: int) -> Mapping[str, HeaderValue]:
    headers = fields.get("headers") or {}
    if not isinstance(headers, dict):
        raise HeadgateError(
            f'line {number}: headers must be an object such as {{"amount": 1200}}, not {headers!r}'
        )
    return headers


def _parse_line(line: str, number: int, hint: str) -> dict[str, Any]:
    """The fields of a message that a line gives."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise HeadgateError(
            f"line {number} is not valid JSON: {problem}; write an object such as {_EXAMPLE}{hint}"
        ) from None
    if not isinstance(found, dict):
        raise HeadgateError(
            f"line {number} must be an object such as {_EXAMPLE}, not {type(found).__name__}"
        )
    unknown = found.keys() - {*_ACCEPTED, *_PRINTED}
    if unknown:
        raise HeadgateError(
            f"line {number}: a message has no field {min(unknown)!r}; it has {', '.join(_ACCEPTED)}"
        )
    fields = {name: value for name, value in found.items() if name not in _PRINTED}
    text, encoded = fields.pop("payload", ""), fields.pop("payload_base64", None)
    payload = _encode_payload(text) if encoded is None else _decode_base64(encoded, number)
    return {"payload": payload, **fields}


def _encode_payload(text: Any) -> bytes:
    return text.encode() if isinstance(text, str) else json.dumps(text).encode()


def _decode_base64(encoded: Any, number: int) -> bytes:
    try:
        return base64.b64decode(encoded)
    except (binascii.Error, TypeError, ValueError) as problem:
        raise HeadgateError(
            f"line {number}: payload_base64 is not valid base64: {problem}; give text as payload"
        ) from None


# ---- for a person ------------------------------------------------------------------------------------


def message_text(message: Message, number: int | str, *, payload: bool = True) -> Text:
    """A message on one line: offset or id, time, topic, headers, the beginning of the payload."""
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
        line.append(_shorten(message.payload), "green")
    return line


def _shorten(payload: bytes, most: int = 80) -> str:
    text = payload[: most * 4].decode("utf-8", "replace")
    shown = "".join(c if c.isprintable() else "·" for c in text[:most])
    return shown + ("…" if len(text) > most or len(payload) > most * 4 else "")
