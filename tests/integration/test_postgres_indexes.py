"""Programs that declare filter headers at the same time build the indexes one after the other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from headgate.queues.database import connect
from tests.patience import wait_until

pytestmark = pytest.mark.postgres


def test_a_program_waits_while_another_builds_an_index(postgres_url, postgres_schema):
    with (
        connect(postgres_url, schema=postgres_schema) as one,
        connect(postgres_url, schema=postgres_schema) as two,
        psycopg.connect(postgres_url, autocommit=True) as observer,
        ThreadPoolExecutor(2) as pool,
    ):

        def runs(text: str) -> bool:
            found = observer.execute(
                "SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND query LIKE %s"
                " AND pid <> pg_backend_pid()",
                (f"%{text}%",),
            )
            return bool(found.fetchall())

        one.queue("q")
        with psycopg.connect(postgres_url) as writer:  # the build waits for its transaction
            writer.execute(f"LOCK TABLE {postgres_schema}.delivery IN ROW EXCLUSIVE MODE")
            first = pool.submit(one.queue, "q", filter_headers=["a"])
            wait_until(lambda: runs("CREATE INDEX CONCURRENTLY"))
            second = pool.submit(two.queue, "q", filter_headers=["b"])
            wait_until(lambda: runs("headgate.indexes."))
        first.result()
        second.result()
        assert one.find("q").info.indexed == ("a", "b")
