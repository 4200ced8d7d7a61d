"""A folder of Parquet files that any engine can read: one schema for all of them, a few files for each batch.

    part-0000000007-0000-3f2a….parquet    batch 7 of a query, its first file
    _headgate/<query>.json                the manifest: the last batch of that query and the names of its files; written
                                          before they are moved, so that a repeated batch only completes the moves
    _headgate/<owner>/<uuid>.parquet      staged
    _headgate/lock                        held while a batch is committed: two writers may commit one transaction at
                                          the same time

Spark, pyarrow and other readers of a folder skip names that begin with _.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.errors import SparkOptionsError
from headgate.files import replace_file, sync_directory
from headgate.spark.schema import FIELD_TYPES, VALUES, SchemaColumn
from headgate.spark.sink.destination import BatchMark, Owner
from headgate.spark.sink.staging import (
    StagedPart,
    delete_files,
    delete_folder,
    delete_orphans,
    make_folder,
    missing_file,
)
from headgate.spark.source.projection import Projection
from headgate.streams.write import hold_lock, read_staged

OURS: Final = "_headgate"
LOCK_FILE: Final = "lock"
SUFFIX: Final = ".parquet"
_KIND: Final = pa.struct({"s": pa.string(), "i": pa.int64(), "f": pa.float64(), "b": pa.bool_()})
_MAP: Final = pa.map_(pa.string(), _KIND)
_FIELDS: Final = {name: types[0] for name, types in FIELD_TYPES.items()}
_ARROW_TYPES: Final = {
    "timestamp": pa.timestamp("us", "UTC"), "string": pa.string(), "int": pa.int32(),
}  # fmt: skip
SCHEMA: Final = pa.schema(
    {
        **{name: _ARROW_TYPES[type_] for name, type_ in _FIELDS.items()},
        "headers": _MAP,
        "properties": _MAP,
        "payload": pa.binary(),
    }
)
_COLUMNS: Final = (
    *(SchemaColumn(name, "system", type_) for name, type_ in _FIELDS.items()),
    SchemaColumn("headers", "values", VALUES),
    SchemaColumn("properties", "values", VALUES, scope="property"),
    SchemaColumn("payload", "system", "binary"),
)
PROJECTION: Final = Projection(_COLUMNS, SCHEMA)


@dataclass(frozen=True, slots=True)
class ParquetDestination:
    """A folder, created when there is none; a manifest there records the last batch of each query."""

    path: str
    owner: Owner

    @property
    def staging(self) -> str:
        return str(Path(self.path) / OURS / self.owner.name)

    def check(self) -> None:
        if Path(self.path).exists() and not Path(self.path).is_dir():
            raise SparkOptionsError(f"{self.path} is a file; name a folder for Parquet files")

    def open(self) -> None:
        self.check()
        make_folder(self.staging)

    def prepare(self, staged: StagedPart) -> StagedPart:
        """Convert the file to Parquet: executors do this, and not the driver."""
        path = Path(staged.file)
        if path.suffix == SUFFIX:
            return staged
        parquet = path.with_suffix(SUFFIX)
        _write(parquet, staged)
        path.unlink()
        return replace(staged, file=str(parquet), nbytes=parquet.stat().st_size)

    def commit(self, mark: BatchMark, staged: Sequence[StagedPart]) -> None:
        with hold_lock(Path(self.path) / OURS / LOCK_FILE):
            manifest = self._manifest(mark.query)
            last = _read_manifest(manifest)
            if last is not None:
                self._move(last)
            if staged and (last is None or mark.batch > last["batch"]):
                self._start_commit(manifest, mark, staged)
            else:
                delete_files(staged)

    def _start_commit(self, manifest: Path, mark: BatchMark, staged: Sequence[StagedPart]) -> None:
        for each in staged:
            if not Path(each.file).is_file():
                raise missing_file(each.file)
        names = [Path(each.file).relative_to(self.path) for each in staged]
        files = {str(name): _final_name(mark, n) for n, name in enumerate(names)}
        content = {"batch": mark.batch, "files": files}
        replace_file(manifest, json.dumps(content).encode())
        self._move(content)

    def _move(self, content: dict[str, Any]) -> None:
        """Move each file to its final name, unless it was moved before."""
        folder, moved = Path(self.path), False
        for name, final in content["files"].items():
            with suppress(FileNotFoundError):
                os.rename(folder / name, folder / final)
                moved = True
        if moved:
            sync_directory(folder)

    def _manifest(self, query: str) -> Path:
        return Path(self.path) / OURS / f"{quote(query, safe='')}.json"

    def _listed_files(self) -> set[Path]:
        """Files that started commits will move."""
        contents = map(_read_manifest, (Path(self.path) / OURS).glob("*.json"))
        return {
            Path(self.path) / name for content in contents if content for name in content["files"]
        }

    def discard(self, staged: Sequence[StagedPart]) -> None:
        delete_files(staged, self._listed_files())

    def collect_orphans(self) -> None:
        for suffix in (SUFFIX, ".arrow"):
            delete_orphans(self.staging, self._listed_files(), suffix)

    def leave(self) -> None:
        delete_folder(self.staging)


def _final_name(mark: BatchMark, number: int) -> str:
    return f"part-{mark.batch:010d}-{number:04d}-{quote(mark.query, safe='')}{SUFFIX}"


def _read_manifest(path: Path) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    return content


def _write(path: Path, staged: StagedPart) -> None:
    with path.open("xb") as file:
        with pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
            for batch in read_staged(Path(staged.file), staged.nbytes, staged.crc):
                writer.write_batch(PROJECTION.batch(batch))
        file.flush()
        os.fsync(file.fileno())
    sync_directory(path.parent)
