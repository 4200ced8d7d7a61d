"""The tables of a file, read with every problem noted instead of only the first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any


class Problems:
    """What is wrong with a file, each with its place, in the order it was found."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def note(self, where: str, what: object) -> None:
        self.found.append(f"{where}: {what}")


class Entry:
    """One table: asked for what it may hold; what it should not hold is noted as a problem."""

    def __init__(self, given: Any, where: str, problems: Problems) -> None:
        self.where, self.problems = where, problems
        self.given: Mapping[str, Any] = given if isinstance(given, dict) else {}
        if not isinstance(given, dict):
            self.note(f"expected a table, not {given!r}")

    def note(self, what: object) -> None:
        self.problems.note(self.where, what)

    def __contains__(self, key: str) -> bool:
        return key in self.given

    def only(self, *known: str) -> None:
        """Note every key nobody reads: it is misspelt more often than not."""
        for key in self.given:
            if key not in known:
                self.note(f"does not know {key!r}; {meant(key, known)}")

    def text(self, key: str) -> str | None:
        found: str | None = self._of(key, str, "text")
        return found

    def required(self, key: str, example: str) -> str:
        found = self.text(key)
        if key not in self.given:
            self.note(f"says no {key}; add {key} = {example}")
        return found or ""

    def count(self, key: str) -> int | None:
        found: int | None = self._of(key, int, "a whole number")
        if found is not None and found < 1:
            self.note(f"{key} must be at least 1, not {found}")
        return found

    def truth(self, key: str, otherwise: bool) -> bool:
        found: bool | None = self._of(key, bool, "true or false")
        return otherwise if found is None else found

    def texts(self, key: str) -> tuple[str, ...]:
        """A text or a list of texts."""
        found = self.given.get(key, [])
        listed = [found] if isinstance(found, str) else found
        if isinstance(listed, list) and all(isinstance(text, str) for text in listed):
            return tuple(listed)
        self.note(f"{key} is text or a list of texts, not {found!r}")
        return ()

    def table(self, key: str) -> Entry:
        return Entry(self.given.get(key, {}), f"{self.where[:-1]}.{key}]", self.problems)

    def _of(self, key: str, kind: type, name: str) -> Any:
        found = self.given.get(key)
        if found is None or type(found) is kind:
            return found
        self.note(f"{key} is {name}, not {found!r}")
        return None


def meant(word: str, known: Iterable[str]) -> str:
    """What the writer of an unknown word may have meant."""
    close = get_close_matches(word, known := sorted(known), 1)
    return f"did you mean {close[0]!r}?" if close else f"it knows {', '.join(known)}"
