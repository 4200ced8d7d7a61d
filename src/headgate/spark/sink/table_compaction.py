"""Merge small Parquet files of a folder into large ones, in one step for every reader.

The new files, and links to those that stay, are put into a directory beside the folder; then the two directories are
exchanged (`renameat2`), so that a reader lists either all old files or all new ones. A kill at any point leaves one of
the two in place, and the other is deleted by the next compaction. A query that listed the old files and opens them later does
not find them: it fails, and can be repeated; none reads a message twice or misses one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow.parquet as pq

from headgate.files import exchange, sync_directory
from headgate.spark.sink.table_files import SUFFIX, sync_file

TARGET_BYTES: Final = 128 << 20  # of a merged file
_MERGED_MARK: Final = ".merged-"


@dataclass(frozen=True, slots=True)
class Merged:
    """What a compaction did, or would do: files before and after, and the bytes that were rewritten."""

    folders: int = 0
    files_before: int = 0
    files_after: int = 0
    nbytes: int = 0

    def __add__(self, other: Merged) -> Merged:
        return Merged(
            self.folders + other.folders,
            self.files_before + other.files_before,
            self.files_after + other.files_after,
            self.nbytes + other.nbytes,
        )


def plan_merges(sizes: Iterable[tuple[str, int]], target: int = TARGET_BYTES) -> list[list[str]]:
    """Group adjacent files to merge; a file of half the target size or more stays as it is."""
    groups: list[list[str]] = [[]]
    weight = 0
    for name, nbytes in sorted(sizes):
        if 2 * nbytes >= target or (groups[-1] and weight + nbytes > target):
            groups.append([])
            weight = 0
        if 2 * nbytes < target:
            groups[-1].append(name)
            weight += nbytes
    return [group for group in groups if len(group) > 1]


def merged_by(groups: Sequence[Sequence[str]], folder: Path) -> Merged:
    """Count the files and bytes that merging these groups of files replaces."""
    files = [name for group in groups for name in group]
    nbytes = sum((folder / name).stat().st_size for name in files)
    return Merged(int(bool(groups)), len(files), len(groups), nbytes)


def table_files(folder: Path) -> list[tuple[str, int]]:
    """List the names and sizes of the Parquet files in a folder."""
    with os.scandir(folder) as entries:
        return [
            (entry.name, entry.stat().st_size)
            for entry in entries
            if entry.name.endswith(SUFFIX)
            and not entry.name.startswith(("_", "."))
            and entry.is_file()
        ]


def merge_files(folder: Path, groups: Sequence[Sequence[str]], scratch: Path) -> None:
    """Replace each group of files of a folder by one file.

    `scratch` is a new directory on the same file system, outside of the folder. Directories in the folder are moved along: their
    files are linked first, and files that other processes create meanwhile are moved last. These may only be staged files.
    """
    merged = {name for group in groups for name in group}
    scratch.mkdir(parents=True)
    try:
        _link_files(folder, scratch, merged)
        for group in groups:
            _merge([folder / name for name in group], scratch)
        shutil.copystat(folder, scratch)
        sync_directory(scratch)
        exchange(folder, scratch)
        sync_directory(folder.parent)
        for own in [entry for entry in scratch.iterdir() if entry.is_dir()]:
            _move_new_files(own, folder / own.name)
    finally:  # the old files, or new ones if the directories were not exchanged
        shutil.rmtree(scratch, ignore_errors=True)


def _link_files(folder: Path, scratch: Path, without: Collection[str] = ()) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                (scratch / entry.name).mkdir()
                _link_files(Path(entry.path), scratch / entry.name)
            elif entry.name not in without:
                with suppress(FileNotFoundError):  # deleted by its owner
                    os.link(entry.path, scratch / entry.name, follow_symlinks=False)


def _move_new_files(old: Path, new: Path) -> None:
    """Move files that were created in the old directory after it was linked."""
    for path in old.rglob("*"):
        moved = new / path.relative_to(old)
        if path.is_dir():
            moved.mkdir(exist_ok=True)
        elif not moved.exists():
            path.rename(moved)


def _merge(paths: Sequence[Path], scratch: Path) -> None:
    """Write the rows of all files to one, or to one for each run of equal schemas."""
    for run in _equal_schemas(paths):
        first = run[0].name.removesuffix(SUFFIX).partition(_MERGED_MARK)[0]
        merged = scratch / f"{first}{_MERGED_MARK}{uuid4().hex[:12]}{SUFFIX}"
        with pq.ParquetWriter(merged, pq.read_schema(run[0]), compression="zstd") as writer:
            for path in run:
                with pq.ParquetFile(path) as file:
                    for batch in file.iter_batches():
                        writer.write_batch(batch)
        sync_file(merged)


def _equal_schemas(paths: Sequence[Path]) -> Iterator[list[Path]]:
    run: list[Path] = []
    for path in paths:
        if run and not pq.read_schema(path).equals(pq.read_schema(run[0])):
            yield run
            run = []
        run.append(path)
    yield run
