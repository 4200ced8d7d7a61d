"""A stream: a batch is one deposit that lists its staged files; the writer of the stream adopts it as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headgate.errors import StreamExists
from headgate.spark.sink.destination import BatchMark, Owner
from headgate.spark.sink.staging import (
    StagedPart,
    delete_files,
    delete_folder,
    delete_orphans,
    make_folder,
    missing_file,
)
from headgate.streams import OPTIONS_FILE, load_options
from headgate.streams.write import STAGED_SUFFIX, StagedFile, all_named_files, staged_folder


@dataclass(frozen=True, slots=True)
class StreamDestination:
    """The stream in that directory, created with default options when there is none."""

    path: str
    owner: Owner

    @property
    def staging(self) -> str:
        return str(staged_folder(Path(self.path)) / self.owner.name)

    def check(self) -> None:
        directory = Path(self.path)
        if (directory / OPTIONS_FILE).exists():
            load_options(directory)
        elif directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise StreamExists(
                f"{directory} is no stream and not empty; choose another directory to write to"
            )

    def open(self) -> None:
        if not (Path(self.path) / OPTIONS_FILE).exists():
            self._create()
        load_options(Path(self.path))
        make_folder(self.staging)

    def _create(self) -> None:
        from headgate.streams import Stream

        try:
            Stream.create(self.path).close()
        except StreamExists:
            # Another process may have created it first.
            if not (Path(self.path) / OPTIONS_FILE).exists():
                raise

    def prepare(self, staged: StagedPart) -> tuple[StagedPart, ...]:
        return (staged,)

    def commit(self, mark: BatchMark, staged: Sequence[StagedPart]) -> None:
        from headgate.streams import Stream

        if not staged:
            return
        with Stream.open(self.path) as stream:
            stream.deposit_staged(
                producer_of(mark), mark.batch, [self._staged_file(s) for s in staged]
            )

    def _staged_file(self, staged: StagedPart) -> StagedFile:
        path = Path(staged.file)
        if not path.is_file():
            raise missing_file(staged.file)
        name = path.relative_to(staged_folder(Path(self.path)))
        return StagedFile(str(name), staged.nbytes, staged.crc)

    def discard(self, staged: Sequence[StagedPart]) -> None:
        delete_files(staged, all_named_files(Path(self.path)))

    def collect_orphans(self) -> None:
        delete_orphans(self.staging, all_named_files(Path(self.path)), STAGED_SUFFIX)

    def leave(self) -> None:
        delete_folder(self.staging)


def producer_of(mark: BatchMark) -> str:
    """The producer name of a query in streams."""
    return f"spark-{mark.query}"
