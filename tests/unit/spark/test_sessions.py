"""What a session is built with, decided without starting one."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest

from headgate.errors import SparkError
from headgate.spark import sessions
from headgate.spark.sessions import (
    SparkMaster,
    addresses_of,
    answers,
    check_master,
    check_python,
    choose_master,
    cores_of,
    may_fork,
    settings,
    with_tries,
)

SCRATCH = Path("/tmp/scratch")
HERE = SparkMaster("spark.master", "local[*,4]")


def built_with(place: SparkMaster | None, **given: str) -> dict[str, str]:
    return settings(place, given, cores=2, scratch=SCRATCH)


def test_spark_runs_on_this_machine_by_default():
    assert choose_master(None, {}, {}) == HERE
    assert choose_master("spark://host:7077", {}, {}) == SparkMaster(
        "spark.master", "spark://host:7077"
    )
    assert choose_master(None, {"spark.master": "local[1]"}, {}) == SparkMaster(
        "spark.master", "local[1]"
    )


def test_the_setting_spark_master_decides_where_spark_runs(tmp_path):
    environ = {"HEADGATE_SPARK_MASTER": "sc://host"}
    assert choose_master(None, {}, environ) == SparkMaster("spark.remote", "sc://host")
    file = tmp_path / "headgate.toml"
    file.write_text('spark_master = "local[2]"')
    assert choose_master(None, {}, {"HEADGATE_CONFIG": str(file)}) == SparkMaster(
        "spark.master", "local[2,4]"
    )
    assert choose_master("local[1]", {}, environ) == SparkMaster("spark.master", "local[1,4]")


def test_a_local_master_retries_tasks_by_default():
    assert with_tries("local") == "local[1,4]"
    assert with_tries("local[*]") == "local[*,4]"
    for said in ("local[2,1]", "local-cluster[2,1,1024]", "spark://host:7077", "yarn"):
        assert with_tries(said) == said


def test_a_connect_server_is_reached_by_its_address():
    server = SparkMaster("spark.remote", "sc://host")
    assert choose_master("sc://host", {}, {}) == server
    assert choose_master(None, {}, {"SPARK_REMOTE": "sc://host"}) == server
    assert "spark.master" not in built_with(server)


def test_the_master_of_spark_submit_is_kept():
    place = choose_master(None, {}, {"PYSPARK_GATEWAY_PORT": "4242"})
    assert place is None
    assert all(key.startswith("spark.sql.") for key in built_with(place))


def test_workers_are_forked_on_linux_unless_it_is_switched_off_or_spark_is_another(tmp_path):
    assert may_fork({}, "linux")
    assert not may_fork({}, "darwin")
    assert not may_fork({"HEADGATE_SPARK_FAST_START": "0"}, "linux")
    assert not may_fork({"SPARK_HOME": "/opt/spark"}, "linux")


@pytest.mark.parametrize(
    ("master", "wanted"),
    [
        (None, {}),  # spark-submit
        (SparkMaster("spark.remote", "sc://host"), {}),
        (SparkMaster("spark.master", "spark://host:7077"), {"JAVA_HOME"}),
        (SparkMaster("spark.master", "local-cluster[2,1,1024]"), {"JAVA_HOME", "PYSPARK_PYTHON"}),
        (HERE, {"JAVA_HOME", "PYSPARK_PYTHON", "SERVER"}),
    ],
)
def test_only_a_jvm_on_this_machine_knows_a_fork_server(monkeypatch, master, wanted):
    assert set(launched_with(monkeypatch, master, gateway=None)) == set(wanted)


def test_a_python_that_is_named_by_the_user_is_kept(monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert set(launched_with(monkeypatch, HERE, gateway=None)) == {"JAVA_HOME"}


def test_a_jvm_that_is_running_gets_no_fork_server(monkeypatch):
    assert launched_with(monkeypatch, HERE, gateway=object()) == {"PYSPARK_PYTHON": sys.executable}


def test_a_session_starts_where_no_fork_server_can_be_started(monkeypatch):
    def fail() -> None:
        raise OSError("AF_UNIX path too long")

    monkeypatch.setattr(sessions, "ForkServer", fail)
    sessions._fork_server_variables.cache_clear()
    assert sessions._fork_server_variables() == {}
    sessions._fork_server_variables.cache_clear()


def launched_with(monkeypatch, master: SparkMaster | None, gateway: object) -> dict[str, str]:
    from pyspark import SparkContext

    @cache
    def started() -> dict[str, str]:
        return {"SERVER": "socket"}

    monkeypatch.setattr(SparkContext, "_gateway", gateway)
    monkeypatch.setattr(sessions, "java_home", lambda: Path("/opt/java"))
    monkeypatch.setattr(sessions, "_fork_server_variables", started)
    return sessions._launch_variables(master)


def test_a_cluster_is_not_bound_to_loopback():
    cluster = built_with(SparkMaster("spark.master", "spark://host:7077"))
    assert "spark.driver.bindAddress" not in cluster
    assert "spark.sql.warehouse.dir" not in cluster
    assert built_with(HERE)["spark.driver.bindAddress"] == "127.0.0.1"


def test_config_overrides_our_settings():
    given = {"spark.ui.enabled": "true", "spark.sql.session.timeZone": "Europe/Berlin"}
    chosen = built_with(HERE, **given)
    assert chosen["spark.ui.enabled"] == "true"
    assert chosen["spark.sql.session.timeZone"] == "Europe/Berlin"


def test_java_options_of_config_come_after_ours():
    options = built_with(HERE, **{"spark.driver.extraJavaOptions": "-Xss8m"})
    ours, given = options["spark.driver.extraJavaOptions"].split()
    assert ours.startswith("-Dlog4j2.configurationFile=file:///tmp/scratch/")
    assert given == "-Xss8m"


def test_a_cluster_is_refused_without_pyspark_python():
    cluster = SparkMaster("spark.master", "spark://host:7077")
    with pytest.raises(SparkError, match=r"spark://host:7077: .*export PYSPARK_PYTHON="):
        check_python(cluster, {})
    check_python(cluster, {"PYSPARK_PYTHON": "python3"})
    check_python(cluster, {"PYSPARK_GATEWAY_PORT": "4242"})  # spark-submit has decided already
    here = ("local[2]", "local-cluster[1,1,1024]")
    for place in (
        None,
        SparkMaster("spark.remote", "sc://host"),
        *(SparkMaster("spark.master", u) for u in here),
    ):
        check_python(place, {})


class Session:
    """As much of a session as is asked."""

    def __init__(self, master: str, tasks: int):
        self.sparkContext = SimpleNamespace(master=master, defaultParallelism=tasks)


def test_cores_are_those_spark_runs_tasks_on():
    assert cores_of(Session("local[3]", 3)) == 3
    assert cores_of(Session("spark://host:7077", 1000)) == 1000
    here = os.cpu_count() or 1
    assert cores_of(Session("spark://host:7077", 1)) == max(1, here)  # executors are on their way


def test_spark_connect_does_not_report_the_number_of_cores():
    assert cores_of(object()) is None


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def refusing() -> int:
    """A port without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("spark://one:7077", [("one", 7077)]),
        ("spark://one:7077,two:7078", [("one", 7077), ("two", 7078)]),
        ("spark://one", [("one", 7077)]),
        ("spark://[::1]:7077", [("::1", 7077)]),
        ("sc://host", [("host", 15002)]),
        ("sc://host:15/;user_id=me;token=x", [("host", 15)]),
        ("k8s://https://host:6443", [("host", 6443)]),
        ("k8s://host", [("host", 443)]),
        ("k8s://http://host", [("host", 80)]),
        ("local[*]", []),
        ("local-cluster[2,1,1024]", []),
        ("yarn", []),
        ("bogus://x", []),
        ("spark://", []),
    ],
)
def test_a_masters_url_names_its_addresses(url, wanted):
    assert addresses_of(url) == wanted


