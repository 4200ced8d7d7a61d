"""What a session leaves out of PySpark's start and end, without starting one."""

from __future__ import annotations

import socket
import socketserver
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace

import numpy as np
import pytest
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

from headgate.spark import startup
from headgate.spark.startup import (
    convert_without_pandas,
    is_of_numpy,
    silence_closed_connections,
    stop_session,
)

ML = "jar:file:/spark/jars/spark-mllib_2.13-4.3.0.jar!/META-INF/services/x"


class OwnArray(np.ndarray):
    """A class of a user that extends NumPy's."""


@pytest.mark.parametrize(
    "value", [np.int64(1), np.float32(1.5), np.zeros(2), np.zeros(2).view(OwnArray)]
)
def test_a_value_of_numpy_is_recognized(value):
    assert is_of_numpy(value)


@pytest.mark.parametrize("value", [1, "text", None, [1], {"a": 1}, object()])
def test_other_values_are_not_numpys(value):
    assert not is_of_numpy(value)


def test_pyspark_still_converts_what_is_numpys():
    convert_without_pandas()
    assert NumpyScalarConverter().can_convert(np.int64(1))
    assert NumpyArrayConverter().can_convert(np.zeros(2))
    assert not NumpyArrayConverter().can_convert([1, 2])
    assert not NumpyScalarConverter().can_convert(1)


class Resources:
    """Java's enumeration of the places of a resource."""

    def __init__(self, *places: str) -> None:
        self.places = list(places)

    def hasMoreElements(self) -> bool:
        return bool(self.places)

    def nextElement(self) -> SimpleNamespace:
        place = self.places.pop(0)
        return SimpleNamespace(toString=lambda: place)


@pytest.mark.parametrize(
    ("places", "alone"),
    [
        ([ML], True),
        ([], False),
        ([ML, "jar:file:/spark/jars/delta.jar!/x"], False),
        (["jar:file:/spark/jars/delta.jar!/x"], False),
    ],
)
def test_a_session_with_extensions_of_others_is_left_to_pyspark(places, alone):
    loader = SimpleNamespace(getResources=lambda name: Resources(*places))
    assert startup._is_ml_alone(loader) is alone


# ---- the end -----------------------------------------------------------------------------------------


class SlowServer(socketserver.UnixStreamServer):
    """Ends when it is told to, as PySpark's server ends when it looks at its flag next."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), socketserver.BaseRequestHandler)
        self.may_end, self.ended, self.reading = Event(), Event(), Event()

    def shutdown(self) -> None:
        self.may_end.wait()
        super().shutdown()
        self.server_close()
        self.ended.set()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SlowServer]:
    server = SlowServer(tmp_path / "socket")
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.may_end.set()
    assert server.ended.wait(60)


def test_a_session_stops_without_waiting_for_the_server_of_accumulators(server, tmp_path):
    context = SimpleNamespace(_accumulatorServer=server)
    stopped: list[bool] = []
    stop_session(SimpleNamespace(sparkContext=context, stop=lambda: stopped.append(True)))
    assert stopped == [True]
    assert not server.ended.is_set()
    assert list(tmp_path.iterdir()) == []
    assert context._accumulatorServer is None


class UntilTheEnd(socketserver.BaseRequestHandler):
    """Reads like PySpark's handler of accumulators, to which a connection that ends is an error."""

    def handle(self) -> None:
        self.server.reading.set()
        if not self.request.recv(1):
            raise EOFError


def test_a_connection_that_spark_ends_while_it_stops_prints_no_traceback(server, tmp_path, capsys):
    server.RequestHandlerClass = UntilTheEnd
    java = socket.socket(socket.AF_UNIX)
    java.connect(server.server_address)
    assert server.reading.wait(60)
    context = SimpleNamespace(_accumulatorServer=server)
    spark = SimpleNamespace(sparkContext=context, stop=lambda: java.close())
    silence_closed_connections(spark)
    stop_session(spark)
    server.may_end.set()
    assert server.ended.wait(60)
    assert capsys.readouterr().err == ""


def test_a_session_of_spark_connect_is_only_stopped():
    stopped: list[bool] = []
    stop_session(SimpleNamespace(stop=lambda: stopped.append(True)))
    assert stopped == [True]


def test_a_session_is_stopped_by_pyspark_alone_if_its_server_is_an_unknown_one():
    context = SimpleNamespace(_accumulatorServer=object())
    stopped: list[object] = []
    spark = SimpleNamespace(sparkContext=context)
    spark.stop = lambda: stopped.append(context._accumulatorServer)
    stop_session(spark)
    assert stopped == [context._accumulatorServer]
    assert stopped != [None]
