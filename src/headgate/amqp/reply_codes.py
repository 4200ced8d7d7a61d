"""Reply codes of AMQP, and the code and text of each refusal of the broker."""

from __future__ import annotations

from typing import Final

from headgate.amqp.tables import Malformed
from headgate.broker import (
    AccessRefused,
    NotAllowed,
    NotFound,
    NotImplementedHere,
    PreconditionFailed,
    Refusal,
    ResourceLocked,
)
from headgate.errors import HeadgateError

NAMES: Final = {
    311: "CONTENT_TOO_LARGE",
    312: "NO_ROUTE",
    320: "CONNECTION_FORCED",
    402: "INVALID_PATH",
    403: "ACCESS_REFUSED",
    404: "NOT_FOUND",
    405: "RESOURCE_LOCKED",
    406: "PRECONDITION_FAILED",
    501: "FRAME_ERROR",
    502: "SYNTAX_ERROR",
    503: "COMMAND_INVALID",
    504: "CHANNEL_ERROR",
    505: "UNEXPECTED_FRAME",
    506: "RESOURCE_ERROR",
    530: "NOT_ALLOWED",
    540: "NOT_IMPLEMENTED",
    541: "INTERNAL_ERROR",
}
CODES: Final[dict[type[Refusal], int]] = {
    AccessRefused: 403,
    NotFound: 404,
    ResourceLocked: 405,
    PreconditionFailed: 406,
    NotAllowed: 530,
    NotImplementedHere: 540,
}


class ConnectionFailed(HeadgateError):
    """A mistake of the peer for which the connection is closed, with this reply code."""

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        super().__init__(text)


def reply_code(problem: Exception) -> int:
    """The reply code of a mistake; 541, an error of the broker, for any other exception."""
    match problem:
        case ConnectionFailed():
            return problem.code
        case Refusal():
            return next(CODES[kind] for kind in type(problem).__mro__ if kind in CODES)
        case Malformed():
            return 502
        case _:
            return 541


def reply_text(code: int, problem: object) -> str:
    """The text of a close: the name of its code, and what is wrong, at most 255 bytes."""
    text = f"{NAMES[code]} - {problem}"
    return text.encode()[:255].decode(errors="ignore")


def bad_frame(kind: int, payload: bytes, end: int) -> str:
    """The text of the error for a frame without the end octet."""
    return f"type {kind}, all octets = {octets(payload)}: {{invalid_frame_end_marker,{end}}}"


def octets(data: bytes) -> str:
    """Bytes as RabbitMQ prints them."""
    if data and all(32 <= octet < 127 for octet in data):
        return f'<<"{data.decode()}">>'
    return f"<<{','.join(map(str, data))}>>"
