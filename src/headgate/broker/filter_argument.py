"""The argument `x-filter`: a filter of the language of FILTERS.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headgate.broker.definition import type_name
from headgate.broker.refusals import PreconditionFailed
from headgate.errors import FilterError
from headgate.filters import Filter, as_filter

FILTER: Final = "x-filter"


def read_filter(arguments: Mapping[str, Any]) -> Filter | None:
    """The filter in `x-filter`, None where there is none; one that does not parse is refused, with a caret under the mistake."""
    text = arguments.get(FILTER)
    if text is None:
        return None
    if not isinstance(text, str):
        raise PreconditionFailed(f"invalid arg '{FILTER}': expected longstr, got {type_name(text)}")
    try:
        return as_filter(text)
    except FilterError as problem:
        raise PreconditionFailed(f"invalid arg '{FILTER}': {problem}") from problem
