"""Start a Spark session: with the right Java, quiet, sized for one machine, and without files left behind."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from headgate.errors import MissingExtra, SparkError
from headgate.settings import load_settings
from headgate.spark.fork_server import ForkServer
from headgate.spark.java import discard_archive, java_home
from headgate.spark.startup import (
    convert_without_pandas,
    create_without_ml,
    silence_closed_connections,
)
from headgate.spark.worker_launcher import SERVER_VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log: Final = logging.getLogger(__name__)

LEAST_PYSPARK: Final = (4, 2)  # before, a stream of Python had no Trigger.AvailableNow
DEFAULT_CORES: Final = 16  # assumed where Spark does not report the number
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_MASTER: Final = "spark.master"
_REMOTE: Final = "spark.remote"
_TRIES: Final = 4  # of a task, as on a cluster; with a local master Spark's default is 1
_LOCAL: Final = re.compile(r"local(?:\[([^\],]+)\])?")
# The gateway has its own level: without one, Spark sets the level of the root to WARN and prints a line about it. The code
# generator is off: Spark interprets an expression that is too large for it, and would log megabytes of errors about that.
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
# A command raises the error that ends its query, without the page of Java's stack that Spark would log before.
_COMMAND_LOGGING: Final = """\
logger.query.name = org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
logger.query.level = off
"""


def session(
    name: str = "headgate",
    master: str | None = None,
    config: Mapping[str, object] = MappingProxyType({}),
) -> SparkSession:
    """Return the running session, or start a new one on `master`, by default the setting `spark_master`.

        from pathlib import Path

        from headgate import Stream
        from headgate.spark import session

        place = Path("data/orders").absolute()  # Spark's processes have working directories of their own
        with Stream.create(place) as orders, orders.producer() as producer:
            producer.publish(b"order 1", headers={"region": "EU"})
        spark = session()
        rows = spark.read.format("headgate").option("filter", "region = 'EU'").load(str(place))
        assert rows.count() == 1

    `config` holds settings of Spark for a new session: `session(config={"spark.driver.memory": "4g"})`.
    """
    running = running_session()
    return running or _new_session(name, master, config, for_command=False)


def command_session(
    name: str = "headgate",
    master: str | None = None,
    config: Mapping[str, object] = MappingProxyType({}),
) -> SparkSession:
    """Return the running session, or start a new one for a command, which calls nothing of `pyspark.ml`: it starts faster."""
    running = running_session()
    return running or _new_session(name, master, config, for_command=True)


def _new_session(
    name: str, master: str | None, config: Mapping[str, object], *, for_command: bool
) -> SparkSession:
    overrides = {key: _text(value) for key, value in config.items()}
    cluster = choose_master(master, overrides, os.environ)
    check_python(cluster, os.environ)
    if cluster is not None:
        check_master(cluster.url)
    builder = _session_class().builder.appName(name)
    variables = _launch_variables(cluster)
    if SERVER_VARIABLE in variables:
        # Faster than TCP, and private. Workers that are no forks of ours print a traceback when such a socket is closed.
        overrides = {"spark.python.unix.domain.socket.enabled": "true", **overrides}
    cores = os.cpu_count() or 1
    log_settings = _LOGGING + _COMMAND_LOGGING if for_command else _LOGGING
    options = settings(cluster, overrides, cores=cores, scratch=_scratch(log_settings))
    for key, value in options.items():
        builder = builder.config(key, value)
    here = cluster is not None and cluster.on_this_machine
    lean = here and for_command and load_settings(environment=os.environ).spark_fast_start

    def create() -> SparkSession:
        if lean:
            create_without_ml({"spark.app.name": name, **options})
        return builder.getOrCreate()

    convert_without_pandas()
    with _environment(variables), _keep_interrupt_handler():
        spark = _start(create, variables, overrides.get("spark.jars.packages"))
    silence_closed_connections(spark)
    if here:
        _at_exit(_release_output, spark)
    return spark


def _start(
    create: Callable[[], SparkSession], variables: Mapping[str, str], packages: str | None
) -> SparkSession:
    """Start the session; if its JVM does not start from an archive of classes, delete that and start again."""
    from pyspark.errors import PySparkRuntimeError

    try:
        return create()
    except PySparkRuntimeError as problem:
        if problem.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        if packages is not None:
            raise SparkError(
                f"Java ended before Spark was ready; it had to download {packages}, and its messages above say why that "
                "failed. Where there is no network, give the files: --conf spark.jars=/path/one.jar,/path/other.jar"
            ) from problem
        home = Path(variables.get("JAVA_HOME", ""))
        if not discard_archive(home):
            raise
        _log.warning(
            "Java did not start from its archive of classes in %s, which was deleted", home
        )
        return create()


def _release_output(spark: SparkSession) -> None:
    """Close standard output and error in the JVM, which may write its archive of classes for seconds after the program has
    ended: a program that reads them would wait for it. (Java points both files to /dev/null.)"""
    with suppress(Exception):
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        system = gateway.jvm.java.lang.System
        system.out.close()
        system.err.close()


def running_session() -> SparkSession | None:
    """The active session of this thread or of the program; None when there is none."""
    spark_session = _session_class()
    from pyspark.errors import PySparkRuntimeError

    try:
        return spark_session.active()
    except PySparkRuntimeError:
        return None


def spark_is_installed() -> bool:
    """Whether pyspark can be imported; does not import it."""
    try:
        return find_spec("pyspark") is not None
    except ValueError:  # sys.modules has an object of that name that is no module
        return False


def _session_class() -> type[SparkSession]:
    try:
        import pyspark
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtra("spark", "a Spark session") from None
    check_pyspark(pyspark.__version__)
    return SparkSession


def check_pyspark(version: str) -> None:
    """Refuse a version that lacks what the source and the sink are made of."""
    if tuple(int(number) for number in re.findall(r"\d+", version)[:2]) < LEAST_PYSPARK:
        least = ".".join(map(str, LEAST_PYSPARK))
        raise SparkError(
            f"Headgate needs PySpark {least} or newer, and {version} is installed: "
            "pip install --upgrade 'headgate[spark]' (in a clone: pip install --upgrade -e '.[spark]')"
        )


# ---- settings ----------------------------------------------------------------------------------------


class SparkMaster(NamedTuple):
    """The URL of the cluster Spark runs on, and the setting that carries it."""

    setting: str
    url: str

    @property
    def on_this_machine(self) -> bool:
        return self.url.startswith("local") and not self.url.startswith("local-cluster")


def choose_master(
    master: str | None, overrides: Mapping[str, str], environ: Mapping[str, str]
) -> SparkMaster | None:
    """The master of the argument, the configuration or the setting `spark_master`; None under spark-submit."""
    remote = overrides.get(_REMOTE) or environ.get("SPARK_REMOTE")
    if master is not None:
        return _master_of(master)
    if remote is not None:
        return SparkMaster(_REMOTE, remote)
    if _MASTER in overrides:
        return SparkMaster(_MASTER, overrides[_MASTER])
    if "PYSPARK_GATEWAY_PORT" in environ:
        return None
    return _master_of(load_settings(environment=environ).spark_master)


def _master_of(url: str) -> SparkMaster:
    return (
        SparkMaster(_REMOTE, url)
        if url.startswith("sc://")
        else SparkMaster(_MASTER, with_tries(url))
    )


def with_tries(master: str) -> str:
    """Add the number of tries for each task to a local master that has none."""
    local = _LOCAL.fullmatch(master)
    return master if local is None else f"local[{local[1] or 1},{_TRIES}]"


def cores_of(spark: SparkSession) -> int | None:
    """How many tasks run at once; None with Spark Connect, which does not report it.

    On a cluster, executors may still be starting: the number is at least that of this machine's cores.
    """
    context = getattr(spark, "sparkContext", None)
    if context is None:
        return None
    known: int = context.defaultParallelism
    return known if (context.master or "").startswith("local") else max(known, os.cpu_count() or 1)


def settings(
    cluster: SparkMaster | None, overrides: Mapping[str, str], *, cores: int, scratch: Path
) -> dict[str, str]:
    """All settings of a new session."""
    defaults = {**_query_settings(), **_master_settings(cluster, cores, scratch)}
    if _JAVA_OPTIONS in defaults and _JAVA_OPTIONS in overrides:
        # Of two equal options, Java takes the last.
        options = f"{defaults[_JAVA_OPTIONS]} {overrides[_JAVA_OPTIONS]}"
        overrides = {**overrides, _JAVA_OPTIONS: options}
    return {**defaults, **overrides}


def _query_settings() -> dict[str, str]:
    return {
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
    }


def _master_settings(cluster: SparkMaster | None, cores: int, scratch: Path) -> dict[str, str]:
    if cluster is None:
        return {}
    if cluster.setting == _REMOTE:  # a client of Spark Connect may only change settings of queries
        return {_REMOTE: cluster.url}
    common = {
        # Otherwise every method of a column looks up its caller, which is ten times slower.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
        _JAVA_OPTIONS: f"-Dlog4j2.configurationFile={(scratch / 'log4j2.properties').as_uri()}",
    }
    small = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        "spark.ui.enabled": "false",
    }
    return {_MASTER: cluster.url, **common, **(small if cluster.on_this_machine else {})}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# ---- starting ----------------------------------------------------------------------------------------


def _scratch(log_settings: str) -> Path:
    """Create a folder for files that Spark would write into the working directory; it is deleted at exit."""
    scratch = Path(tempfile.mkdtemp(prefix="headgate-spark-"))
    _at_exit(shutil.rmtree, scratch, True)
    (scratch / "log4j2.properties").write_text(log_settings)
    return scratch


def check_python(cluster: SparkMaster | None, environ: Mapping[str, str]) -> None:
    """Refuse a cluster without PYSPARK_PYTHON: its workers would run the first python3 of their PATH."""
    if cluster is None or cluster.setting == _REMOTE or cluster.url.startswith("local"):
        return
    if not environ.get("PYSPARK_PYTHON") and "PYSPARK_GATEWAY_PORT" not in environ:
        version = ".".join(map(str, sys.version_info[:2]))
        raise SparkError(
            f"{cluster.url}: PYSPARK_PYTHON is not set; set it to a Python {version} that has headgate[spark] installed on every "
            f"machine, for example: export PYSPARK_PYTHON={sys.executable}"
        )


def _launch_variables(cluster: SparkMaster | None) -> dict[str, str]:
    """The environment variables that a new JVM and every new context in it need."""
    from pyspark import SparkContext

    if cluster is None or cluster.url.startswith("sc://"):
        return {}
    new_jvm = SparkContext._gateway is None
    variables = {}
    if cluster.url.startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        # Spark would run the first python3 of the PATH, which may be another one.
        variables["PYSPARK_PYTHON"] = sys.executable
        # A JVM that is running knows a fork server only if it was started with one.
        known = new_jvm or _fork_server_variables.cache_info().currsize
        if cluster.on_this_machine and known and may_fork(os.environ):
            variables |= _fork_server_variables()
    if new_jvm:
        variables["JAVA_HOME"] = str(java_home())
    return variables


def may_fork(environ: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Whether Python workers may be forks of a process that has imported this Python's PySpark.

    Not where SPARK_HOME names another Spark, with a PySpark of its own, and on Linux only: macOS may end a fork of a process
    that uses its frameworks.
    """
    wished = load_settings(environment=environ).spark_fast_start
    return wished and platform == "linux" and "SPARK_HOME" not in environ


