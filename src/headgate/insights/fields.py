"""Which headers and properties the messages of a stream or queue have, and of which kinds, as far as that is cheap to know.

A stream is read from the newest messages back, until every name in the filter was found; of a queue, the first messages
and the declared headers are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headgate.columns import parse_column_name
from headgate.filters import (
    KIND_OF,
    SYS_KINDS,
    TRUE,
    Compare,
    Field,
    Filter,
    In,
    compared_kinds,
    fields_read,
    kind_class,
    likely_mistakes,
    operand_text,
    parse,
    walk,
)
from headgate.message import OPAQUE, HeaderValue, Message
from headgate.streams import segment_files
from headgate.streams.read import HeldColumns, held_columns

if TYPE_CHECKING:
    from headgate.queues import Queue

MOST_PARTS: Final = 256  # hot chunks and sealed segments that are asked
MOST_MESSAGES: Final = 256  # of a queue
_KINDS: Final = {"string": "text", "number": "a number", "bool": "TRUE or FALSE"}


@dataclass(frozen=True, slots=True)
class KnownFields:
    """The fields of some messages, each with the kinds it has there: string, number, bool; none where that is not known."""

    of: str  # which messages: "orders", "the newest 5,000 messages of orders"
    kinds: Mapping[Field, frozenset[str]]

    @property
    def headers(self) -> list[str]:
        return sorted(field.name for field in self.kinds if field.scope == "header")


def stream_fields(stream: Path, asked: Filter | None = None) -> KnownFields:
    """Find the fields of a stream's messages; with a filter, only until everything that it names was found."""
    missing = None if asked is None else _wanted(asked)
    kinds: dict[Field, set[str]] = {}
    first = end = None
    for held in islice(held_columns(stream), MOST_PARTS):
        first, end = held.first_offset, end or held.next_offset
        _add_columns(kinds, held)
        if missing is not None and _all_met(missing, kinds):
            break
    if first is None or end is None or first <= segment_files(stream)[0].first_offset:
        return KnownFields(stream.name, _frozen(kinds))
    return KnownFields(f"the newest {end - first:,} messages of {stream.name}", _frozen(kinds))


def _add_columns(kinds: dict[Field, set[str]], held: HeldColumns) -> None:
    for name in held.columns:
        field, kind = parse_column_name(name)
        if field is not None:
            found = kinds.setdefault(field, set())
            if kind is not None and kind != "opaque":
                found.add(kind_class(kind))
    for name in held.overflowed:
        kinds.setdefault(Field("header", name), set()).update(_KINDS)  # may be any


def queue_fields(queue: Queue) -> KnownFields:
    """Find the fields of the first messages of a queue, and the headers that it declares."""
    kinds: dict[Field, set[str]] = {
        Field("header", name): set() for name in queue.info.options.filter_headers
    }
    count = 0
    for snapshot in islice(queue.browse(), MOST_MESSAGES):
        count += 1
        _add_message(kinds, snapshot.message)
    of = queue.name if count < MOST_MESSAGES else f"the first {count} messages of {queue.name}"
    return KnownFields(of, _frozen(kinds))


def _add_message(kinds: dict[Field, set[str]], message: Message) -> None:
    for scope, values in (("header", message.headers), ("property", message.properties)):
        for name, value in values.items():
            found = kinds.setdefault(Field(scope, name), set())  # type: ignore[arg-type]
            found.update(_kind_classes(value))


def _kind_classes(value: HeaderValue) -> Iterator[str]:
    if value is not OPAQUE:
        yield kind_class(KIND_OF[type(value)])


def _frozen(kinds: Mapping[Field, set[str]]) -> dict[Field, frozenset[str]]:
    return {field: frozenset(found) for field, found in kinds.items()}


# ---- warnings ----------------------------------------------------------------------------------------


def warn_of_filter(
    text: str, *, stream: Path | None = None, queue: Queue | None = None
) -> list[str]:
    """Warn of a filter that is probably a mistake, or that the messages of a stream or queue can hardly match."""
    tree = parse(text)
    if tree == TRUE:
        return []
    warnings = list(likely_mistakes(tree))
    if stream is not None:
        warnings += warn_of_fields(tree, stream_fields(stream, tree))
    if queue is not None:
        warnings += warn_of_fields(tree, queue_fields(queue))
    return warnings


def warn_of_fields(tree: Filter, known: KnownFields) -> Iterator[str]:
    """Warn of names that no message has, with the nearest known name, and of comparisons of different kinds."""
    if not known.kinds:
        return
    named = (node for node in sorted(fields_read(tree), key=str) if node.scope != "sys")
    for field in named:
        if field not in known.kinds:
            what = "header" if field.scope == "header" else "property"
            advice = _nearest(field, known) or _quotes(field, tree)
            yield f"no message of {known.of} has the {what} {field.name}{advice}"
    for field, kind in sorted(set(compared_kinds(tree)), key=str):
        held = known.kinds.get(field, frozenset())
        if held and kind not in held and field.scope != "sys":
            kinds = " or ".join(sorted(_KINDS[each] for each in held))
            yield (
                f"{operand_text(field)} is compared with {_KINDS[kind]}, but in {known.of} it is {kinds}: "
                "that comparison is never TRUE"
            )


def _nearest(field: Field, known: KnownFields) -> str:
    names = {each.name for each in known.kinds if each.scope == field.scope}
    if field.scope == "header" and Field("property", field.name) in known.kinds:
        return f"; the property of that name is p.{field.name}"
    if field.scope == "header" and field.name.lower() in SYS_KINDS:
        return f"; the {field.name.lower()} of a message is sys.{field.name.lower()}"
    folded = {name.lower(): name for name in sorted(names)}
    close = get_close_matches(field.name.lower(), folded, 1)
    if not close:
        return ""
    return f"; did you mean {operand_text(Field(field.scope, folded[close[0]]))}?"


def _quotes(field: Field, tree: Filter) -> str:
    """Advice about a name that stands where a value does: `region = EU` compares two headers."""
    for node in walk(tree):
        match node:
            case Compare(left=Field(), right=right) if right == field:
                return f"; a text is written in quotes: '{field.name}'"
            case In(items=items) if field in items:
                return f"; a text is written in quotes: '{field.name}'"
    return ""


def _wanted(tree: Filter) -> dict[Field, set[str]]:
    wanted: dict[Field, set[str]] = {f: set() for f in fields_read(tree) if f.scope != "sys"}
    for field, kind in compared_kinds(tree):
        if field in wanted:
            wanted[field].add(kind)
    return wanted


def _all_met(wanted: Mapping[Field, Iterable[str]], kinds: Mapping[Field, set[str]]) -> bool:
    return all(field in kinds and kinds[field].issuperset(met) for field, met in wanted.items())
