"""The location of the cold tier: the folder `cold/` of the stream, or any URI that pyarrow.fs opens."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headgate.errors import StreamError
from headgate.files import sync_directory
from headgate.streams.format import COLD_DIRECTORY

if TYPE_CHECKING:
    from pyarrow import fs


@dataclass(frozen=True, slots=True)
class ColdFile:
    """A file of the cold tier, local or in an object store."""

    system: fs.FileSystem
    path: str

    def at(self, path: str) -> ColdFile:
        """Return the file at another path of the same file system."""
        return ColdFile(self.system, path)

    @property
    def is_local(self) -> bool:
        kind: str = self.system.type_name
        return kind == "local"

    def open(self) -> pa.NativeFile:
        """Open for reading; a local file is mapped, so that it stays readable after it is deleted."""
        if not self.is_local:
            return self.system.open_input_file(self.path)
        with pa.memory_map(self.path) as mapped:
            return pa.BufferReader(mapped.read_buffer())

    def move(self, to: ColdFile) -> None:
        """Rename the file, durably."""
        self.system.move(self.path, to.path)
        if self.is_local:
            sync_directory(Path(to.path).parent)

    def sync(self) -> None:
        """Make a local file and its name durable; an object store has done so already."""
        if self.is_local:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
            sync_directory(Path(self.path).parent)

    def delete(self) -> None:
        """Delete the file if it exists."""
        with suppress(FileNotFoundError):
            self.system.delete_file(self.path)


def default_location() -> str:
    """Return the location inside the stream's directory."""
    return COLD_DIRECTORY


def parse_location(to: str | None) -> str:
    """Return a location as manifests spell it: a path becomes a file: URI."""
    if not to:
        return default_location()
    return to.rstrip("/") if "://" in to else Path(to).absolute().as_uri()


def cold_file(directory: Path, name: str) -> ColdFile:
    """Return the file of that name: a URI, or a path below the stream's directory."""
    from pyarrow import fs  # slow to load, and most streams have no cold tier

    if "://" not in name:
        return ColdFile(fs.LocalFileSystem(), str(directory / name))
    try:
        return ColdFile(*fs.FileSystem.from_uri(name))
    except (pa.ArrowException, OSError, ValueError) as problem:
        raise StreamError(
            f"pyarrow.fs cannot open {name}: {problem}; give a path, or a URI such as "
            "file:///cold/events or s3://bucket/events"
        ) from problem


def list_files(directory: Path, location: str) -> list[str]:
    """List the files of a location, spelled as in manifests."""
    from pyarrow import fs

    folder = cold_file(directory, location)
    found = folder.system.get_file_info(fs.FileSelector(folder.path, allow_not_found=True))
    return [f"{location}/{info.base_name}" for info in found if info.is_file]


def create_location(directory: Path, location: str) -> None:
    """Create the folder of a location if it does not exist."""
    folder = cold_file(directory, location)
    try:
        folder.system.create_dir(folder.path, recursive=True)
    except (pa.ArrowException, OSError) as problem:
        raise StreamError(f"cannot create {location} for Parquet files: {problem}") from problem
