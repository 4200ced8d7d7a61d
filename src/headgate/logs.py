"""Logs of workers and brokers: lines for a person, `key=value` pairs, or one JSON object per line for a log collector."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from typing import Literal as OneOf

from headgate.errors import HeadgateError

FORMATS: Final = ("text", "keyvalue", "json")
LEVELS: Final = ("debug", "info", "warning", "error")
_TEXT: Final = "%(asctime)s.%(msecs)03dZ %(levelname)-7s %(processName)s %(name)s: %(message)s"
_BARE: Final = re.compile(r'[^\s"=\\]+')
# What every record has; whatever else it has was given as `extra`.
_PLAIN: Final = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName"}


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How a program logs, in a form that can be sent to another process."""

    format: OneOf["text", "keyvalue", "json"] = "text"
    level: str = "info"

    def __post_init__(self) -> None:
        for name, value, known in (
            ("format", self.format, FORMATS),
            ("level", self.level, LEVELS),
        ):
            if value not in known:
                raise HeadgateError(f"the log {name} is one of {', '.join(known)}, not {value!r}")


class JsonFormatter(logging.Formatter):
    """A record as a JSON object: time, level, logger, message, the `extra` facts, and the exception."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(self._facts(record), ensure_ascii=False, default=str)

    def _facts(self, record: logging.LogRecord) -> dict[str, Any]:
        told: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
        }
        told |= {name: value for name, value in record.__dict__.items() if name not in _PLAIN}
        if record.exc_info and record.exc_info[0] is not None:
            told["exception"] = self.formatException(record.exc_info)
        return told


class TextFormatter(logging.Formatter):
    """A line for a person: time, level, logger, message, and the `extra` facts as `key=value`."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        # Names that clients chose must not begin a line of their own.
        record.message = "".join(c if c.isprintable() else repr(c)[1:-1] for c in record.message)
        facts = ((name, fact) for name, fact in record.__dict__.items() if name not in _PLAIN)
        pairs = (f"{name}={_quote(str(fact))}" for name, fact in facts)
        return " ".join((super().formatMessage(record), *pairs))


class KeyValueFormatter(JsonFormatter):
    """The facts of a record as `key=value`; a value with spaces, quotes or line breaks is quoted as JSON quotes it."""

    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{name}={_quote(str(fact))}" for name, fact in self._facts(record).items())


def _quote(text: str) -> str:
    return text if _BARE.fullmatch(text) else json.dumps(text, ensure_ascii=False)


@contextmanager
def log_as(settings: LogSettings) -> Iterator[None]:
    """Log to standard error while the block runs, records of other modules too; times are UTC."""
    formatter = _formatter(settings.format)
    formatter.converter = time.gmtime
    stream = logging.StreamHandler(sys.stderr)
    stream.setFormatter(formatter)
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers[:] = [stream]
    root.setLevel(settings.level.upper())
    try:
        yield
    finally:
        root.handlers[:] = before
        root.setLevel(level)


def _formatter(name: str) -> logging.Formatter:
    match name:
        case "json":
            return JsonFormatter()
        case "keyvalue":
            return KeyValueFormatter()
        case _:
            return TextFormatter(_TEXT, "%Y-%m-%dT%H:%M:%S")
