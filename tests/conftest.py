"""What every test may ask for: a seed, how thorough to be, and one server or session for the whole run."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, core, settings

from headgate.spark.sessions import session
from tests.postgres_server import running_server

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


@pytest.hookimpl(tryfirst=True)  # before the groups are read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where several processes share the work, everything that asks for Spark goes to one of them."""
    for item in items:
        if (
            "spark" in getattr(item, "fixturenames", ())
            or "tests/integration/spark/" in item.nodeid
        ):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def seed() -> int:
    """The seed of this run; printed in its header, set with HEADGATE_SEED."""
    return SEED


@pytest.fixture(scope="session")
def full() -> bool:
    """Whether the full number of rounds is wanted."""
    return FULL


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL server of our own, for the whole run."""
    with running_server() as url:
        yield url


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for the whole run."""
    quick_start = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    started = session("headgate tests", **{"spark.driver.extraJavaOptions": quick_start})
    yield started
    started.stop()
