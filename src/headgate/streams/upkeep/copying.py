"""A copy of a stream that is complete and consistent although the stream is written, sealed and trimmed meanwhile.

No lock is taken. What makes the copy sound is the order:

    cursors    first: none goes on behind the end of the copy
    deposits   before the segments: one that is adopted meanwhile is in the log, and its id with it, so that it counts once
    index      before its log: the log of an entry is written before the entry; what the log has beyond it is cut off,
               and of the index the entries of an append that was being committed
    segments   as one listing has them; when a listed file disappears, sealed or dropped, the directory is listed again
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

from headgate.errors import StreamError
from headgate.files import copy_database, open_for_reading, sync_directory
from headgate.streams.format import (
    COLD_DIRECTORY,
    CURSORS_FILE,
    INBOX,
    INDEX_SUFFIX,
    OPTIONS_FILE,
    SegmentFile,
    index_path,
)
from headgate.streams.listing import list_segments
from headgate.streams.segments.hot_index import read_index
from headgate.streams.segments.hot_walk import read_head_of
from headgate.streams.write.inbox import deposits
from headgate.streams.write.lock import is_held
from headgate.streams.write.staged import staged_folder

PASSES: Final = 100  # listings of a stream whose segments disappear faster than they are copied


def copy_stream(source: Path, target: Path) -> int:
    """Copy a stream into a new directory; return the bytes copied. What was confirmed before is in the copy."""
    target.mkdir(parents=True)
    size = sum(
        _copy(path, target / path.name)
        for path in (source / OPTIONS_FILE, source / f"{OPTIONS_FILE}.copy")
        if path.exists()
    )
    if (source / CURSORS_FILE).exists():
        copy_database(source / CURSORS_FILE, target / CURSORS_FILE)
    size += _copy_inbox(source, target)
    size += _copy_segments(source, target)
    sync_directory(target)
    return size


def _copy_inbox(source: Path, target: Path) -> int:
    """Copy the deposits that wait, with the staged files they name."""
    found = [deposit.path for deposit in deposits(source)]
    if not found:
        return 0
    (target / INBOX).mkdir()
    size = 0
    for path in found:
        with suppress(FileNotFoundError):  # adopted since it was listed
            size += _copy(path, target / INBOX / path.name)
    staged = staged_folder(source)
    for path in staged.rglob("*"):
        copy = staged_folder(target) / path.relative_to(staged)
        with suppress(FileNotFoundError):  # adopted meanwhile, and its deposit with it
            if path.is_file():
                copy.parent.mkdir(parents=True, exist_ok=True)
                size += _copy(path, copy)
    for path in found:  # what is gone was adopted: the log has it, the staged files may be missing
        if not path.exists():
            (target / INBOX / path.name).unlink(missing_ok=True)
    return size


def _copy_segments(source: Path, target: Path) -> int:
    # Sizes of the files of sealed and cold segments, which never change.
    copied: dict[str, int] = {}
    for _ in range(PASSES):
        size = 0
        files = list_segments(source)
        _remove_others(target, files)
        try:
            for file in files:
                size += _copy_segment(file, source, target, copied)
            size += _copy_cold(source, target, copied) if any(f.cold for f in files) else 0
        except FileNotFoundError:  # sealed, compacted or dropped since it was listed
            continue
        return size
    raise StreamError(
        f"{source}: its segments are replaced faster than they can be copied; try again when there is less work"
    )


def _copy_segment(file: SegmentFile, source: Path, target: Path, copied: dict[str, int]) -> int:
    name = file.path.name
    if file.sealed:
        if name not in copied:
            copied[name] = _copy(file.path, target / name)
        return copied[name]
    index = index_path(source, file.first_offset)
    size = _copy(index, target / index.name)
    growing = is_held(source)
    return size + _copy(file.path, target / name) - (_cut(target / name) if growing else 0)


def _cut(log: Path) -> int:
    """Cut off what was not committed when the index was copied, of index and log; return how many bytes that were."""
    with open_for_reading(log) as fd:
        head = read_head_of(fd, log)
        index = read_index(log.parent, head)
    if index.reach is None or index.problem is not None:
        return 0
    end = index.header_length + index.entries.nbytes
    return _cut_file(index_path(log.parent, head.first_offset), end) + _cut_file(log, index.reach)


def _cut_file(path: Path, end: int) -> int:
    size = path.stat().st_size
    if end >= size:
        return 0
    with open(path, "r+b") as file:
        file.truncate(end)
        os.fsync(file.fileno())
    return size - end


def _copy_cold(source: Path, target: Path, copied: dict[str, int]) -> int:
    """Copy the Parquet files that are kept in the directory itself."""
    directory = source / COLD_DIRECTORY
    if not directory.is_dir():
        return 0
    (target / COLD_DIRECTORY).mkdir(exist_ok=True)
    size = 0
    for path in directory.glob("*.parquet"):
        if path.name not in copied:
            copied[path.name] = _copy(path, target / COLD_DIRECTORY / path.name)
        size += copied[path.name]
    return size


def _remove_others(target: Path, files: list[SegmentFile]) -> None:
    """Remove copies of files that an earlier listing had and this one has not."""
    wanted = {file.path.name for file in files}
    wanted |= {file.path.with_suffix(INDEX_SUFFIX).name for file in files if not file.sealed}
    for path in target.iterdir():
        if path.is_file() and path.stem.replace("-", "").isdigit() and path.name not in wanted:
            path.unlink()


def _copy(source: Path, target: Path) -> int:
    """Copy a file durably, up to the end it has by then; return the size of the copy."""
    with open(source, "rb") as reading, open(target, "wb") as writing:
        shutil.copyfileobj(reading, writing, 1 << 20)
        writing.flush()
        os.fsync(writing.fileno())
        return writing.tell()
