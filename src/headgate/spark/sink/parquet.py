"""A folder of Parquet files that any engine can read: a few files for each batch, or for each of its folders.

    part-0000000007-0000-3f2a….parquet    batch 7 of a query, its first file; below region=EU/ with `partition_by`
    _headgate/<query>.json                the manifest: the last batch of that query and the names of its files; written
                                          before they are moved, so that a repeated batch only completes the moves
    _headgate/partitions                  the columns that folders are named by
    _headgate/<owner>/<uuid>.parquet      staged
    _headgate/lock                        held while a batch is committed or files are merged: two writers may commit one
                                          transaction at the same time

Spark, pyarrow and other readers of a folder skip names that begin with _. The files of a batch are moved one after the
other, within milliseconds; each appears as a whole.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from headgate.errors import SparkOptionsError
from headgate.files import replace_file, sync_directory
from headgate.pipelines import TableLayout
from headgate.spark.sink.destination import BatchMark, Owner, new_owner
from headgate.spark.sink.staging import (
    StagedPart,
    delete_files,
    delete_folder,
    delete_orphans,
    make_folder,
    missing_file,
)
from headgate.spark.sink.table_compaction import (
    TARGET_BYTES,
    Merged,
    merge_files,
    merged_by,
    plan_merges,
    table_files,
)
from headgate.spark.sink.table_files import SUFFIX, table_schema, write_files
from headgate.streams.write import hold_lock, read_staged

OURS: Final = "_headgate"
LOCK_FILE: Final = "lock"
TABLE_FILE: Final = "partitions"  # without .json, with which the manifest of any query ends
_MERGING: Final = "merging"


@dataclass(frozen=True, slots=True)
class ParquetDestination:
    """A folder, created when there is none; a manifest there records the last batch of each query."""

    path: str
    owner: Owner
    layout: TableLayout = field(default=TableLayout())

    @property
    def staging(self) -> str:
        return str(self._ours / self.owner.name)

    @property
    def _ours(self) -> Path:
        return Path(self.path) / OURS

    def check(self) -> None:
        if Path(self.path).exists() and not Path(self.path).is_dir():
            raise SparkOptionsError(f"{self.path} is a file; name a folder for Parquet files")
        table_schema(self.layout)
        recorded = recorded_partitions(Path(self.path))
        if recorded is not None and recorded != self.layout.partition_by:
            was = f"partition_by = {json.dumps(list(recorded))}" if recorded else "no partition_by"
            raise SparkOptionsError(
                f"{self.path} has {was}, and readers cannot read two kinds of folders in one table; restore it, or write to "
                "another folder"
            )

    def open(self) -> None:
        self.check()
        make_folder(self.staging)
        if self.layout.partition_by:
            content = {"partition_by": self.layout.partition_by}
            replace_file(self._ours / TABLE_FILE, json.dumps(content).encode())

    def prepare(self, staged: StagedPart) -> tuple[StagedPart, ...]:
        """Convert the file to Parquet files, one for each folder: executors do this, and not the driver."""
        path = Path(staged.file)
        if path.suffix == SUFFIX:
            return (staged,)
        batches = read_staged(path, staged.nbytes, staged.crc)
        written = write_files(table_schema(self.layout), path.parent, batches)
        path.unlink()
        return tuple(
            StagedPart(
                staged.destination,
                str(one.path),
                one.rows,
                one.path.stat().st_size,
                folder=one.folder,
            )
            for one in written
        )

    def commit(self, mark: BatchMark, staged: Sequence[StagedPart]) -> None:
        with hold_lock(self._ours / LOCK_FILE):
            manifest = self._ours / f"{quote(mark.query, safe='')}.json"
            last = _read_manifest(manifest)
            if last is not None:
                self._move(last)
            if staged and (last is None or mark.batch > last["batch"]):
                self._start_commit(manifest, mark, staged)
            else:
                delete_files(staged)
            if self.layout.compact_after is not None:
                self._compact_crowded({each.folder for each in staged})

    def _start_commit(self, manifest: Path, mark: BatchMark, staged: Sequence[StagedPart]) -> None:
        for each in staged:
            if not Path(each.file).is_file():
                raise missing_file(each.file)
        files = {
            str(Path(each.file).relative_to(self.path)): str(Path(each.folder, _name(mark, number)))
            for number, each in enumerate(staged)
        }
        content = {"batch": mark.batch, "files": files}
        replace_file(manifest, json.dumps(content).encode())
        self._move(content)

    def _move(self, content: dict[str, Any]) -> None:
        """Move each file to its final name, unless it was moved before."""
        table = Path(self.path)
        changed: set[Path] = set()
        for name, final in content["files"].items():
            with suppress(FileNotFoundError):
                if (table / name).exists():
                    changed.update(_make_folders(table, (table / final).parent))
                os.rename(table / name, table / final)
                changed.add((table / final).parent)
        for folder in changed:
            sync_directory(folder)

    def _manifests(self) -> Iterator[dict[str, Any]]:
        for path in self._ours.glob("*.json"):
            content = _read_manifest(path)
            if content is not None and "files" in content:
                yield content

    def _listed_files(self) -> set[Path]:
        """Files that started commits will move."""
        return {Path(self.path) / name for one in self._manifests() for name in one["files"]}

    def discard(self, staged: Sequence[StagedPart]) -> None:
        delete_files(staged, self._listed_files())

    def collect_orphans(self) -> None:
        for suffix in (SUFFIX, ".arrow"):
            delete_orphans(self.staging, self._listed_files(), suffix)

    def leave(self) -> None:
        delete_folder(self.staging)

    # ---- merging small files -------------------------------------------------------------------------

    def _compact_crowded(self, folders: Iterable[str]) -> None:
        """Merge the small files of those folders that have as many as the layout allows."""
        for folder in sorted(folders):
            groups = plan_merges(table_files(Path(self.path, folder)))
            if sum(map(len, groups)) >= (self.layout.compact_after or 0):
                self._merge(Path(self.path, folder), groups)

    def compact(self, target: int = TARGET_BYTES, *, dry_run: bool = False) -> Merged:
        """Merge the small files of every folder, or with `dry_run` only count what that would merge."""
        if dry_run:
            return self._compact_folders(target, dry_run=True)
        with hold_lock(self._ours / LOCK_FILE):
            return self._compact_folders(target, dry_run=False)

    def _compact_folders(self, target: int, *, dry_run: bool) -> Merged:
        merged = Merged()
        for folder in _folders_with_files(Path(self.path)):
            groups = plan_merges(table_files(folder), target)
            merged += merged_by(groups, folder)
            if groups and not dry_run:
                self._merge(folder, groups)
        return merged

    def _merge(self, folder: Path, groups: Sequence[Sequence[str]]) -> None:
        # A listed file must not be left in a directory that is deleted.
        for content in self._manifests():
            self._move(content)
        table = Path(self.path)
        scratch = (
            table.with_name(f".{table.name}.{_MERGING}")
            if folder == table
            else self._ours / _MERGING
        )
        shutil.rmtree(scratch, ignore_errors=True)  # of a compaction that was killed
        try:
            merge_files(folder, groups, scratch)
        except OSError as problem:
            raise SparkOptionsError(
                f"the files of {folder} cannot be merged: {problem}; nothing was changed"
            ) from problem


def compact_table(path: str | Path, target: int = TARGET_BYTES, *, dry_run: bool = False) -> Merged:
    """Merge small files that pipelines and queries wrote to a folder, or with `dry_run` only count what that would merge."""
    folder = Path(path).absolute()
    if not (folder / OURS).is_dir():
        raise SparkOptionsError(
            f"{folder} is no folder that a pipeline or a query wrote Parquet files to; name one: the PATH of parquet:PATH"
        )
    return ParquetDestination(str(folder), new_owner()).compact(target, dry_run=dry_run)


def recorded_partitions(table: Path) -> tuple[str, ...] | None:
    """Read by which columns the folders of a table are named; None when nothing was written to it yet."""
    with suppress(FileNotFoundError):
        return tuple(json.loads((table / OURS / TABLE_FILE).read_bytes())["partition_by"])
    return () if table.is_dir() and table_files(table) else None


def _make_folders(table: Path, folder: Path) -> Iterator[Path]:
    """Create the folder and those above it, and yield the directories that have a new entry."""
    if folder == table or folder.is_dir():
        return
    yield from _make_folders(table, folder.parent)
    folder.mkdir(exist_ok=True)
    yield folder.parent


def _folders_with_files(table: Path) -> Iterator[Path]:
    for name, folders, files in os.walk(table):
        folders[:] = sorted(one for one in folders if not one.startswith(("_", ".")))
        if any(file.endswith(SUFFIX) for file in files) and not folders:
            yield Path(name)


def _name(mark: BatchMark, number: int) -> str:
    return f"part-{mark.batch:010d}-{number:04d}-{quote(mark.query, safe='')}{SUFFIX}"


def _read_manifest(path: Path) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    return content