def test_one_master_that_answers_is_enough(listening, refusing):
    check_master(f"spark://127.0.0.1:{refusing},127.0.0.1:{listening}")


def test_a_cluster_without_a_listener_is_refused_with_the_remedy(refusing):
    with pytest.raises(SparkError, match=r"no Spark answers at spark://.*check that it is running"):
        check_master(f"spark://127.0.0.1:{refusing}")


def test_a_master_behind_a_proxy_is_not_checked(refusing, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    check_master(f"sc://127.0.0.1:{refusing}")
    check_master(f"k8s://https://127.0.0.1:{refusing}")
    with pytest.raises(SparkError):
        check_master(f"spark://127.0.0.1:{refusing}")


def test_a_token_is_not_shown(refusing, monkeypatch):
    for name in ("grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with pytest.raises(SparkError) as refused:
        check_master(f"sc://127.0.0.1:{refusing}/;user_id=me;token=secret")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("port", ["0", "99999"])
def test_a_port_that_cannot_be_is_refused_too(port):
    with pytest.raises(SparkError):
        check_master(f"spark://127.0.0.1:{port}")


def test_an_address_that_does_not_answer_times_out(monkeypatch):
    released = Event()

    def hang(*_: object) -> None:
        released.wait(30)
        raise OSError

    monkeypatch.setattr(sessions.socket, "create_connection", hang)
    begin = time.monotonic()
    assert not answers([("black.hole", 7077)], 0.1)
    assert time.monotonic() - begin < 5
    released.set()


def test_no_session_is_started_for_a_cluster_that_does_not_answer(monkeypatch, refusing):
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    monkeypatch.setattr(sessions, "running_session", lambda: None)
    monkeypatch.setattr(sessions, "_session_class", lambda: pytest.fail("Spark was started"))
    with pytest.raises(SparkError, match="no Spark answers"):
        sessions.session(master=f"spark://127.0.0.1:{refusing}")


def test_packages_that_cannot_be_downloaded_are_named_and_the_archive_of_classes_stays(monkeypatch):
    from pyspark.errors import PySparkRuntimeError

    def fail():
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr(sessions, "discard_archive", lambda home: pytest.fail("it is not broken"))
    with pytest.raises(SparkError, match=r"download io.delta:delta-spark_2.13:4.0.0.*spark\.jars="):
        sessions._start(fail, {}, "io.delta:delta-spark_2.13:4.0.0")


@pytest.mark.parametrize("version", ["3.5.9", "4.0.3", "4.1.4", "4.1.0.dev1"])
def test_a_pyspark_that_is_too_old_is_refused_with_the_remedy(version):
    with pytest.raises(SparkError, match=r"needs PySpark 4\.2 or newer.*pip install --upgrade"):
        sessions.check_pyspark(version)


@pytest.mark.parametrize("version", ["4.2.0", "4.3.0", "4.10.1", "5.0.0"])
def test_a_pyspark_that_has_what_is_needed_is_accepted(version):
    sessions.check_pyspark(version)


# ---- Ctrl-C ------------------------------------------------------------------------------------------


@pytest.fixture
def interrupt_handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def of_program(number: int, frame: object) -> None: ...


def of_pyspark(number: int, frame: object) -> None: ...


@pytest.mark.parametrize(
    ("own", "kept"),
    [(of_program, of_program), (signal.default_int_handler, of_pyspark)],
)
def test_a_session_keeps_the_programs_own_handler_of_ctrl_c(interrupt_handler, own, kept):
    signal.signal(signal.SIGINT, own)
    with sessions._keep_interrupt_handler():
        signal.signal(signal.SIGINT, of_pyspark)
    assert signal.getsignal(signal.SIGINT) is kept
