"""What a person reads when a command fails: what it was, where, and what to do. Never a traceback."""

from __future__ import annotations

import errno
import re
from typing import Final

from headgate.errors import HeadgateError, MissingExtra

_EXTRAS: Final = {
    "pyspark": ("spark", "this command"),
    "py4j": ("spark", "this command"),
    "grpc": ("spark", "Spark Connect"),
    "psycopg": ("postgres", "PostgreSQL"),
}
_REMEDIES: Final = {
    errno.ENOSPC: "make room and try again; what was confirmed is safe",
    errno.EDQUOT: "make room and try again; what was confirmed is safe",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EACCES: "let this user read and write there, or choose another place",
    errno.EPERM: "let this user read and write there, or choose another place",
    errno.EROFS: "choose a place that can be written",
    errno.EMFILE: "raise the limit of open files: ulimit -n 65536",
    errno.ENFILE: "too many files are open on this machine",
}
_SPARK: Final = ("pyspark", "py4j")
_JAVA: Final = re.compile(r"^: [\w.$]+(?:Exception|Error): (.{1,500})", re.MULTILINE)


def describe_failure(problem: BaseException) -> str:
    """The failure in a line or a few."""
    if isinstance(problem, HeadgateError):
        return str(problem)
    if isinstance(problem, OSError) and problem.errno is not None:
        return _describe_os_error(problem)
    if isinstance(problem, ImportError) and (problem.name or "").split(".")[0] in _EXTRAS:
        return str(MissingExtra(*_EXTRAS[(problem.name or "").split(".")[0]]))
    if type(problem).__module__.startswith(_SPARK):
        return f"Spark failed: {_spark_reason(problem)}; --debug prints all of it"
    kind = type(problem).__name__
    return (
        f"unexpected {kind}: {_first_line(problem)}; this should not happen: run it again with --debug, which prints "
        "where it was, and report it"
    )


def _describe_os_error(problem: OSError) -> str:
    where = f"{problem.filename}: " if problem.filename is not None else ""
    remedy = _REMEDIES.get(problem.errno or 0)
    return f"{where}{problem.strerror}" + (f"; {remedy}" if remedy else "")


def _spark_reason(problem: BaseException) -> str:
    """What Java says went wrong; what was called when it did stands before it."""
    found = _JAVA.search(str(problem))
    return _first_line(problem) if found is None else found[1].rstrip(" .;:")


def _first_line(problem: BaseException) -> str:
    """The first line of its message that says something; Java's go on for pages."""
    lines = (line.strip() for line in str(problem).splitlines())
    return next((line for line in lines if line), "no more is known")[:500].rstrip(" .;:")