@cache
def _fork_server_variables() -> Mapping[str, str]:
    """Start the fork server of this process; none where it cannot be started."""
    try:
        server = ForkServer()
    except OSError as problem:
        _log.info("no fork server, so Spark starts every Python worker itself: %s", problem)
        return {}
    _at_exit(server.close)
    return server.variables


def _at_exit(action: Callable[..., object], *arguments: object) -> None:
    """Call at the end of this process, and not at that of its forks."""
    owner = os.getpid()

    def act() -> None:
        if os.getpid() == owner:
            action(*arguments)

    atexit.register(act)


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


@contextmanager
def _keep_interrupt_handler() -> Iterator[None]:
    """Keep PySpark from replacing the program's own handler of Ctrl-C: its handler raises in the middle of a call to Java."""
    own = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if own not in (None, signal.default_int_handler, signal.getsignal(signal.SIGINT)):
            signal.signal(signal.SIGINT, own)


# ---- reaching the master -----------------------------------------------------------------------------
# Spark itself tries for minutes to reach a master that does not answer.

Address: TypeAlias = tuple[str, int]

CONNECT_TIMEOUT_S: Final = 5.0
_PORTS: Final = {
    "spark://": 7077,
    "sc://": 15002,
    "k8s://": 443,
    "k8s://https://": 443,
    "k8s://http://": 80,
}
_URL: Final = re.compile(r"(spark://|sc://|k8s://(?:https?://)?)([^/;?]+)")
_PROXIES: Final = ("grpc_proxy", "https_proxy", "http_proxy")  # of Spark Connect and Kubernetes
_ADDRESS: Final = re.compile(r"\[?([^\]]+?)\]?(?::(\d{1,5}))?")


