"""headgate doctor against a running server."""

from __future__ import annotations

import pytest

from headgate.insights.health import check_postgres


@pytest.mark.postgres
def test_a_server_is_looked_at_without_being_changed(postgres_url):
    found = check_postgres(postgres_url)
    assert found.state == "fine"
    assert found.found.startswith("server ")
