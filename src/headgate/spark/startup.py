"""What PySpark does without need when a session starts and ends, left out: about a third of the time of a short program."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from functools import cache, wraps
from pathlib import Path
from socketserver import BaseServer
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_log: Final = logging.getLogger(__name__)
_PROVIDERS: Final = "META-INF/services/org.apache.spark.sql.SparkSessionExtensionsProvider"
_ML_JAR: Final = "/spark-mllib_"
_EXTENSIONS: Final = "spark.sql.extensions"


# ---- pandas ------------------------------------------------------------------------------------------


@cache
def convert_without_pandas() -> None:
    """Keep PySpark from importing pandas with the first argument that is passed to Java.

    To find out whether NumPy is installed, its converters import `pyspark.testing`, which imports pandas, Google's packages
    and more. Now a converter is asked only about values whose class, or a class it extends, is one of NumPy's.
    """
    from pyspark.sql import types

    for name in ("NumpyScalarConverter", "NumpyArrayConverter"):
        converter = getattr(types, name, None)
        if converter is not None:
            converter.can_convert = _of_numpy_only(converter.can_convert)


def _of_numpy_only(can_convert: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    @wraps(can_convert)
    def ask(self: Any, value: Any) -> bool:
        return is_of_numpy(value) and can_convert(self, value)

    return ask


def is_of_numpy(value: object) -> bool:
    """Tell whether the class of a value is one of NumPy's, or extends one; imports nothing."""
    return any(kind.__module__.partition(".")[0] == "numpy" for kind in type(value).__mro__)


# ---- extensions --------------------------------------------------------------------------------------


def create_without_ml(settings: Mapping[str, str]) -> None:
    """Start Spark on this machine, and create its session without the functions of `pyspark.ml`.

    Spark finds the class that registers them beside its own classes and loads it for every first session, which takes a
    second. No SQL can name these functions. Where there are other extensions, the session is left to PySpark.
    """
    from pyspark import SparkConf, SparkContext

    context = SparkContext.getOrCreate(SparkConf().setAll(list(settings.items())))
    try:
        _create_session(context, settings)
    except Exception as problem:  # another Spark than those this was written for
        _log.info("the session is created with the functions of pyspark.ml: %s", problem)


def _create_session(context: SparkContext, settings: Mapping[str, str]) -> None:
    jvm = context._jvm
    assert jvm is not None
    thread = jvm.java.lang.Thread.currentThread()
    loader = thread.getContextClassLoader()
    if context.getConf().contains(_EXTENSIONS) or not _is_ml_alone(loader):
        return
    builder = getattr(jvm, "org.apache.spark.sql.classic.SparkSession").builder()
    builder = builder.config(dict(settings))
    without = jvm.java.lang.ClassLoader.getPlatformClassLoader()
    # Spark looks for extensions with the class loader of the thread, and for nothing else here.
    thread.setContextClassLoader(without)
    try:
        builder.getOrCreate()
    finally:
        thread.setContextClassLoader(loader)


def _is_ml_alone(loader: Any) -> bool:
    """Tell whether Spark's ML library is the only one that adds extensions to sessions."""
    found = loader.getResources(_PROVIDERS)
    places = []
    while found.hasMoreElements():
        places.append(str(found.nextElement().toString()))
    return len(places) == 1 and _ML_JAR in places[0]


# ---- the end -----------------------------------------------------------------------------------------


def silence_closed_connections(spark: SparkSession) -> None:
    """Keep PySpark's server of accumulators from printing that Java closed its connection, as stopping a query or Spark does."""
    server: Any = getattr(getattr(spark, "sparkContext", None), "_accumulatorServer", None)
    if not isinstance(server, BaseServer):
        return
    print_error = server.handle_error

    def print_others(*arguments: Any) -> None:
        if not isinstance(sys.exc_info()[1], EOFError):
            print_error(*arguments)

    setattr(server, "handle_error", print_others)  # noqa: B010


def stop_session(spark: SparkSession) -> None:
    """Stop a session without waiting for PySpark's server of accumulators, which notices that it shall end after up to a second."""
    context: Any = getattr(spark, "sparkContext", None)  # none with Spark Connect
    server = getattr(context, "_accumulatorServer", None)
    if not isinstance(server, BaseServer):
        spark.stop()
        return
    context._accumulatorServer = None
    try:
        spark.stop()
    finally:
        if isinstance(server.server_address, str):  # a socket in a file, which must not stay behind
            Path(server.server_address).unlink(missing_ok=True)
        Thread(target=server.shutdown, daemon=True).start()
