"""The directory of a broker's data: its lock, and verifying, repairing, backing up and restoring it.

broker.lock     locked while a broker runs, and names its process
broker.db       definitions and messages
streams/        the streams of stream queues, each a directory
backup.json     only in a backup: what it is a copy of, and when it was made
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from headgate.errors import HeadgateError, StoreCorrupt, StoreLocked
from headgate.files import copy_database, replace_file, sync_directory
from headgate.store import Salvaged, StoreReport, salvage_store, verify_store
from headgate.streams import OPTIONS_FILE, upkeep

LOCK_FILE: Final = "broker.lock"
STORE_FILE: Final = "broker.db"
STREAMS: Final = "streams"
BACKUP_FILE: Final = "backup.json"
BACKUP_FORMAT: Final = 1

OnStep = Callable[[str], object]  # called with a description of each step


class DirectoryLock:
    """The right to use a directory of data, from construction to `release`; the kernel ends it with the process."""

    def __init__(self, directory: Path) -> None:
        self._fd = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            holder = _describe_holder(os.pread(self._fd, 500, 0))
            os.close(self._fd)
            raise StoreLocked(directory, holder) from problem
        os.ftruncate(self._fd, 0)
        name = {"pid": os.getpid(), "host": socket.gethostname()}
        os.pwrite(self._fd, json.dumps(name).encode(), 0)

    def release(self) -> None:
        os.ftruncate(self._fd, 0)
        os.close(self._fd)


def _describe_holder(written: bytes) -> str:
    """Describe the process that holds the lock; it may not have written its name yet."""
    try:
        name = json.loads(written)
        return f"a broker (pid {name['pid']}, host {name['host']})"
    except (ValueError, KeyError, TypeError):
        return "another process"


@dataclass(frozen=True, slots=True)
class DirectoryReport:
    """The result of verifying a directory of data: the store, and each stream by its path."""

    store: StoreReport
    streams: dict[str, upkeep.VerifyReport]

    @property
    def fine(self) -> bool:
        return self.store.fine and all(report.fine for report in self.streams.values())


@dataclass(frozen=True, slots=True)
class Repair:
    """The result of a repair: the rows saved from a damaged store, and the path of the damaged file."""

    salvaged: Salvaged | None
    damaged: Path | None
    report: DirectoryReport


@dataclass(frozen=True, slots=True)
class Backup:
    """A finished backup or restored directory."""

    path: Path
    streams: int
    nbytes: int


def verify_directory(data: Path, on_step: OnStep = print) -> DirectoryReport:
    """Read everything in a directory of data and report damage; a broker may be running."""
    store = _store_of(data)
    on_step(STORE_FILE)
    found = verify_store(store)
    streams = {}
    for path in find_streams(data):
        on_step(str(path.relative_to(data)))
        streams[str(path.relative_to(data))] = upkeep.verify(path)
    return DirectoryReport(found, streams)


def repair_directory(data: Path, on_step: OnStep = print) -> Repair:
    """Save what can be read; damaged files stay under another name. No broker may be running."""
    store = _store_of(data)
    lock = DirectoryLock(data)
    try:
        salvaged, damaged = None, None
        if not verify_store(store).fine:
            on_step(f"{STORE_FILE}: saving what can be read")
            salvaged, damaged = _replace_store(store)
        for path in find_streams(data):
            on_step(str(path.relative_to(data)))
            upkeep.repair(path)
    finally:
        lock.release()
    return Repair(salvaged, damaged, verify_directory(data, on_step))


def back_up(data: Path, target: Path, on_step: OnStep = print) -> Backup:
    """Copy a directory of data into a new one; it has every message confirmed before. A broker may be running.

    The store and each stream are copied as of one moment each, the store first.
    """
    store = _store_of(data)
    _require_new(target)
    unfinished = target.with_name(f"{target.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    on_step(STORE_FILE)
    copy_database(store, unfinished / STORE_FILE)
    streams, nbytes = 0, (unfinished / STORE_FILE).stat().st_size
    for path in find_streams(data):
        on_step(str(path.relative_to(data)))
        nbytes += upkeep.copy_stream(path, unfinished / path.relative_to(data))
        streams += 1
    facts = {"format": BACKUP_FORMAT, "of": str(data), "made": datetime.now(UTC).isoformat()}
    replace_file(unfinished / BACKUP_FILE, json.dumps(facts).encode())
    os.rename(unfinished, target)
    sync_directory(target.parent)
    return Backup(target, streams, nbytes)


def restore_backup(backup: Path, data: Path, on_step: OnStep = print) -> Backup:
    """Make a directory of data from a backup; the backup is verified first, and stays."""
    _check_backup(backup)
    _require_new(data)
    report = verify_directory(backup, on_step)
    if not report.fine:
        raise HeadgateError(
            f"{backup} is damaged; `headgate verify {backup}` lists it, --repair saves what can be read"
        )
    restored = back_up(backup, data, on_step)
    (data / BACKUP_FILE).unlink()
    return restored


def find_streams(data: Path) -> Iterator[Path]:
    """The directories of streams below a directory, in the order of their names."""
    for directory, names, files in os.walk(data):
        names.sort()
        if OPTIONS_FILE in files:
            names.clear()
            yield Path(directory)


def _store_of(data: Path) -> Path:
    store = data / STORE_FILE
    if not store.is_file():
        raise HeadgateError(f"{data} holds no data of a broker: there is no {STORE_FILE} in it")
    return store


def _require_new(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise HeadgateError(f"{target} exists and is not empty; name a new directory")
    if target.exists():
        target.rmdir()


def _check_backup(backup: Path) -> None:
    try:
        facts = json.loads((backup / BACKUP_FILE).read_text("utf-8"))
    except FileNotFoundError:
        raise HeadgateError(
            f"{backup} is no finished backup: there is no {BACKUP_FILE} in it"
        ) from None
    except ValueError as problem:
        raise StoreCorrupt(backup / BACKUP_FILE, "is no JSON") from problem
    if facts.get("format", 0) > BACKUP_FORMAT:
        raise HeadgateError(
            f"{backup} has format {facts['format']}, and this Headgate knows up to {BACKUP_FORMAT}; upgrade Headgate"
        )


def _replace_store(store: Path) -> tuple[Salvaged, Path]:
    new = store.with_name(f"{STORE_FILE}.unfinished")
    new.unlink(missing_ok=True)
    salvaged = salvage_store(store, new)
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    damaged = store.with_name(f"{STORE_FILE}.damaged-{stamp}")
    for suffix in ("", "-wal", "-shm"):  # the log of writes belongs to its file
        part = store.with_name(store.name + suffix)
        if part.exists():
            os.rename(part, damaged.with_name(damaged.name + suffix))
    os.rename(new, store)
    sync_directory(store.parent)
    return salvaged, damaged
