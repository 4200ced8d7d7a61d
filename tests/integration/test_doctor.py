"""headgate doctor with a running PostgreSQL server."""

from __future__ import annotations

import pytest

from headgate.insights.health import check_postgres


@pytest.mark.postgres
def test_the_check_of_a_running_server_finds_its_version(postgres_url):
    found = check_postgres(postgres_url)
    assert found.state == "fine"
    assert found.found.startswith("server ")
