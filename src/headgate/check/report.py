"""Run cases through engines and say where they disagree with what was expected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headgate.check.cases import ERROR, Case, Expected
from headgate.check.engine import Engine, Question


@dataclass(frozen=True, slots=True)
class Disagreement:
    case: Case
    engine: str
    got: Expected
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    cases: Sequence[Case]
    engines: tuple[str, ...]
    disagreements: tuple[Disagreement, ...] = field(default=())

    @property
    def failed(self) -> int:
        """Cases that some engine answered differently than expected."""
        return len({d.case.number for d in self.disagreements})

    @property
    def passed(self) -> int:
        return len(self.cases) - self.failed

    def __add__(self, other: Report) -> Report:
        """The same cases, seen by more engines."""
        engines = self.engines + other.engines
        return Report(self.cases, engines, self.disagreements + other.disagreements)


def check_cases(cases: Sequence[Case], engine: Engine) -> Report:
    """The engine answers every case; a refusal by the parser is its answer too."""
    return Report(cases, (engine.name,), tuple(_disagreements(cases, engine)))


def _disagreements(cases: Sequence[Case], engine: Engine) -> Iterable[Disagreement]:
    answerable = [case for case in cases if case.filter is not None]
    answers = engine.answer(
        [Question(c.filter, c.message) for c in answerable if c.filter is not None]
    )
    got: dict[int, Expected] = {c.number: a for c, a in zip(answerable, answers, strict=True)}
    for case in cases:
        answer = got.get(case.number, ERROR)
        if answer != case.expected:
            yield Disagreement(case, engine.name, answer, case.refusal)
