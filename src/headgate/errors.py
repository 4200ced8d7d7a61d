"""All errors that Headgate raises on purpose. A message says what is wrong, where, and what to do.

HeadgateError
├── FilterError (ValueError)        something is wrong with a filter
│   ├── FilterSyntaxError           the text does not parse; has line, column and what was expected
│   ├── FilterLimitError            too long, too many tokens, too deep
│   └── FilterTypeError (TypeError)  a node cannot be built from that kind of value
├── TopicPatternError (ValueError)  a topic pattern cannot be used
├── InvalidMessage (ValueError)     a message cannot be published as it is
├── SettingsError (ValueError)      a setting has a value that cannot be used
├── CannotListen                    a server cannot listen on its address
├── CasesError (ValueError)         a table of filter cases cannot be read
├── StreamError                     something is wrong with a stream
│   ├── StreamNotFound              there is no stream in that directory
│   ├── StreamExists                there is a stream in that directory already
│   ├── StreamLocked                another writer has it open; names the holder
│   ├── StreamClosed                a stream or producer was used after it was closed
│   ├── StreamBusy                  too many messages wait to be stored
│   ├── StreamWriteError            the disk refused the bytes; nothing confirmed is lost
│   ├── StreamCorrupt               bytes on disk are not what was written; names file, position and offsets
│   ├── PositionLost                a reader is at an offset that the stream does not have (any more); names those it has
│   └── StreamOptionsError (ValueError)  an option cannot be used
├── RoutingError                    something is wrong with an exchange, a queue or a binding
│   ├── UnknownExchange (LookupError)  no exchange has that name
│   ├── UnknownQueue (LookupError)  no queue has that name
│   ├── NotPermitted                the exchange or the name is reserved
│   ├── NotEquivalent (ValueError)  an exchange or queue was declared before with other attributes
│   ├── DeclarationRefused (ValueError)  an exchange of that kind cannot be declared
│   ├── BindingRefused (ValueError)  a binding's key, arguments or filter cannot be used
│   └── TopologyError (ValueError)  a file of definitions cannot be read; says which entry and why
├── QueueError                      something is wrong with a queue or its database
│   ├── QueueNotFound               there is no queue or subscription of that name
│   ├── QueueOptionsError (ValueError)   an option of a queue cannot be used
│   ├── StaleLease                  the lease has ended and the message may belong to another consumer
│   ├── SchemaTooNew                a newer Headgate made these tables
│   ├── DatabaseNotFound            the database is not there, or holds no queues
│   ├── DatabaseUnavailable         the database cannot be reached; try again
│   ├── DatabaseFull                the disk refused the bytes; nothing confirmed is lost
│   └── DatabaseClosed              a database was used after it was closed
├── StoreError                      something is wrong with the files of a broker
│   ├── StoreCorrupt                a file is not what a broker wrote
│   ├── StoreLocked                 another broker uses the directory; names the holder
│   └── StoreTooNew                 a newer Headgate wrote it
├── BrokerUnreachable               no broker answers at an address, or the connection to it broke
├── PeerClosed                      a broker closed the connection or channel; has its reply code
├── PipelineError (ValueError)      a pipeline file cannot be run; lists every problem with its place
├── SparkError                      something is wrong with a Spark source, sink or job
│   ├── SparkOptionsError (ValueError)  an option of format("headgate") is unknown or cannot be used
│   │   └── NoQueues                 the database that is named holds no queues yet
│   ├── SparkSchemaError (ValueError)  a column has a type that cannot hold its field
│   ├── StagingError                a staged file or its folder cannot be seen by both the driver and the executors
│   ├── CheckpointLocked            another driver runs the query of this checkpoint; names the holder
│   └── DataLost                    retention deleted messages that a query has not read yet
├── JavaNotFound                    no Java runtime that Spark can use
├── ServerNotFound                  no PostgreSQL server answers
└── MissingExtra (ImportError)      an optional part is not installed; has the pip line that installs it
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence


class HeadgateError(Exception):
    """The root: catch this to catch every error that Headgate raises on purpose."""


class FilterError(HeadgateError, ValueError):
    """Something is wrong with a filter."""


class FilterSyntaxError(FilterError):
    """The text of a filter does not parse. Prints the line with a caret under the column."""

    def __init__(self, problem: str, text: str, at: int, expected: tuple[str, ...] = ()) -> None:
        self.problem, self.text, self.at, self.expected = problem, text, at, expected
        self.line = text.count("\n", 0, at) + 1
        self.column = at - text.rfind("\n", 0, at)
        hint = f"; expected {_join_words(expected)}" if expected else ""
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
    """A filter node cannot be built from that kind of value."""


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


class CannotListen(HeadgateError):
    """A server cannot listen on an address, for example because another one uses its port."""

    def __init__(self, host: str, port: int, reason: str, advice: str) -> None:
        self.host, self.port, self.reason, self.advice = host, port, reason, advice
        shown = f"[{host}]" if ":" in host else host  # IPv6
        super().__init__(f"cannot listen on {shown}:{port}: {reason}; {advice}")

    @classmethod
    def because(cls, problem: OSError, host: str, port: int, advice: str) -> CannotListen:
        """Return the error for what the operating system says; asyncio repeats the address in its text."""
        number = problem.errno or 0
        reason = os.strerror(number) if number > 0 else problem.strerror or str(problem)
        return cls(host, port, reason, advice)

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.host, self.port, self.reason, self.advice)


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
            f"{path} has another writer ({who or 'unknown'}); "
            "close that one first, or deposit() through the inbox"
        )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.path, self.holder)


class StreamClosed(StreamError):
    """A stream or producer was used after it was closed."""


class StreamBusy(StreamError):
    """More messages wait to be stored than a producer accepts without waiting."""


class StreamWriteError(StreamError):
    """The disk refused the bytes. Confirmed messages are safe; others can be published again."""


class StreamCorrupt(StreamError):
    """Bytes on disk are not those that were written, or a file is missing; `file` and `position` say where.

    `offsets` are those that cannot be read because of it, as far as they are known: pairs of the first and the last
    of each run. `messages` is their number; of scattered offsets only the bounds may be known.
    """

    def __init__(
        self,
        file: str,
        position: int | None,
        problem: str,
        offsets: Sequence[tuple[int, int]] = (),
        messages: int | None = None,
    ) -> None:
        self.file, self.position, self.problem, self.offsets = (
            file,
            position,
            problem,
            tuple(offsets),
        )
        self._covered = sum(last - first + 1 for first, last in self.offsets)
        self.messages = self._covered if messages is None else messages
        where = "" if position is None else f" at byte {position}"
        super().__init__(
            f"{file}: {problem}{where}{self.affected}; `headgate stream verify` says what is damaged, "
            'with --repair it saves the rest; on_corrupt="skip" reads past it'
        )

    @property
    def affected(self) -> str:
        """The offsets in words; empty when they are not known."""
        if not self.offsets:
            return ""
        if self.messages < self._covered:
            first, last = self.offsets[0][0], self.offsets[-1][1]
            return f"; {self.messages:,} of the offsets {first} to {last} cannot be read"
        runs = [
            f"{first} to {last}" if first < last else f"{first}" for first, last in self.offsets
        ]
        more = f" and {len(runs) - 5} more runs" if len(runs) > 5 else ""
        return f"; offsets {', '.join(runs[:5])}{more} cannot be read"

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.file, self.position, self.problem, self.offsets, self.messages)


class PositionLost(StreamError):
    """A reader is at an offset that is not, or no longer, in [`first_offset`, `next_offset`]."""

    def __init__(self, who: str, position: int, first_offset: int, next_offset: int) -> None:
        self.who, self.position = who, position
        self.first_offset, self.next_offset = first_offset, next_offset
        if position < first_offset:
            lost = f"offsets {position} to {first_offset - 1} were deleted by retention before they were read"
        else:
            lost = (
                f"the stream ends at {next_offset}: no message had this offset yet, or the last ones were lost in a "
                'power failure (fsync is not "always"), or the stream was deleted and created again'
            )
        super().__init__(
            f"{who} is at offset {position}, but {lost}. "
            'Continue with the oldest message: on_lost="first" (--on-lost first), '
            'or with the next one to arrive: on_lost="next" (--on-lost next)'
        )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.who, self.position, self.first_offset, self.next_offset)


class StreamOptionsError(StreamError, ValueError):
    """An option of a stream has a value that cannot be used."""


class RoutingError(HeadgateError):
    """Something is wrong with an exchange, a queue or a binding."""


class UnknownExchange(RoutingError, LookupError):
    """No exchange has that name."""

    def __init__(self, name: str, nearest: str | None = None) -> None:
        self.name, self.nearest = name, nearest
        hint = "declare it first" if nearest is None else f"did you mean {nearest!r}?"
        super().__init__(f"there is no exchange {name!r}; {hint}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.name, self.nearest)


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
    """An exchange or queue was declared before with another value of `attribute`."""

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

    def __init__(self, name: str, nearest: str | None = None) -> None:
        self.name, self.nearest = name, nearest
        hint = "create it first" if nearest is None else f"did you mean {nearest!r}?"
        super().__init__(f"there is no queue or subscription {name!r}; {hint}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.name, self.nearest)


class QueueOptionsError(QueueError, ValueError):
    """An option of a queue has a value that cannot be used."""


class StaleLease(QueueError):
    """The lease has ended: another consumer has the message or may claim it, or it is gone."""

    def __init__(self, queue: str, ids: tuple[int, ...], verb: str) -> None:
        self.queue, self.ids, self.verb = queue, ids, verb
        which = f"message {ids[0]}" if len(ids) == 1 else f"{len(ids)} messages"
        super().__init__(
            f"cannot {verb} {which} of {queue!r}: the lease has ended, and another consumer has it, or it was settled "
            "or purged; use a longer lease, or extend it in time"
        )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.queue, self.ids, self.verb)


class SchemaTooNew(QueueError):
    """The tables were made by a newer Headgate; this one cannot use them."""


class DatabaseUnavailable(QueueError):
    """The database cannot be reached. The operation had no effect, unless the message says otherwise."""


class DatabaseNotFound(QueueError):
    """The database does not exist, or holds no queues; it was not created."""


class DatabaseFull(QueueError):
    """The disk refused the bytes. Confirmed messages are safe."""


class DatabaseClosed(QueueError):
    """A database was used after it was closed."""


class StoreError(HeadgateError):
    """Something is wrong with the files of a broker."""


class StoreCorrupt(StoreError):
    """A file is not what a broker wrote."""

    def __init__(self, path: object, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(
            f"{path} {problem}; `headgate verify DIR --repair` saves what can be read, `headgate restore` brings back "
            "a backup"
        )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.path, self.problem)


class StoreLocked(StoreError):
    """Another broker uses the directory."""

    def __init__(self, path: object, holder: str = "another process") -> None:
        self.path, self.holder = path, holder
        super().__init__(f"{path} is in use by {holder}; stop it, or give another directory")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.path, self.holder)


class StoreTooNew(StoreError):
    """A newer Headgate wrote the file."""

    def __init__(self, path: object, found: int, known: int) -> None:
        self.path, self.found, self.known = path, found, known
        super().__init__(
            f"{path} has format {found}, and this Headgate knows up to {known}; upgrade Headgate"
        )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.path, self.found, self.known)


class BrokerUnreachable(HeadgateError):
    """No broker answers at an address, or the connection to it broke."""

    def __init__(self, address: str, problem: str) -> None:
        self.address, self.problem = address, problem
        super().__init__(f"the broker at {address} cannot be reached: {problem or 'no answer'}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.address, self.problem)


class PeerClosed(HeadgateError):
    """A broker closed the connection or the channel."""

    def __init__(self, code: int, text: str) -> None:
        self.code, self.text = code, text
        super().__init__(f"the broker closed the connection: {code} {text}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.code, self.text)


class PipelineError(HeadgateError, ValueError):
    """A pipeline file cannot be run; `problems` lists all that were found, each with its place."""

    def __init__(self, file: str, problems: tuple[str, ...]) -> None:
        self.file, self.problems = file, problems
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        listed = "\n".join("  " + problem.replace("\n", "\n    ") for problem in problems)
        super().__init__(f"{file}: {count}\n{listed}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.file, self.problems)


class SparkError(HeadgateError):
    """Something is wrong with a Spark source, sink or job."""


class SparkOptionsError(SparkError, ValueError):
    """An option of `format("headgate")` is unknown or has a value that cannot be used."""


class NoQueues(SparkOptionsError):
    """The database holds no queues yet."""


class SparkSchemaError(SparkError, ValueError):
    """The type of a column cannot hold its field; `column` names it."""

    def __init__(self, column: str, problem: str) -> None:
        self.column, self.problem = column, problem
        super().__init__(f"column {column!r}: {problem}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.column, self.problem)


class StagingError(SparkError):
    """A staged file or its folder cannot be seen by both the driver and the executors."""


class CheckpointLocked(SparkError):
    """Another driver runs the query of this checkpoint; `holder` says who: pid, host, since."""

    def __init__(self, checkpoint: str, holder: Mapping[str, object]) -> None:
        self.checkpoint, self.holder = checkpoint, dict(holder)
        known = [f"{name} {holder[name]}" for name in ("pid", "host", "since") if name in holder]
        super().__init__(
            f"the checkpoint {checkpoint} is in use by another driver "
            f"({', '.join(known) or 'unknown'}); stop that driver first, or set another checkpoint for this pipeline"
        )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.checkpoint, self.holder)


class DataLost(SparkError):
    """Messages that a query has not read yet are gone: retention deleted them first."""


class JavaNotFound(HeadgateError):
    """No Java runtime that Spark can use was found."""


class ServerNotFound(HeadgateError):
    """No PostgreSQL server answers, and none could be started."""


class MissingExtra(HeadgateError, ImportError):
    """An optional part of Headgate is not installed; the message has the pip line."""

    def __init__(self, extra: str, purpose: str) -> None:
        self.extra, self.purpose = extra, purpose
        super().__init__(
            f"{purpose} needs an extra: pip install 'headgate[{extra}]' (in a clone: pip install -e '.[{extra}]')"
        )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.extra, self.purpose)


def _join_words(expected: tuple[str, ...]) -> str:
    if len(expected) == 1:
        return expected[0]
    return ", ".join(expected[:-1]) + " or " + expected[-1]


def _caret(text: str, at: int) -> str:
    """Show the line around `at`, cut to a readable width, with a caret under it."""
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    left, right = max(start, at - 60), min(end, at + 40)
    shown = "".join(c if c.isprintable() else " " for c in text[left:right])
    lead, tail = ("…" if left > start else ""), ("…" if right < end else "")
    return f"  {lead}{shown}{tail}\n  {' ' * (len(lead) + at - left)}^"
