"""The tables of a TOML file, read so that all problems are collected, and not only the first is reported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any


class Problems:
    """The problems of a file, each with the table it is in, in the order of reading."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def add(self, where: str, problem: object) -> None:
        self.texts.append(f"{where}: {problem}")


class TomlTable:
    """One table, read key by key; a key or value that does not belong there is added to the problems."""

    def __init__(self, value: Any, where: str, problems: Problems) -> None:
        self.where, self.problems = where, problems
        self.values: Mapping[str, Any] = value if isinstance(value, dict) else {}
        if not isinstance(value, dict):
            self.add_problem(f"expected a table, not {value!r}")

    def add_problem(self, problem: object) -> None:
        self.problems.add(self.where, problem)

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def allow_only(self, *known: str) -> None:
        """Report every other key: it is probably misspelt."""
        for key in self.values:
            if key not in known:
                self.add_problem(f"unknown key {key!r}; {suggest(key, known)}")

    def text(self, key: str) -> str | None:
        value: str | None = self._value(key, str, "text")
        return value

    def required_text(self, key: str, example: str) -> str:
        if key not in self.values:
            self.add_problem(f"{key} is missing; add {key} = {example}")
        return self.text(key) or ""

    def count(self, key: str) -> int | None:
        value: int | None = self._value(key, int, "a whole number")
        if value is not None and value < 1:
            self.add_problem(f"{key} must be at least 1, not {value}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value: bool | None = self._value(key, bool, "true or false")
        return default if value is None else value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a text, or a list of texts, as a tuple."""
        value = self.values.get(key, [])
        items = [value] if isinstance(value, str) else value
        if isinstance(items, list) and all(isinstance(text, str) for text in items):
            return tuple(items)
        self.add_problem(f"{key} is text or a list of texts, not {value!r}")
        return ()

    def table(self, key: str) -> TomlTable:
        return TomlTable(self.values.get(key, {}), f"{self.where[:-1]}.{key}]", self.problems)

    def _value(self, key: str, kind: type, name: str) -> Any:
        value = self.values.get(key)
        if value is None or type(value) is kind:
            return value
        self.add_problem(f"{key} is {name}, not {value!r}")
        return None


def suggest(word: str, known: Iterable[str]) -> str:
    """Return a hint at the known word closest to an unknown one, or at all of them."""
    close = get_close_matches(word, known := sorted(known), 1)
    return f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(known)}"
