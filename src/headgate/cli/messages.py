"""Messages on the screen, and as JSON lines in and out."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from rich.text import Text

from headgate.errors import HeadgateError
from headgate.message import OPAQUE, HeaderValue, Message

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIELDS: Final = ("topic", "priority", "timestamp", "id", "filter_value", "key")


def time_text(microseconds: int | None) -> str:
    if microseconds is None:
        return "-"
    return (_EPOCH + timedelta(microseconds=microseconds)).isoformat(timespec="milliseconds")[
        :-6
    ] + "Z"


def as_json(message: Message, *, offset: int | None = None, payload: bool = True) -> dict[str, Any]:
    """What `from_json_line` reads back; a payload that is no UTF-8 is told apart as base64."""
    shown: dict[str, Any] = {} if offset is None else {"offset": offset}
    shown |= {
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


def from_json_line(line: str, number: int) -> Message:
    """A message from one line: {"payload": "…", "topic": "…", "headers": {…}, …}."""
    try:
        fields = json.loads(line)
    except ValueError as problem:
        raise HeadgateError(
            f"line {number} is no JSON: {problem}; --raw sends lines as they are"
        ) from None
    if not isinstance(fields, dict):
        raise HeadgateError(f"line {number} must be an object, not {type(fields).__name__}")
    fields.pop("offset", None)  # what `scan --json` printed can be published again
    raw = fields.pop("payload_base64", None)
    text = fields.pop("payload", "")
    known = {*_FIELDS, "headers", "properties"}
    unknown = fields.keys() - known
    if unknown:
        raise HeadgateError(f"line {number}: a message has no field {min(unknown)!r}")
    return Message(_payload(text, raw), **fields)


def _payload(text: Any, raw: str | None) -> bytes:
    if raw is not None:
        return base64.b64decode(raw)
    return text.encode() if isinstance(text, str) else json.dumps(text).encode()


def message_text(message: Message, *, offset: int, payload: bool = True) -> Text:
    """One message a line: offset, time, topic, headers, the beginning of the payload."""
    line = Text.assemble(
        (f"{offset:>10} ", "cyan"),
        (f"{time_text(message.timestamp)} ", "dim"),
        (message.topic or "-", "bold"),
    )
    for name, value in message.headers.items():
        line.append(f"  {name}=", "dim")
        line.append(
            json.dumps(_json_value(value), ensure_ascii=False)
            if not isinstance(value, str)
            else value
        )
    if payload and message.payload:
        line.append("  ")
        line.append(_shortened(message.payload), "green")
    return line


def _shortened(payload: bytes, most: int = 80) -> str:
    text = payload[: most * 4].decode("utf-8", "replace")
    shown = "".join(c if c.isprintable() else "·" for c in text[:most])
    return shown + ("…" if len(text) > most or len(payload) > most * 4 else "")
