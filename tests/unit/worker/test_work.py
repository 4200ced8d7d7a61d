"""What a worker is told, counts and logs, without a process of its own."""

import json
import logging
import pickle
from queue import SimpleQueue

import pytest

from headgate.errors import HeadgateError
from headgate.logs import LogSettings, log_as
from headgate.metrics import parse_address
from headgate.queues import HandlerReport
from headgate.worker import Control, WorkAccount, drain_on, load_handler
from headgate.worker.account import BUCKETS
from headgate.worker.options import is_async
from tests.patience import PATIENCE


class Told:
    """Notes what it is told."""

    def __init__(self):
        self.commands = SimpleQueue()

    def drain(self):
        self.commands.put("drain")

    def stop(self):
        self.commands.put("stop")


def report(seconds, outcome="done", queue="orders"):
    return HandlerReport(queue, 1, 1, "orders", seconds, outcome)


def test_a_command_that_comes_early_is_passed_on_when_something_is_attached():
    for command, told in (("drain", "drain"), ("stop", "stop")):
        control, target = Control(), Told()
        getattr(control, command)()
        control.attach(target)
        assert target.commands.get(timeout=PATIENCE) == told
        assert (control.is_draining, control.is_stopped) == (True, command == "stop")


def test_signals_drain_first_and_stop_then():
    control, target, signals = Control(), Told(), SimpleQueue()
    control.attach(target)
    drain_on(lambda timeout: signals.get() is None, control, None)
    assert target.commands.empty()
    for command in ("drain", "stop"):
        signals.put(None)
        assert target.commands.get(timeout=PATIENCE) == command


def test_counts_of_processes_are_added_up():
    here, there = WorkAccount(), WorkAccount()
    here.observe(report(0.001))
    there.observe(report(BUCKETS[-1] + 1, "failed"))
    there.observe(report(0.5, queue="mails"))
    here.add(pickle.loads(pickle.dumps(there.take())))
    counts = here.counts()
    assert (counts.outcomes("done"), counts.outcomes("failed")) == (2, 1)
    assert counts.buckets == {("orders", 0): 1, ("orders", len(BUCKETS)): 1, ("mails", 3): 1}
    assert counts.seconds["orders"] == pytest.approx(BUCKETS[-1] + 1.001)
    assert there.take().messages == {}


def test_json_logs_hold_the_facts_of_a_record(capsys):
    with log_as(LogSettings("json", "info")):
        try:
            1 / 0
        except ZeroDivisionError:
            logging.getLogger("shop").warning(
                "%s fails", "it", exc_info=True, extra={"order": 7, "at": object}
            )
        logging.getLogger("shop").debug("not shown")
    [line] = capsys.readouterr().err.splitlines()
    told = json.loads(line)
    assert (told["level"], told["logger"], told["message"]) == ("warning", "shop", "it fails")
    assert (told["order"], told["at"]) == (7, "<class 'object'>")
    assert "ZeroDivisionError" in told["exception"]


def test_logs_of_keys_and_values_quote_what_has_spaces(capsys):
    with log_as(LogSettings("keyvalue", "info")):
        logging.getLogger("shop").info(
            "it %s", "runs", extra={"port": 7, "text": 'a "b"', "no": ""}
        )
    [line] = capsys.readouterr().err.splitlines()
    assert ' level=info logger=shop message="it runs" process=' in line
    assert line.endswith(r'port=7 text="a \"b\"" no=""')


def test_logging_is_as_before_when_the_worker_has_ended():
    before = logging.getLogger().handlers[:], logging.getLogger().level
    with log_as(LogSettings()):
        assert logging.getLogger().handlers != before[0]
    assert (logging.getLogger().handlers, logging.getLogger().level) == before


def test_a_handler_is_found_by_its_module_and_name(tmp_path, monkeypatch):
    (tmp_path / "shop_of_test.py").write_text(
        "class Shop:\n    @staticmethod\n    async def handle(d): ...\n"
        "class Callable:\n    async def __call__(self, d): ...\n"
        "shop = Callable()\ndef plain(d): ...\n"
    )
    monkeypatch.chdir(tmp_path)
    assert is_async(load_handler("shop_of_test:Shop.handle"))
    assert is_async(load_handler("shop_of_test:shop"))
    assert not is_async(load_handler("shop_of_test:plain"))


def test_a_module_that_cannot_be_imported_says_why(tmp_path, monkeypatch):
    (tmp_path / "needs_other_of_test.py").write_text("import nosuch_of_test")
    (tmp_path / "broken_of_test.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HeadgateError, match="No module named 'nosuch_of_test'; install it"):
        load_handler("needs_other_of_test:handle")
    with pytest.raises(HeadgateError, match="ZeroDivisionError: division by zero; --debug"):
        load_handler("broken_of_test:handle")
    with pytest.raises(HeadgateError, match="there is no module 'no'"):
        load_handler("no.such:handle")
    with pytest.raises(HeadgateError, match="name the module, not its file: broken_of_test:handle"):
        load_handler("broken_of_test.py:handle")


def test_a_handler_that_does_not_take_one_delivery_is_refused(tmp_path, monkeypatch):
    (tmp_path / "takes_of_test.py").write_text("def two(a, b): ...\ndef more(a, b=1, *c): ...\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HeadgateError, match=r"called with one delivery, .* not \(a, b\)"):
        load_handler("takes_of_test:two")
    load_handler("takes_of_test:more")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9464", ("127.0.0.1", 9464)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
        ("[::1]:9464", ("::1", 9464)),
    ],
)
def test_an_address_is_a_port_or_a_host_and_a_port(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "host", "host:", "70000", "host:-1"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(HeadgateError, match="a port or host:port"):
        parse_address(text)
