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
├── StreamError                     something is wrong with a stream
│   ├── StreamNotFound              there is no stream in that directory
│   ├── StreamExists                there is one already
│   ├── StreamLocked                another writer holds it; names the holder
│   ├── StreamClosed                it was used after it was closed
│   ├── StreamWriteError            the disk refused the bytes; nothing confirmed is lost
│   ├── StreamCorrupt               bytes on disk are not what was written; names file and position
│   └── StreamOptionsError (ValueError)  an option cannot be used
├── RoutingError                    something is wrong with an exchange, a queue or a binding
│   ├── UnknownExchange (LookupError)  no exchange has that name
│   ├── UnknownQueue (LookupError)  no queue has that name
│   ├── NotPermitted                the exchange or the name is reserved
│   ├── NotEquivalent (ValueError)  it was declared before, differently
│   ├── DeclarationRefused (ValueError)  an exchange of that kind cannot be declared
│   ├── BindingRefused (ValueError)  a binding's key, arguments or filter cannot be used
│   └── TopologyError (ValueError)  a file of definitions cannot be read; says which entry and why
├── QueueError                      something is wrong with a queue or its database
│   ├── QueueNotFound               there is no queue or subscription of that name
│   ├── QueueOptionsError (ValueError)   an option of a queue cannot be used
│   ├── StaleLease                  the lease is over and the message is no longer yours
│   ├── SchemaTooNew                a newer Headgate made these tables
│   ├── DatabaseUnavailable         the database cannot be reached; try again
│   ├── DatabaseFull                the disk refused the bytes; nothing confirmed is lost
│   └── DatabaseClosed              it was used after it was closed
├── PipelineError (ValueError)      a pipeline file cannot be run; lists every problem with its place
├── SparkError                      something is wrong with what Spark is asked to do
│   ├── SparkOptionsError (ValueError)  an option of format("headgate") is unknown or cannot be used
│   │   └── NoQueues                 the database that is named holds no queues yet
│   ├── SparkSchemaError (ValueError)  a column's type cannot hold what the column stands for
│   ├── StagingError                a staged file, or its folder, is not where driver and executors both see it
│   └── DataLost                    messages a query has yet to read were dropped by retention
├── JavaNotFound                    no Java runtime that Spark can use
├── ServerNotFound                  no PostgreSQL server answers
└── MissingExtra (ImportError)      an optional part is not installed; says which pip line installs it
"""

from __future__ import annotations

from collections.abc import Mapping


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


class StreamError(HeadgateError):
    """Something is wrong with a stream."""


class StreamNotFound(StreamError):
    """There is no stream in that directory."""


class StreamExists(StreamError):
    """There is a stream in that directory already."""


class StreamLocked(StreamError):
    """Another writer holds the stream; `holder` says who: pid, host, purpose, since."""

    def __init__(self, path: str, holder: Mapping[str, object]) -> None:
        self.path, self.holder = path, dict(holder)
        who = ", ".join(f"{name} {value}" for name, value in self.holder.items())
        super().__init__(
            f"{path} is being written by another writer ({who or 'it has not said who it is'}); "
            "close that one first, or deposit() through the inbox"
        )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.path, self.holder)


class StreamClosed(StreamError):
    """A stream or producer was used after it was closed."""


class StreamWriteError(StreamError):
    """The disk refused the bytes. What was confirmed is safe; what was not can be sent again."""


class StreamCorrupt(StreamError):
    """Bytes on disk are not what was written; `file` and `position` say where."""

    def __init__(self, file: str, position: int, problem: str) -> None:
        self.file, self.position, self.problem = file, position, problem
        super().__init__(
            f"{file}: {problem} at byte {position}; `headgate stream verify` says what is affected"
        )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.file, self.position, self.problem)


class StreamOptionsError(StreamError, ValueError):
    """An option of a stream has a value that cannot be used."""


class RoutingError(HeadgateError):
    """Something is wrong with an exchange, a queue or a binding."""


class UnknownExchange(RoutingError, LookupError):
    """No exchange has that name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"there is no exchange {name!r}; declare it first")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.name,)


