"""Regular expressions for names of queues and exchanges: those of permissions, policies and lists.

Users set them, and one that takes exponential time would hold the broker. So a search has a time limit; a pattern that
exceeds it once matches nothing from then on.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache, partial
from typing import Any, Final

from headgate.broker.refusals import PreconditionFailed

try:
    import regex as engine
except ImportError:  # without it there is no HTTP API, over which users could set patterns
    engine = re

log: Final = logging.getLogger(__name__)

SEARCH_S: Final = 0.05
# Without groups, and with two repetitions at most, a search of a name is quick, and needs no clock.
_QUICK: Final = re.compile(r"[^(*+?{]*(?:[*+?{][^(*+?{]*){0,2}")


class NamePattern:
    """A regular expression that is searched for in names."""

    def __init__(self, pattern: str, *, ignore_case: bool = False) -> None:
        compiled = engine.compile(pattern, engine.IGNORECASE if ignore_case else 0)
        is_limited = engine is not re and not _QUICK.fullmatch(pattern)
        self._search = partial(compiled.search, timeout=SEARCH_S) if is_limited else compiled.search
        self._pattern, self._is_slow = pattern, False

    def is_in(self, name: str) -> bool:
        """Whether the pattern is found in a name."""
        if self._is_slow:
            return False
        try:
            return self._search(name) is not None
        except TimeoutError:
            self._is_slow = True
            log.error(
                "a pattern takes too long, and matches nothing from now on: write it without nested repetitions",
                extra={"pattern": self._pattern[:200]},
            )
            return False


def read_pattern(pattern: Any, *, ignore_case: bool = False) -> NamePattern:
    """Compile a regular expression; one that cannot be used is refused."""
    if not isinstance(pattern, str):
        raise PreconditionFailed(f"a pattern is text, not {pattern!r}")
    try:
        return NamePattern(pattern, ignore_case=ignore_case)
    except (engine.error, RecursionError, OverflowError, MemoryError) as problem:
        text = f"invalid regular expression '{pattern[:200]}': {problem}"
        raise PreconditionFailed(text) from None


def check_pattern(pattern: Any) -> str:
    """Return a regular expression unchanged; refuse one that cannot be compiled."""
    read_pattern(pattern)
    return str(pattern)


@lru_cache(maxsize=4_096)
def _cached(pattern: str) -> NamePattern:
    return NamePattern(pattern or "^$")


def name_matches(pattern: str, name: str) -> bool:
    """Whether a pattern is found in a name; the empty one is found in the empty name only."""
    return _cached(pattern).is_in(name)
