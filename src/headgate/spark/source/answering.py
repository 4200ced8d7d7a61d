"""A reader that takes over what it can of Spark's own conditions, where Spark keeps them apart for each scan.

PySpark up to 4.3 keeps what a reader took over, and the plan made with it, on the source, which all scans of a DataFrame
or view share: a second use of it would be answered with the conditions of the first. There the reader takes over none,
Spark asks them of the rows it gets, and the option `filter` is the way to have rows left out before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader
from pyspark.version import __version__

from headgate.filters import And, Filter, joined
from headgate.spark.pushdown import Pushed, translate
from headgate.spark.schema import Column
from headgate.spark.source.projection import Projection

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter as SparkFilter

FIRST_WITH_FILTERS_PER_SCAN: Final[tuple[int, int] | None] = None  # of the versions of PySpark


def keeps_filters_per_scan(
    version: str = __version__, first: tuple[int, int] | None = FIRST_WITH_FILTERS_PER_SCAN
) -> bool:
    """Whether that version of PySpark asks each scan of a DataFrame only the conditions pushed into that scan."""
    major, minor, *_ = version.split(".")
    return first is not None and (int(major), int(minor)) >= first


class AnsweringReader(DataSourceReader):
    """Fills these columns. `UTC()` in a filter is `now_us`."""

    def __init__(self, columns: Sequence[Column], arrow: pa.Schema, now_us: int) -> None:
        self.columns, self.arrow, self.now_us = columns, arrow, now_us
        self.pushed = Pushed()
        if keeps_filters_per_scan():
            self.pushFilters = Offer(self)  # type: ignore[method-assign]

    def take(self, filters: Iterable[SparkFilter]) -> Iterator[SparkFilter]:
        """Take over what can be answered here; gives back the rest."""
        known = {column.name: column for column in self.columns}
        for filter in filters:
            taken = translate(filter, known)
            if taken is None:
                yield filter
            else:
                self.pushed = self.pushed.and_also(taken)

    def whole(self, asked: Filter) -> Filter:
        """What was asked for, and what Spark asks on top of it."""
        return joined(And, (asked, self.pushed.filter))

    def projection(self) -> Projection:
        return Projection(self.columns, self.arrow, self.pushed.required)


class Offer:
    """The reader's `pushFilters`.

    Spark refuses a reader with a method of that name while `spark.sql.python.filterPushdown.enabled` is off, and a
    reader cannot know whether it is. To Spark this looks like the method that was never overridden.
    """

    __func__: Final = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: AnsweringReader) -> None:
        self.reader = reader

    def __call__(self, filters: list[SparkFilter]) -> Iterable[SparkFilter]:
        return list(self.reader.take(filters))