def check_master(url: str, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
    """Refuse a cluster if none of its masters accepts a connection; local masters and proxies are not checked."""
    addresses = () if _behind_proxy(url) else addresses_of(url)
    if addresses and not answers(addresses, timeout_s):
        shown = url.partition(";")[0]  # a token may follow
        raise SparkError(
            f"no Spark answers at {shown} (tried for {timeout_s:g} s); check that it is running and that the address is right. "
            "Without --master and spark_master, Spark runs on this machine"
        )


def _behind_proxy(url: str) -> bool:
    proxies = {name.lower() for name, value in os.environ.items() if value}
    return not url.startswith("spark://") and not proxies.isdisjoint(_PROXIES)


def addresses_of(url: str) -> list[Address]:
    """The hosts and ports of a master's URL: spark://one:7077,two:7077, sc://host, k8s://https://host:6443."""
    match = _URL.match(url)
    if match is None:
        return []
    addresses = (_ADDRESS.fullmatch(text) for text in match[2].split(","))
    return [(one[1], int(one[2] or _PORTS[match[1]])) for one in addresses if one]


def answers(addresses: Sequence[Address], timeout_s: float) -> bool:
    """Whether one of the addresses accepts a connection within that time; all are tried at once."""
    outcomes: Queue[bool] = Queue()
    for address in addresses:
        # A daemon thread: looking up a name may take longer than the timeout.
        Thread(target=_try, args=(address, timeout_s, outcomes), daemon=True).start()
    deadline = time.monotonic() + timeout_s
    for _ in addresses:
        try:
            if outcomes.get(timeout=max(deadline - time.monotonic(), 0.0)):
                return True
        except Empty:
            return False
    return False


def _try(address: Address, timeout_s: float, outcomes: Queue[bool]) -> None:
    try:
        socket.create_connection(address, timeout_s).close()
    except (OSError, OverflowError, UnicodeError):
        outcomes.put(False)
    else:
        outcomes.put(True)
