"""What a session is built with, decided without starting one."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from headgate.errors import SparkError
from headgate.spark.sessions import (
    SparkMaster,
    check_python,
    choose_master,
    cores_of,
    settings,
    with_tries,
)

SCRATCH = Path("/tmp/scratch")
HERE = SparkMaster("spark.master", "local[*,4]")


def built_with(place: SparkMaster | None, **given: str) -> dict[str, str]:
    return settings(place, given, cores=2, scratch=SCRATCH)


def test_spark_runs_on_this_machine_unless_asked_otherwise():
    assert choose_master(None, {}, {}) == HERE
    assert choose_master("spark://host:7077", {}, {}) == SparkMaster(
        "spark.master", "spark://host:7077"
    )
    assert choose_master(None, {"spark.master": "local[1]"}, {}) == SparkMaster(
        "spark.master", "local[1]"
    )


def test_the_settings_say_where_spark_runs(tmp_path):
    environ = {"HEADGATE_SPARK_MASTER": "sc://host"}
    assert choose_master(None, {}, environ) == SparkMaster("spark.remote", "sc://host")
    file = tmp_path / "headgate.toml"
    file.write_text('spark_master = "local[2]"')
    assert choose_master(None, {}, {"HEADGATE_CONFIG": str(file)}) == SparkMaster(
        "spark.master", "local[2,4]"
    )
    assert choose_master("local[1]", {}, environ) == SparkMaster("spark.master", "local[1,4]")


def test_a_task_is_tried_again_on_this_machine_unless_asked_otherwise():
    assert with_tries("local") == "local[1,4]"
    assert with_tries("local[*]") == "local[*,4]"
    for said in ("local[2,1]", "local-cluster[2,1,1024]", "spark://host:7077", "yarn"):
        assert with_tries(said) == said


def test_a_connect_server_is_reached_by_its_address():
    server = SparkMaster("spark.remote", "sc://host")
    assert choose_master("sc://host", {}, {}) == server
    assert choose_master(None, {}, {"SPARK_REMOTE": "sc://host"}) == server
    assert "spark.master" not in built_with(server)


def test_what_spark_submit_has_decided_stays():
    place = choose_master(None, {}, {"PYSPARK_GATEWAY_PORT": "4242"})
    assert place is None
    assert all(key.startswith("spark.sql.") for key in built_with(place))


def test_a_cluster_is_not_bound_to_loopback():
    cluster = built_with(SparkMaster("spark.master", "spark://host:7077"))
    assert "spark.driver.bindAddress" not in cluster
    assert "spark.sql.warehouse.dir" not in cluster
    assert built_with(HERE)["spark.driver.bindAddress"] == "127.0.0.1"


def test_the_given_settings_win():
    given = {"spark.ui.enabled": "true", "spark.sql.session.timeZone": "Europe/Berlin"}
    chosen = built_with(HERE, **given)
    assert chosen["spark.ui.enabled"] == "true"
    assert chosen["spark.sql.session.timeZone"] == "Europe/Berlin"


def test_given_java_options_come_after_ours_so_that_they_win():
    options = built_with(HERE, **{"spark.driver.extraJavaOptions": "-Xss8m"})
    ours, given = options["spark.driver.extraJavaOptions"].split()
    assert ours.startswith("-Dlog4j2.configurationFile=file:///tmp/scratch/")
    assert given == "-Xss8m"


def test_a_cluster_is_refused_until_it_is_said_which_python_its_workers_run():
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


def test_behind_spark_connect_nobody_says_how_many_cores_there_are():
    assert cores_of(object()) is None