class UnknownQueue(RoutingError, LookupError):
    """No queue has that name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"there is no queue {name!r}; declare it first")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.name,)


class NotPermitted(RoutingError):
    """The exchange or the name is reserved; nothing was changed."""


class NotEquivalent(RoutingError, ValueError):
    """It was declared before with a different `attribute`."""

    def __init__(self, what: str, attribute: str, declared: object, given: object) -> None:
        self.what, self.attribute, self.declared, self.given = what, attribute, declared, given
        super().__init__(
            f"{what} was declared with {attribute} = {declared!r}, not {given!r}; "
            "declare it the same way, or delete it first"
        )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.what, self.attribute, self.declared, self.given)


class DeclarationRefused(RoutingError, ValueError):
    """An exchange cannot be declared like that."""


class BindingRefused(RoutingError, ValueError):
    """A binding's key, arguments or filter cannot be used."""


class TopologyError(RoutingError, ValueError):
    """A file of definitions cannot be read; says which entry and why."""


class QueueError(HeadgateError):
    """Something is wrong with a queue or its database."""


class QueueNotFound(QueueError):
    """There is no queue or subscription of that name."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"there is no queue or subscription {name!r}; create it first")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.name,)


class QueueOptionsError(QueueError, ValueError):
    """An option of a queue has a value that cannot be used."""


class StaleLease(QueueError):
    """The lease is over: the message was or will be given to somebody else, or it is gone."""

    def __init__(self, queue: str, ids: tuple[int, ...], verb: str) -> None:
        self.queue, self.ids, self.verb = queue, ids, verb
        which = f"message {ids[0]}" if len(ids) == 1 else f"{len(ids)} messages"
        super().__init__(
            f"cannot {verb} {which} of {queue!r}: the lease is over, and it was given to another consumer, or settled "
            "or purged already; ask for a longer lease, or extend it in time"
        )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.queue, self.ids, self.verb)


class SchemaTooNew(QueueError):
    """The tables were made by a newer Headgate."""


class DatabaseUnavailable(QueueError):
    """The database cannot be reached. Nothing of the operation was done, unless it says otherwise."""


class DatabaseFull(QueueError):
    """The disk refused the bytes. What was confirmed is safe."""


class DatabaseClosed(QueueError):
    """A database was used after it was closed."""


class PipelineError(HeadgateError, ValueError):
    """A pipeline file cannot be run as it is; `problems` are all that were found, each with its place."""

    def __init__(self, file: str, problems: tuple[str, ...]) -> None:
        self.file, self.problems = file, problems
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        listed = "\n".join("  " + problem.replace("\n", "\n    ") for problem in problems)
        super().__init__(f"{file}: {count}\n{listed}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.file, self.problems)


class SparkError(HeadgateError):
    """Something is wrong with what Spark is asked to do."""


class SparkOptionsError(SparkError, ValueError):
    """An option of `format("headgate")` is unknown or has a value that cannot be used."""


class NoQueues(SparkOptionsError):
    """The database that is named holds no queues yet."""


class SparkSchemaError(SparkError, ValueError):
    """A column's type cannot hold what the column stands for; `column` names it."""

    def __init__(self, column: str, problem: str) -> None:
        self.column, self.problem = column, problem
        super().__init__(f"column {column!r}: {problem}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.column, self.problem)


class StagingError(SparkError):
    """A staged file, or the folder for it, is not where the driver and the executors both see it."""


class DataLost(SparkError):
    """Messages that a query has yet to read are gone: retention dropped them first."""


class JavaNotFound(HeadgateError):
    """No Java runtime that Spark can use was found."""


class ServerNotFound(HeadgateError):
    """No PostgreSQL server answers, and none could be started."""


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
