"""Everything Headgate raises on purpose.

HeadgateError
├── FilterError (ValueError)        something is wrong with a filter
│   ├── FilterSyntaxError           the text does not parse; knows line, column, what was expected
│   ├── FilterLimitError            too long, too many tokens, too deep
│   └── FilterTypeError             a node was built from the wrong kind of thing
├── TopicPatternError (ValueError)  a topic pattern cannot be used
├── InvalidMessage (ValueError)     a message cannot be published as it is
├── SettingsError (ValueError)      a setting has a value that cannot be used
├── CasesError (ValueError)         a table of filter cases cannot be read
├── JavaNotFound                    no Java runtime that Spark can use
└── MissingExtra (ImportError)      an optional part is not installed; says which pip line installs it
"""

from __future__ import annotations


class HeadgateError(Exception):
    """The root: catch this to catch everything Headgate raises on purpose."""


class FilterError(HeadgateError, ValueError):
    """Something is wrong with a filter."""


class FilterSyntaxError(FilterError):
    """The text of a filter does not parse. Prints the line with a caret under the column."""

    def __init__(self, problem: str, text: str, at: int, expected: tuple[str, ...] = ()) -> None:
        self.problem, self.text, self.at, self.expected = problem, text, at, expected
        self.line = text.count("\n", 0, at) + 1
        self.column = at - text.rfind("\n", 0, at)
        hint = f"; expected {_one_of(expected)}" if expected else ""
        where = f"line {self.line}, column {self.column}"
        super().__init__(f"{problem} at {where}{hint}\n{_caret(text, at)}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.problem, self.text, self.at, self.expected)


class FilterLimitError(FilterError):
    """A filter is longer, deeper or wider than the language allows."""

    def __init__(self, what: str, found: int, limit: int) -> None:
        self.what, self.found, self.limit = what, found, limit
        super().__init__(
            f"the filter has {found:,} {what}, the limit is {limit:,}; "
            "split it into several subscriptions, or test a derived header instead"
        )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.what, self.found, self.limit)


class FilterTypeError(FilterError, TypeError):
    """A filter node was built from the wrong kind of thing."""


class TopicPatternError(HeadgateError, ValueError):
    """A topic pattern cannot be used."""


class InvalidMessage(HeadgateError, ValueError):
    """A message cannot be published as it is; `field` names the part that is wrong."""

    def __init__(self, field: str, problem: str) -> None:
        self.field, self.problem = field, problem
        super().__init__(f"{field}: {problem}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.field, self.problem)


class SettingsError(HeadgateError, ValueError):
    """A setting has a value that cannot be used."""


class CasesError(HeadgateError, ValueError):
    """A table of filter cases cannot be read; says which entry and why."""


class JavaNotFound(HeadgateError):
    """No Java runtime that Spark can use was found."""


class MissingExtra(HeadgateError, ImportError):
    """An optional part of Headgate is not installed."""

    def __init__(self, extra: str, purpose: str) -> None:
        self.extra, self.purpose = extra, purpose
        super().__init__(f"{purpose} needs an extra: pip install 'headgate[{extra}]'")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.extra, self.purpose)


def _one_of(expected: tuple[str, ...]) -> str:
    if len(expected) == 1:
        return expected[0]
    return ", ".join(expected[:-1]) + " or " + expected[-1]


def _caret(text: str, at: int) -> str:
    """The line around `at`, cut to a readable width, and a caret under it."""
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    left, right = max(start, at - 60), min(end, at + 40)
    shown = "".join(c if c.isprintable() else " " for c in text[left:right])
    lead, tail = ("…" if left > start else ""), ("…" if right < end else "")
    return f"  {lead}{shown}{tail}\n  {' ' * (len(lead) + at - left)}^"
