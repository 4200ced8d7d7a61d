"""One filter, one answer on every engine: run tables of cases through all of them and compare."""

from typing import TYPE_CHECKING

from headgate.lazy import front_door

if TYPE_CHECKING:
    from headgate.check.cases import CheckReport as CheckReport
    from headgate.check.cases import Disagreement as Disagreement
    from headgate.check.cases import Expected as Expected
    from headgate.check.cases import check_cases as check_cases
    from headgate.check.cases import load_cases as load_cases
    from headgate.check.engines import ENGINES as ENGINES
    from headgate.check.engines import LOCAL as LOCAL
    from headgate.check.engines import Question as Question
    from headgate.check.engines import open_engine as open_engine
    from headgate.check.engines import unknown_engine as unknown_engine
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "cases": ["CheckReport", "Disagreement", "Expected", "check_cases", "load_cases"],
            "engines": ["ENGINES", "LOCAL", "Question", "open_engine", "unknown_engine"],
        },
    )
