"""A Spark session that just works: Java found, quiet, sized for one machine, nothing left behind."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.errors import MissingExtra, SparkError
from headgate.settings import load_settings
from headgate.spark.fork_server import ForkServer
from headgate.spark.java import java_home
from headgate.spark.masters import check_master

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNSEEN_CORES: Final = 16  # taken for granted by who needs a number where Spark does not say
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_MASTER: Final = "spark.master"
_REMOTE: Final = "spark.remote"
_TRIES: Final = 4  # of a task, as on a cluster; Spark gives up after the first one where a local master does not say
_LOCAL: Final = re.compile(r"local(?:\[([^\],]+)\])?")
# Without a level of its own for the gateway, Spark sets the root's to WARN and prints that it did. What is
# too large for the code generator is interpreted instead: no error, though it prints megabytes of one.
_LOGGING: Final = """\
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
logger.codegen.name = org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator
logger.codegen.level = off
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def session(name: str = "headgate", master: str | None = None, **config: object) -> SparkSession:
    """The running session, or a new one where `master` or else the setting `spark_master` says; `config` wins.

    Spark's settings have dots in their names: `session(**{"spark.driver.memory": "4g"})`.
    """
    running = running_session()
    if running is not None:
        return running
    given = {key: _text(value) for key, value in config.items()}
    place = chosen_place(master, given, os.environ)
    check_python(place, os.environ)
    if place is not None:
        check_master(place.url)
    builder = _session_class().builder.appName(name)
    for key, value in settings(place, given, cores=os.cpu_count() or 1, scratch=_scratch()).items():
        builder = builder.config(key, value)
    with _environment(_launch_variables(place)):
        spark = builder.getOrCreate()
    if place is not None and place.on_this_machine:
        atexit.register(_release_output, spark)
    return spark


def _release_output(spark: SparkSession) -> None:
    """Let go of standard output and error in the JVM, which may be busy for seconds after its program has ended: whoever reads
    them would wait for it. (Java points the files 1 and 2 to /dev/null when they are closed.)"""
    with suppress(Exception):
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        system = gateway.jvm.java.lang.System
        system.out.close()
        system.err.close()


def running_session() -> SparkSession | None:
    """The session of this thread or of the whole program, if there is one."""
    spark_session = _session_class()
    from pyspark.errors import PySparkRuntimeError

    try:
        return spark_session.active()
    except PySparkRuntimeError:
        return None


def spark_is_installed() -> bool:
    """Whether there is a pyspark to import, found out without importing it."""
    try:
        return find_spec("pyspark") is not None
    except ValueError:  # something stands in its place that is no module
        return False


def _session_class() -> type[SparkSession]:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtra("spark", "a Spark session") from None
    return SparkSession


# ---- the settings ------------------------------------------------------------------------------------


class Place(NamedTuple):
    """Where Spark runs, and the setting that says so."""

    setting: str
    url: str

    @property
    def on_this_machine(self) -> bool:
        return self.url.startswith("local") and not self.url.startswith("local-cluster")


def chosen_place(
    master: str | None, given: Mapping[str, str], environ: Mapping[str, str]
) -> Place | None:
    """As asked, else as set (`spark_master`); None when spark-submit has decided already."""
    remote = given.get(_REMOTE) or environ.get("SPARK_REMOTE")
    if master is not None:
        return _named(master)
    if remote is not None:
        return Place(_REMOTE, remote)
    if _MASTER in given:
        return Place(_MASTER, given[_MASTER])
    if "PYSPARK_GATEWAY_PORT" in environ:
        return None
    return _named(load_settings(environment=environ).spark_master)


def _named(url: str) -> Place:
    return Place(_REMOTE, url) if url.startswith("sc://") else Place(_MASTER, with_tries(url))


def with_tries(master: str) -> str:
    """The master with a number of tries for each task, where it runs on this machine and says none."""
    local = _LOCAL.fullmatch(master)
    return master if local is None else f"local[{local[1] or 1},{_TRIES}]"


def cores_of(spark: SparkSession) -> int | None:
    """How many tasks run at once; of a cluster, executors may still be on their way. None behind Spark Connect, which
    does not say."""
    context = getattr(spark, "sparkContext", None)
    if context is None:
        return None
    known: int = context.defaultParallelism
    return known if (context.master or "").startswith("local") else max(known, os.cpu_count() or 1)


def settings(
    place: Place | None, given: Mapping[str, str], *, cores: int, scratch: Path
) -> dict[str, str]:
    """Everything the session is built with."""
    ours = {**_query_settings(), **_place_settings(place, cores, scratch)}
    if _JAVA_OPTIONS in ours and _JAVA_OPTIONS in given:  # of two that disagree Java takes the last
        given = {**given, _JAVA_OPTIONS: f"{ours[_JAVA_OPTIONS]} {given[_JAVA_OPTIONS]}"}
    return {**ours, **given}


def _query_settings() -> dict[str, str]:
    return {
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
    }


def _place_settings(place: Place | None, cores: int, scratch: Path) -> dict[str, str]:
    if place is None:
        return {}
    if place.setting == _REMOTE:  # a client may only change how queries run
        return {_REMOTE: place.url}
    quick_and_quiet = {
        # Otherwise every method of a column looks up where it was called from: ten times slower.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
        _JAVA_OPTIONS: f"-Dlog4j2.configurationFile={(scratch / 'log4j2.properties').as_uri()}",
    }
    small = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.python.unix.domain.socket.enabled": "true",  # a third faster than TCP, and private
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        "spark.ui.enabled": "false",
    }
    return {_MASTER: place.url, **quick_and_quiet, **(small if place.on_this_machine else {})}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# ---- starting ----------------------------------------------------------------------------------------


def _scratch() -> Path:
    """A folder for what Spark would drop into the working directory; gone when the program ends."""
    scratch = Path(tempfile.mkdtemp(prefix="headgate-spark-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    (scratch / "log4j2.properties").write_text(_LOGGING)
    return scratch


def check_python(place: Place | None, environ: Mapping[str, str]) -> None:
    """Refuse a cluster whose workers would run whichever python3 they find first."""
    if place is None or place.setting == _REMOTE or place.url.startswith("local"):
        return
    if not environ.get("PYSPARK_PYTHON") and "PYSPARK_GATEWAY_PORT" not in environ:
        version = ".".join(map(str, sys.version_info[:2]))
        raise SparkError(
            f"{place.url}: which Python do its workers run? Set PYSPARK_PYTHON to a Python {version} that has headgate[spark] "
            f"installed on every machine, for example: export PYSPARK_PYTHON={sys.executable}"
        )


def _launch_variables(place: Place | None) -> dict[str, str]:
    """What a new JVM, and every new context in it, has to find in the environment."""
    from pyspark import SparkContext

    if place is None or place.url.startswith("sc://"):
        return {}
    variables = {} if SparkContext._gateway is not None else {"JAVA_HOME": str(java_home())}
    if place.url.startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        # Spark would take the PATH's python3, which need not be the one that runs this.
        server = ForkServer()
        atexit.register(server.close)
        variables |= server.variables
    return variables


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
