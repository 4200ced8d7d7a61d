"""`headgate serve` as a process: its configuration, its signals, its log."""

import json
import signal
import subprocess
import sys
from contextlib import closing

from tests.patience import wait_until
from tests.served import Served


def facts(served):
    """The records of the log, which is JSON."""
    return [json.loads(line) for line in served.log.splitlines()]


def test_sighup_takes_over_what_can_change_and_names_what_cannot(tmp_path):
    file = tmp_path / "headgate.toml"
    file.write_text('[broker]\nhost = "127.0.0.1"\n[log]\nformat = "json"\n')
    served = Served(tmp_path / "data", "--config", str(file), "--set", "log.level=info")
    try:
        file.write_text('[broker]\nhost = "::1"\n[log]\nformat = "json"\nlevel = "debug"\n')
        served.signal(signal.SIGHUP)
        wait_until(lambda: "broker again" in served.log)
        [told] = [fact for fact in facts(served) if "setting" in fact]
        assert (told["setting"], told["before"], told["after"]) == ("host", "127.0.0.1", "::1")

        file.write_text("[broker]\nhots = 1\n")
        served.signal(signal.SIGHUP)
        wait_until(lambda: "no setting 'broker.hots'; did you mean 'broker.host'" in served.log)
        with closing(served.connect()) as connection:
            assert connection.is_open
        assert served.stop() == 0
        assert facts(served)[-1]["message"] == "stopped"
    finally:
        served.kill()


def test_sighup_while_the_broker_starts_is_obeyed_when_it_has_started(tmp_path):
    file = tmp_path / "headgate.toml"
    file.write_text('[log]\nformat = "json"\n')
    code = (
        "import os, signal, sys; from headgate.cli.app import run; from headgate.server import Server\n"
        "start = Server.start\n"
        "async def begin(server):\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    await start(server)\n"
        "Server.start = begin\n"
        f"sys.exit(run(['serve', '--config', {str(file)!r}, '--memory', '--amqp-port', '0', '--http-port', '0']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            messages = (json.loads(line)["message"] for line in process.stderr)
            assert "configuration read again: nothing changed" in messages
        finally:
            process.kill()
