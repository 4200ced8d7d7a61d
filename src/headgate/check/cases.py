"""Tables of cases (a filter, a message, and whether they should match) and the report of running them.

[{"expr": "region = 'EU'", "message": {"headers": {"region": "EU"}}, "expect": true},
 {"expr": "region = ",     "message": {},                            "expect": "error"},
 {"pattern": "orders.#",   "topic": "orders",                        "expect": true}]
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from headgate.check.engines import CheckEngine, Question
from headgate.errors import CasesError, FilterError, InvalidMessage, TopicPatternError
from headgate.filters import SYS_KINDS, Filter, TopicMatch, parse
from headgate.message import OPAQUE, HeaderValue, Message, validate

Expected: TypeAlias = "bool | str"  # True, False or "error"

ERROR: Final = "error"
_FIELDS: Final = frozenset({"payload", "headers", "properties", *SYS_KINDS})


@dataclass(frozen=True, slots=True)
class Case:
    """One entry of a table."""

    number: int  # from 1, in the order of the file
    text: str  # the filter or the topic pattern
    message: Message
    expected: Expected
    filter: Filter | None  # None when it was refused; `refusal` says why
    refusal: str = ""


def load_cases(path: Path) -> list[Case]:
    """Read the cases of a file; CasesError names the first entry that is wrong."""
    try:
        table = json.loads(path.read_text())
    except OSError as problem:
        raise CasesError(
            f"cannot read {path}: {problem.strerror}; name a JSON file with a list of cases"
        ) from problem
    except (ValueError, RecursionError) as problem:
        raise CasesError(f"{path} is not JSON: {problem}") from problem
    if not isinstance(table, list):
        raise CasesError(f"{path} must hold a list of cases, not {type(table).__name__}")
    return [read_case(number, entry) for number, entry in enumerate(table, 1)]


def read_case(number: int, entry: Any) -> Case:
    """Read one entry of a table; a filter or pattern that is refused makes a case too."""
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


# ---- running cases -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Disagreement:
    """An answer that is not the expected one."""

    case: Case
    engine: str
    got: Expected
    detail: str = ""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """How some engines answered some cases."""

    cases: Sequence[Case]
    engines: tuple[str, ...]
    disagreements: tuple[Disagreement, ...] = field(default=())

    @property
    def failed(self) -> int:
        """How many cases some engine answered differently than expected."""
        return len({d.case.number for d in self.disagreements})

    @property
    def passed(self) -> int:
        """How many cases every engine answered as expected."""
        return len(self.cases) - self.failed

    def __add__(self, other: CheckReport) -> CheckReport:
        """Join the reports on the same cases by different engines."""
        engines = self.engines + other.engines
        return CheckReport(self.cases, engines, self.disagreements + other.disagreements)


def check_cases(cases: Sequence[Case], engine: CheckEngine) -> CheckReport:
    """Run every case through the engine; a filter that the parser refuses is answered \"error\"."""
    return CheckReport(cases, (engine.name,), tuple(_find_disagreements(cases, engine)))


def _find_disagreements(cases: Sequence[Case], engine: CheckEngine) -> Iterable[Disagreement]:
    answerable = [case for case in cases if case.filter is not None]
    answers = engine.answer(
        [Question(c.filter, c.message) for c in answerable if c.filter is not None]
    )
    got: dict[int, Expected] = {c.number: a for c, a in zip(answerable, answers, strict=True)}
    for case in cases:
        answer = got.get(case.number, ERROR)
        if answer != case.expected:
            yield Disagreement(case, engine.name, answer, case.refusal)
