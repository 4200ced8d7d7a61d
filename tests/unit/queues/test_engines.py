"""Which options connect() takes for which database."""

import pytest

from headgate.errors import QueueOptionsError
from headgate.queues import connect


@pytest.mark.parametrize(
    ("url", "options", "problem"),
    [
        ("memory:", {"schema": "s"}, "memory: has no option schema"),
        ("memory:", {"synchronous": "OFF"}, "memory: has no option synchronous"),
        ("sqlite:///q.db", {"most_connections": 1}, "SQLite has no option most_connections"),
        ("postgresql://h/d", {"synchronous": "OFF"}, "PostgreSQL has no option synchronous"),
        ("memory:", {"access": "write"}, "access is create, change, look, not 'write'"),
        ("mysql://h/d", {}, "cannot connect to"),
        ("shop.db", {}, "cannot connect to 'shop.db'; use sqlite:///shop.db,"),
    ],
)
def test_an_option_of_another_database_is_refused(tmp_path, monkeypatch, url, options, problem):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(QueueOptionsError, match=problem):
        connect(url, **options)
    assert list(tmp_path.iterdir()) == []
