"""The folders files are staged in."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from headgate.errors import StagingError
from headgate.spark.sink.staging import Staged
from headgate.streams.write import orphans

# Another owner's files: it may have begun long ago and not be done yet.
FORSAKEN_SECONDS: Final = 24 * 3600


def make_folder(folder: str) -> None:
    """The folder, with those above it."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise StagingError(
            f"{folder} cannot be made: {problem}; make room for it there"
        ) from problem


def not_seen(file: str) -> StagingError:
    """What is said when the driver does not find what an executor has staged."""
    return StagingError(
        f"{file} was staged by an executor and is not to be seen by the driver; "
        "let both see the same file system there"
    )


def remove_files(staged: Iterable[Staged], named: Collection[Path] = ()) -> None:
    """Delete them, except those that are named."""
    for each in staged:
        if Path(each.file) not in named:
            Path(each.file).unlink(missing_ok=True)


def remove_orphans(folder: str, named: Collection[Path], suffix: str) -> None:
    """Delete all that is in the owner's folder and not named, and what others have forsaken beside it."""
    own = Path(folder)
    for path in orphans(own, named, horizon_s=0, suffix=suffix):
        path.unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        for other in own.parent.iterdir():
            if other != own and other.is_dir():
                _remove_forsaken(other, named, suffix)


def _remove_forsaken(folder: Path, named: Collection[Path], suffix: str) -> None:
    for path in orphans(folder, named, horizon_s=FORSAKEN_SECONDS, suffix=suffix):
        path.unlink(missing_ok=True)
    if folder.stat().st_mtime < time.time() - FORSAKEN_SECONDS:
        remove_folder(str(folder))


def remove_folder(folder: str) -> None:
    """If nothing is in it."""
    with suppress(OSError):
        Path(folder).rmdir()
