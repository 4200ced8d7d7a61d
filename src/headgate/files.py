"""Files that survive a crash: creating, renaming and removing them is made durable in their directory."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

import pyarrow as pa

UNFINISHED_SUFFIX: Final = ".new"
BUSY_MS: Final = 5_000  # how long a copy waits for a process that has locked the database
_HERE: Final = -100  # AT_FDCWD: paths are relative to the working directory
_EXCHANGE: Final = 2  # RENAME_EXCHANGE


def sync_directory(directory: Path) -> None:
    """Make new names in a directory durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file durably, replacing the old one as a whole or not at all."""
    with _unfinished(path) as new:
        write_durably(new, content)
        os.replace(new, path)
    sync_directory(path.parent)


def put_file(path: Path, content: bytes) -> None:
    """Write a file, replacing the old one as a whole; a power failure may lose it."""
    with _unfinished(path) as new:
        new.write_bytes(content)
        os.replace(new, path)


@contextmanager
def _unfinished(path: Path) -> Iterator[Path]:
    """Yield the name of a file that is to replace another; it is removed if that fails, for instance on a full disk."""
    new = path.with_name(f".{path.name}.{os.getpid()}{UNFINISHED_SUFFIX}")
    try:
        yield new
    except BaseException:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise


def write_durably(path: Path, content: bytes) -> None:
    """Write and fsync a file; its name is durable only after `sync_directory`."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        write_all(fd, content)
        os.fsync(fd)
    finally:
        os.close(fd)


def overwrite(path: Path, position: int, content: bytes) -> None:
    """Overwrite bytes in the middle of a file, durably."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(fd, content, position)
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, content: bytes | memoryview) -> None:
    """Write all bytes, in as many calls as it takes."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]


def copy_database(source: Path, target: Path) -> None:
    """Copy an SQLite database as it is at one moment, while others, in this process too, read and write it."""
    # With apsw, as the queues: another SQLite library does not see the locks of this process, and would copy torn pages.
    import apsw

    with (
        closing(apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY)) as reading,
        closing(apsw.Connection(str(target))) as writing,
    ):
        reading.set_busy_timeout(BUSY_MS)
        with writing.backup("main", reading, "main") as copying:
            copying.step()  # all pages


def remove_files(*paths: Path) -> None:
    """Unlink files, those that exist, and make that durable."""
    for path in paths:
        path.unlink(missing_ok=True)
    for directory in {path.parent for path in paths}:
        sync_directory(directory)


def exchange(one: Path, other: Path) -> None:
    """Exchange the names of two files or directories in one step; both exist, on one file system."""
    import ctypes

    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        raise OSError(
            errno.ENOSYS, "this system cannot exchange two directories in one step", str(one)
        )
    if renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot be exchanged in one step: {os.strerror(number)}", str(one))


def require_executable(path: Path) -> None:
    """Raise PermissionError for a program that cannot be run, as on a file system that is mounted with noexec."""
    if not os.access(path, os.X_OK):
        raise PermissionError(errno.EACCES, "programs cannot be run from there", str(path))


@contextmanager
def open_for_reading(path: Path) -> Iterator[int]:
    """Open a file for reading until the block ends."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def map_file(path: Path) -> pa.Buffer:
    """Map a file as it is now. Only for files that are never truncated: reading a lost page kills the process."""
    with open_for_reading(path) as fd:
        return map_beginning(fd, os.fstat(fd).st_size)


def map_beginning(fd: int, length: int) -> pa.Buffer:
    """Map the first bytes of a file."""
    return pa.py_buffer(mmap.mmap(fd, length, prot=mmap.PROT_READ) if length else b"")


def read_at(fd: int, position: int, length: int | None = None) -> pa.Buffer:
    """Read bytes of a file from a position, by default to its end; a copy, so that truncating the file is safe."""
    left = max(os.fstat(fd).st_size - position, 0) if length is None else length
    found = [os.pread(fd, left, position)]
    while found[-1] and (got := sum(map(len, found))) < left:
        found.append(os.pread(fd, left - got, position + got))
    return pa.py_buffer(found[0] if len(found) == 1 else b"".join(found))
