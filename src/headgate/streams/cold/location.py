"""Where the Parquet files of the cold tier are: in `cold/` of the stream, or at any URI that pyarrow.fs opens."""

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
    """A file of the cold tier, wherever it is."""

    system: fs.FileSystem
    path: str

    def renamed(self, path: str) -> ColdFile:
        return ColdFile(self.system, path)

    @property
    def is_local(self) -> bool:
        kind: str = self.system.type_name
        return kind == "local"

    def open(self) -> pa.NativeFile:
        """To be read; a local file is mapped, so that it can be read on even if it is deleted."""
        if not self.is_local:
            return self.system.open_input_file(self.path)
        with pa.memory_map(self.path) as mapped:
            return pa.BufferReader(mapped.read_buffer())

    def move(self, to: ColdFile) -> None:
        """Give it another name, durably."""
        self.system.move(self.path, to.path)
        if self.is_local:
            sync_directory(Path(to.path).parent)

    def sync(self) -> None:
        """Make a local file and its name durable; an object store has answered already."""
        if self.is_local:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
            sync_directory(Path(self.path).parent)

    def delete(self) -> None:
        """Delete it if it is there."""
        with suppress(FileNotFoundError):
            self.system.delete_file(self.path)


def default_place() -> str:
    """The folder inside of the stream."""
    return COLD_DIRECTORY


def parse_place(to: str | None) -> str:
    """The place a person names, as manifests name it: a path becomes a file: URI."""
    if not to:
        return default_place()
    return to.rstrip("/") if "://" in to else Path(to).absolute().as_uri()


def cold_file(directory: Path, name: str) -> ColdFile:
    """The file of that name: a URI, or a path below the stream's directory."""
    from pyarrow import fs  # slow to load, and most streams have no cold tier

    if "://" not in name:
        return ColdFile(fs.LocalFileSystem(), str(directory / name))
    try:
        return ColdFile(*fs.FileSystem.from_uri(name))
    except (pa.ArrowException, OSError, ValueError) as problem:
        raise StreamError(
            f"{name} is no place pyarrow.fs can open: {problem}; give a path, or a URI such as "
            "file:///cold/events or s3://bucket/events"
        ) from problem


def files_in(directory: Path, place: str) -> list[str]:
    """The names of all files of a place, as manifests name them."""
    from pyarrow import fs

    folder = cold_file(directory, place)
    found = folder.system.get_file_info(fs.FileSelector(folder.path, allow_not_found=True))
    return [f"{place}/{info.base_name}" for info in found if info.is_file]


def make_place(directory: Path, place: str) -> None:
    """Make the folder of a place, if it is not there; refused when it cannot be made."""
    folder = cold_file(directory, place)
    try:
        folder.system.create_dir(folder.path, recursive=True)
    except (pa.ArrowException, OSError) as problem:
        raise StreamError(f"{place} cannot hold Parquet files: {problem}") from problem
