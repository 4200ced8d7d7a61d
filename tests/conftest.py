"""Fixtures of all tests: the seed, the number of rounds, one PostgreSQL server and one Spark session for the whole run."""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, core, settings

from headgate.broker import passwords
from headgate.check.postgres import private_server
from headgate.errors import ServerNotFound
from headgate.spark.sessions import session
from headgate.streams import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["headgate.testing.fixtures"]

FULL = os.environ.get("HEADGATE_FULL") == "1"
SEED = int(os.environ.get("HEADGATE_SEED") or random.SystemRandom().randrange(2**32))
os.environ["HEADGATE_SEED"] = str(SEED)  # for the processes that share the work

core.global_force_seed = SEED
settings.register_profile(
    "headgate",
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
settings.load_profile("headgate")


def pytest_report_header() -> str:
    rounds = "full rounds" if FULL else "everyday rounds"
    return f"headgate: HEADGATE_SEED={SEED}, {rounds} (HEADGATE_FULL={int(FULL)})"


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where several processes share the work, all tests that use Spark go to one of them."""
    for item in items:
        if (
            "spark" in getattr(item, "fixturenames", ())
            or "tests/integration/spark/" in item.nodeid
        ):
            item.add_marker(pytest.mark.xdist_group("spark"))


def pytest_collection_finish() -> None:
    """Keep the modules and the collected tests out of garbage collections, which would traverse them each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def seed() -> int:
    """The seed of this run; printed in its header, set with HEADGATE_SEED."""
    return SEED


@pytest.fixture(scope="session")
def full() -> bool:
    """Whether HEADGATE_FULL asks for the full number of rounds."""
    return FULL


@pytest.fixture(scope="session", autouse=True)
def quick_passwords(full: bool) -> Iterator[None]:
    """Everyday, a password costs 2 ms instead of 150 in brokers of this process: the least that is accepted."""
    with pytest.MonkeyPatch.context() as patch:
        if not full:
            patch.setattr(passwords, "LOG_N", 10)
            patch.setattr(passwords, "PARALLEL", 1)
        yield


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[Stream]:
    """An empty stream that commits when it is flushed, and not by itself."""
    with Stream.create(tmp_path / "s", linger=timedelta(hours=1)) as stream:
        yield stream


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A private PostgreSQL server for the whole run. Where none can be started, tests that need it fail."""
    try:
        with private_server() as url:
            yield url
    except ServerNotFound as problem:
        pytest.fail(f"these tests need a PostgreSQL server: {problem}", pytrace=False)


@pytest.fixture
def postgres_schema(postgres_url: str) -> Iterator[str]:
    """The name of a schema that does not exist yet; dropped after the test."""
    import psycopg

    name = f"test_{uuid4().hex[:12]}"
    yield name
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for the whole run."""
    quick_start = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    started = session("headgate tests", config={"spark.driver.extraJavaOptions": quick_start})
    yield started
    started.stop()
