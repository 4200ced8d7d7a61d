"""The listener, without a server."""

import os

from headgate.queues.database_url import postgres_target
from headgate.queues.postgres.listener import Listener


def test_a_listener_that_nobody_used_holds_no_file_open():
    target = postgres_target("postgresql://localhost/none", None)
    before = len(os.listdir("/proc/self/fd"))
    listeners = [Listener(target) for _ in range(10)]
    assert len(os.listdir("/proc/self/fd")) == before
    for listener in listeners:
        listener.close()
        listener.close()
