"""Tables of cases: a filter, a message, and whether they should match.

[{"expr": "region = 'EU'", "message": {"headers": {"region": "EU"}}, "expect": true},
 {"expr": "region = ",     "message": {},                            "expect": "error"},
 {"pattern": "orders.#",   "topic": "orders",                        "expect": true}]
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from headgate.errors import CasesError, FilterError, InvalidMessage, TopicPatternError
from headgate.filters import SYS_KINDS, Filter, TopicMatch, parse
from headgate.message import OPAQUE, HeaderValue, Message, validate

Expected: TypeAlias = "bool | str"  # True, False or "error"

ERROR: Final = "error"
_FIELDS: Final = frozenset({"payload", "headers", "properties", *SYS_KINDS})


@dataclass(frozen=True, slots=True)
class Case:
    number: int  # from 1, in the order of the file
    text: str  # the filter or the topic pattern
    message: Message
    expected: Expected
    filter: Filter | None  # None: it was refused, and `refusal` says why
    refusal: str = ""


def load_cases(path: Path) -> list[Case]:
    """The cases of a file, or CasesError with the first entry that is wrong."""
    try:
        table = json.loads(path.read_text())
    except OSError as problem:
        raise CasesError(
            f"cannot read {path}: {problem.strerror}; name a JSON file with a list of cases"
        ) from problem
    except (ValueError, RecursionError) as problem:
        raise CasesError(f"{path} is no JSON: {problem}") from problem
    if not isinstance(table, list):
        raise CasesError(f"{path} must hold a list of cases, not {type(table).__name__}")
    return [read_case(number, entry) for number, entry in enumerate(table, 1)]


def read_case(number: int, entry: Any) -> Case:
    """One entry of a table; a filter or pattern that is refused makes a case too."""
    if not isinstance(entry, dict):
        raise CasesError(f"case {number} must be an object, not {type(entry).__name__}")
    expected = entry.get("expect")
    if expected is not True and expected is not False and expected != ERROR:
        raise CasesError(
            f'case {number}: "expect" must be true, false or "error", not {expected!r}'
        )
    if "expr" in entry:
        return _read_filter_case(number, entry, expected)
    if "pattern" in entry and "topic" in entry:
        return _read_topic_case(number, entry, expected)
    raise CasesError(f'case {number} needs "expr" and "message", or "pattern" and "topic"')


def _read_filter_case(number: int, entry: Mapping[str, Any], expected: Expected) -> Case:
    text = entry["expr"]
    message = _read_message(number, entry.get("message", {}))
    try:
        return Case(number, str(text), message, expected, parse(text))
    except FilterError as refusal:
        return Case(number, str(text), message, expected, None, str(refusal))


def _read_topic_case(number: int, entry: Mapping[str, Any], expected: Expected) -> Case:
    pattern = entry["pattern"]
    message = _read_message(number, {"topic": entry["topic"]})
    try:
        return Case(number, str(pattern), message, expected, TopicMatch(pattern))
    except TopicPatternError as refusal:
        return Case(number, str(pattern), message, expected, None, str(refusal))


def _read_message(number: int, fields: Any) -> Message:
    if not isinstance(fields, dict):
        raise CasesError(f'case {number}: "message" must be an object, not {type(fields).__name__}')
    unknown = fields.keys() - _FIELDS
    if unknown:
        raise CasesError(
            f"case {number}: a message has no field {min(unknown)!r}; it has {', '.join(sorted(_FIELDS))}"
        )
    message = Message(
        **{
            **fields,
            "payload": str(fields.get("payload", "")).encode(),
            "headers": _read_values(number, "headers", fields),
            "properties": _read_values(number, "properties", fields),
        }
    )
    try:
        validate(message)
    except InvalidMessage as problem:
        raise CasesError(f"case {number}: {problem}") from None
    return message


def _read_values(number: int, name: str, fields: Mapping[str, Any]) -> dict[str, HeaderValue]:
    values = fields.get(name) or {}
    if not isinstance(values, dict):
        raise CasesError(f"case {number}: {name!r} must be an object, not {type(values).__name__}")
    # A list or an object is what AMQP calls an array or a table: present, but not comparable.
    return {key: OPAQUE if isinstance(v, list | dict) else v for key, v in values.items()}
