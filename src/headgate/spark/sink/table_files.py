"""Messages -> Parquet files with the columns of a table's layout, one or more for each of its folders.

A folder is named as Hive, Spark, DuckDB and pyarrow name it: region=EU/day=2026-11-18. The files lack the columns in its name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headgate.errors import SparkOptionsError
from headgate.files import sync_directory
from headgate.pipelines import TableLayout
from headgate.spark.schema import FIELD_TYPES, TEXTS, VALUES, SchemaColumn, table_columns
from headgate.spark.source.projection import Projection

SUFFIX: Final = ".parquet"
NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
OPEN_FILES: Final = 64  # at once; then the one that was opened first is finished
MOST_FOLDERS: Final = 4096  # of one task
_TIMESTAMP: Final = "timestamp"
_UNITS: Final = {
    f"day({_TIMESTAMP})": ("day", "{:%Y-%m-%d}"),
    f"hour({_TIMESTAMP})": ("hour", "{:%Y-%m-%d-%H}"),
}
# What Spark escapes in names of folders. Other letters are left as they are: Spark reads %C3%A9 as two letters.
_ESCAPED: Final = re.compile(r"[\x00-\x1f\"#%'*/:=?\\\x7f{\[\]^]")
_NAME_BYTES: Final = 255
_KIND: Final = pa.struct({"s": pa.string(), "i": pa.int64(), "f": pa.float64(), "b": pa.bool_()})
_ARROW_TYPES: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "smallint": pa.int16(),
    "tinyint": pa.int8(),
    "double": pa.float64(),
    "float": pa.float32(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
    VALUES: pa.map_(pa.string(), _KIND),
    TEXTS: pa.map_(pa.string(), pa.string()),
}
# All parts of a message: the columns of a table whose layout names none.
ALL_PARTS: Final = (
    *((name, types[0]) for name, types in FIELD_TYPES.items()),
    ("headers", VALUES),
    ("properties", VALUES),
    ("payload", "binary"),
)


class TableFile(NamedTuple):
    """A file that was written, and the folder of the table that it belongs in."""

    folder: str
    path: Path
    rows: int


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A layout with the meaning and the Arrow type of each of its columns."""

    layout: TableLayout
    columns: tuple[SchemaColumn, ...]
    arrow: pa.Schema

    def stored(self) -> pa.Schema:
        """The columns in the files: without those of the folders."""
        folders = self.layout.partition_names()
        return pa.schema([field for field in self.arrow if field.name not in folders])


def table_schema(layout: TableLayout) -> TableSchema:
    """The schema of a layout; refuses columns that messages cannot fill."""
    columns = table_columns(layout.columns or ALL_PARTS)
    arrow = pa.schema([(column.name, _ARROW_TYPES[column.type]) for column in columns])
    return TableSchema(layout, columns, arrow)


def write_files(
    schema: TableSchema, directory: Path, batches: Iterable[pa.RecordBatch]
) -> list[TableFile]:
    """Write batches of stream columns to durable files in a directory, in order within each folder."""
    files = _FolderFiles(directory, schema.stored())
    try:
        for folder, rows in _split_by_folder(schema, batches):
            files.write(folder, rows)
        return files.finish()
    except BaseException:
        files.discard()
        raise


