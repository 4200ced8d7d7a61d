"""Filters answered by Spark: dozens of filters over all their messages in one query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headgate.check.engines import Question
from headgate.filters import KIND_OF, SYS_KINDS, Filter, Kind
from headgate.message import HeaderValue, Message
from headgate.spark import command_session, map_views, running_session, stop_session, to_column

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILTERS_PER_QUERY: Final = 100
_TYPES: Final[dict[Kind, pa.DataType]] = {
    "string": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
}
_HEADERS: Final = pa.map_(pa.string(), pa.struct([(kind[0], _TYPES[kind]) for kind in _TYPES]))
_SCHEMA: Final = pa.schema(
    [
        ("row", pa.int64()),
        *((name, _TYPES[kind]) for name, kind in SYS_KINDS.items()),
        ("headers", _HEADERS),
        ("properties", _HEADERS),
    ]
)


class SparkCheck:
    """Answers on the session that is passed, else on the running one, else on its own until it is closed."""

    name = "spark"

    def __init__(self, session: SparkSession | None = None) -> None:
        self._owned = session is None and running_session() is None
        self._spark = _short_session() if session is None else session

    def __enter__(self) -> SparkCheck:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._owned:
            stop_session(self._spark)
            self._owned = False

    def answer(self, questions: Sequence[Question]) -> list[bool]:
        """Answer the questions, in their order."""
        places: dict[Filter, list[int]] = {}
        for place, question in enumerate(questions):
            places.setdefault(question.filter, []).append(place)
        answers: dict[int, bool] = {}
        for filters in _slices(tuple(places), _FILTERS_PER_QUERY):
            asked = [questions[place].message for node in filters for place in places[node]]
            matched = self._match(filters, {id(message): message for message in asked})
            for n, node in enumerate(filters):
                answers |= {p: matched[id(questions[p].message)][n] for p in places[node]}
        return [answers[place] for place in range(len(questions))]

    def _match(
        self, filters: Sequence[Filter], messages: Mapping[int, Message]
    ) -> dict[int, Sequence[bool]]:
        """Find, for every message, which of the filters it matches."""
        resolve = map_views()
        columns = [to_column(node, resolve).alias(f"f{n}") for n, node in enumerate(filters)]
        frame = self._spark.createDataFrame(_table(messages.values()))
        keys = list(messages)
        return {keys[row[0]]: row[1:] for row in frame.select("row", *columns).collect()}


def _short_session() -> SparkSession:
    # It lives for seconds: optimising the JVM's code would cost more than it saves.
    options = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        # A filter with a sum of 32 values is compiled in a seventh of the time.
        "spark.sql.codegen.wholeStage": "false",
    }
    return command_session("headgate filter check", config=options)


def _slices(filters: Sequence[Filter], size: int) -> Iterator[Sequence[Filter]]:
    for at in range(0, len(filters), size):
        yield filters[at : at + size]


def _table(messages: Iterable[Message]) -> pa.Table:
    return pa.Table.from_pylist([_row(n, m) for n, m in enumerate(messages)], schema=_SCHEMA)


def _row(number: int, message: Message) -> dict[str, Any]:
    fields = {name: _of_kind(getattr(message, name), kind) for name, kind in SYS_KINDS.items()}
    return {
        "row": number,
        **fields,
        "headers": _entries(message.headers),
        "properties": _entries(message.properties),
    }


def _entries(headers: Mapping[str, HeaderValue]) -> list[tuple[str, dict[str, HeaderValue]]]:
    return [
        (name, {kind[0]: _of_kind(value, kind) for kind in _TYPES})
        for name, value in headers.items()
        if value is not None
    ]


def _of_kind(value: HeaderValue, kind: Kind) -> HeaderValue:
    return value if KIND_OF.get(type(value)) == kind else None