class _FolderFiles:
    """Files that are being written, at most one for each folder at a time."""

    def __init__(self, directory: Path, schema: pa.Schema) -> None:
        self._directory, self._schema = directory, schema
        self._open: dict[str, tuple[Path, pq.ParquetWriter]] = {}
        self._rows: dict[Path, int] = {}
        self._folders: dict[Path, str] = {}

    def write(self, folder: str, rows: pa.RecordBatch) -> None:
        path, writer = self._open.get(folder) or self._begin(folder)
        writer.write_batch(rows.select(self._schema.names))
        self._rows[path] += rows.num_rows

    def _begin(self, folder: str) -> tuple[Path, pq.ParquetWriter]:
        if len(self._rows) >= MOST_FOLDERS:
            raise SparkOptionsError(
                f"partition_by: one task got rows of more than {MOST_FOLDERS:,} folders ({folder} is the next); partition by "
                "columns with fewer values"
            )
        if len(self._open) >= OPEN_FILES:
            self._end(next(iter(self._open)))
        path = self._directory / f"{uuid4().hex}{SUFFIX}"
        self._rows[path], self._folders[path] = 0, folder
        self._open[folder] = path, pq.ParquetWriter(path, self._schema, compression="zstd")
        return self._open[folder]

    def _end(self, folder: str) -> None:
        path, writer = self._open.pop(folder)
        writer.close()
        sync_file(path)

    def finish(self) -> list[TableFile]:
        for folder in list(self._open):
            self._end(folder)
        sync_directory(self._directory)
        return [TableFile(self._folders[path], path, rows) for path, rows in self._rows.items()]

    def discard(self) -> None:
        for _, writer in self._open.values():
            writer.close()
        for path in self._rows:
            path.unlink(missing_ok=True)


def sync_file(path: Path) -> None:
    """Make the content of a finished file durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# ---- folders -----------------------------------------------------------------------------------------


def _split_by_folder(
    schema: TableSchema, batches: Iterable[pa.RecordBatch]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    projection = Projection(schema.columns, schema.arrow)
    if not schema.layout.partition_by:
        yield from (("", projection.batch(batch)) for batch in batches)
        return
    names, moments = schema.layout.partition_names(), Projection(*_moments())
    for batch in batches:
        rows = projection.batch(batch)
        levels = [
            _level(name, entry, rows, batch, moments)
            for name, entry in zip(names, schema.layout.partition_by, strict=True)
        ]
        yield from _groups(levels, rows)


def _moments() -> tuple[tuple[SchemaColumn, ...], pa.Schema]:
    columns = table_columns([(_TIMESTAMP, _TIMESTAMP)])
    return columns, pa.schema([(_TIMESTAMP, _ARROW_TYPES[_TIMESTAMP])])


class _Level(NamedTuple):
    """One level of folders: the names of its folders, and which of them each row belongs in."""

    folders: list[str]
    codes: npt.NDArray[np.int64]


def _level(
    name: str, entry: str, rows: pa.RecordBatch, batch: pa.RecordBatch, moments: Projection
) -> _Level:
    if entry in _UNITS:
        unit, form = _UNITS[entry]
        times = moments.batch(batch).column(0).cast(pa.timestamp("us"))
        values = pc.dictionary_encode(pc.floor_temporal(times, unit=unit), null_encoding="encode")
        texts = [
            None if each is None else form.format(each) for each in values.dictionary.to_pylist()
        ]
    else:
        values = pc.dictionary_encode(rows.column(entry), null_encoding="encode")
        texts = [_text_of(each) for each in values.dictionary.to_pylist()]
    return _Level([folder_name(name, text) for text in texts], values.indices.to_numpy())


def _text_of(value: str | int | bool | None) -> str | None:
    if value is None or value == "":  # Spark reads and writes both as null
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _groups(levels: list[_Level], rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each folder, in their order."""
    codes: npt.NDArray[np.int64] = np.zeros(rows.num_rows, np.int64)
    for level in levels:
        _, codes = np.unique(codes * len(level.folders) + level.codes, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    borders = np.flatnonzero(np.diff(codes[order], prepend=-1, append=-1))
    for start, end in pairwise(borders):
        first = int(order[start])
        folder = "/".join(level.folders[level.codes[first]] for level in levels)
        yield folder, rows.take(pa.array(order[start:end]))


def folder_name(name: str, value: str | None) -> str:
    """The folder of one value, as Hive writes it: region=EU."""
    text = f"{_escape(name)}={NULL_FOLDER if value is None else _escape(value)}"
    if len(text.encode()) > _NAME_BYTES:
        raise SparkOptionsError(
            f"partition_by: {name!r} has the value {value!r:.40}…, too long for the name of a folder; partition by another "
            "column"
        )
    return text


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda letter: f"%{ord(letter[0]):02X}", text)
