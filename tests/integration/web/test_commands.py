"""The command line against a running broker: the verbs that a user of rabbitmqctl guesses."""

import io
import json

import pytest

from headgate.cli.app import run


@pytest.fixture
def command(running, http, monkeypatch, capsys):
    """Run a command; return its exit code, and what it printed."""
    address = running.http_url.replace("http://", "http://guest:guest@")
    monkeypatch.setenv("HEADGATE_URL", address)

    def call(*arguments, typed=""):
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        capsys.readouterr()
        code = run(list(arguments))
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def lines(command, *arguments):
    code, out, err = command(*arguments, "--json")
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def test_users_and_permissions_are_administered(command, running, monkeypatch):
    code, out, _ = command("user", "add", "anna", "--tags", "management", typed="secret\n")
    assert (code, "secret" in out) == (0, False)
    assert command("user", "add", "anna", typed="x\n")[0] == 2
    assert {"name": "anna", "tags": ["management"], "limits": {}} in lines(command, "user", "ls")
    assert command("permission", "set", "anna", "^anna", ".*", ".*")[0] == 0
    [row] = lines(command, "permission", "ls", "--user", "anna")
    assert row["configure"] == "^anna"
    assert command("user", "limit", "anna", "max-connections", "5")[0] == 0
    assert command("user", "tags", "anna", "monitoring")[0] == 0
    assert command("user", "password", "anna", typed="other\n")[0] == 0
    monkeypatch.setenv("HEADGATE_URL", running.http_url.replace("http://", "http://anna@"))
    monkeypatch.setenv("HEADGATE_PASSWORD", "other")
    assert command("connection", "ls")[0] == 0
    code, _, err = command("user", "ls")
    assert (code, "this user may not" in err) == (2, True)
    monkeypatch.setenv("HEADGATE_PASSWORD", "wrong")
    code, _, err = command("connection", "ls")
    assert (code, "refused the login" in err) == (2, True)
    monkeypatch.setenv("HEADGATE_URL", running.http_url.replace("http://", "http://guest:guest@"))
    assert command("permission", "set-topic", "anna", "amq.topic", r"^{username}\.")[0] == 0
    [row] = lines(command, "permission", "ls", "--topic", "--user", "anna")
    assert (row["exchange"], row["write"], row["read"]) == ("amq.topic", r"^{username}\.", ".*")
    assert command("permission", "clear-topic", "anna", "amq.topic")[0] == 0
    assert lines(command, "permission", "ls", "--topic") == []
    assert command("permission", "clear", "anna")[0] == 0
    assert command("user", "rm", "anna", "--yes")[0] == 0


def test_virtual_hosts(command):
    assert command("vhost", "add", "shop", "--description", "d")[0] == 0
    assert "shop" in [row["name"] for row in lines(command, "vhosts", "ls")]
    assert command("vhost", "limit", "shop", "max-queues", "9")[0] == 0
    assert command("vhost", "rm", "shop", "--yes")[0] == 0


def test_super_streams_are_added_as_rabbitmq_streams_does_it(command):
    assert command("broker", "super-stream", "add", "invoices", "-a", "x-max-age=7D")[0] == 0
    [row] = lines(command, "broker", "super-stream", "ls")
    assert row == {"name": "invoices", "partitions": ["invoices-0", "invoices-1", "invoices-2"]}
    [exchange] = [e for e in lines(command, "exchange", "ls") if e["name"] == "invoices"]
    assert (exchange["type"], exchange["arguments"]) == ("direct", {"x-super-stream": True})
    queues = lines(command, "broker", "queue", "ls")
    assert {q["arguments"]["x-max-age"] for q in queues if q["name"].startswith("inv")} == {"7D"}
    assert command("exchange", "publish", "invoices", "one", "--key", "2")[0] == 0
    assert command("exchange", "publish", "invoices", "one", "--key", "3")[0] == 1
    assert command("broker", "super-stream", "rm", "invoices", "--yes")[0] == 0
    assert lines(command, "broker", "super-stream", "ls") == []
    assert lines(command, "broker", "queue", "ls") == []
    assert command("broker", "super-stream", "rm", "amq.topic", "--yes")[0] == 2


def test_a_super_stream_for_keys_or_with_a_hash(command):
    add = ("broker", "super-stream", "add")
    assert command(*add, "sales", "--binding-keys", "amer,emea")[0] == 0
    assert command(*add, "any", "--hash", "--partitions", "2")[0] == 0
    found = {r["name"]: r["partitions"] for r in lines(command, "broker", "super-stream", "ls")}
    assert found == {"sales": ["sales-amer", "sales-emea"], "any": ["any-0", "any-1"]}
    assert command("exchange", "publish", "any", "one", "--key", "whatever")[0] == 0
    assert command(*add, "bad", "--hash", "--binding-keys", "a,b")[0] == 2
    assert command(*add, "bad", "--binding-keys", "a,a")[0] == 2


def test_queues_exchanges_and_bindings(command):
    assert command("broker", "queue", "declare", "large", "-a", "x-max-length=9")[0] == 0
    assert command("exchange", "declare", "orders", "--type", "topic")[0] == 0
    assert command("binding", "add", "orders", "large", "--key", "a.#")[0] == 0
    assert [row["routing_key"] for row in lines(command, "binding", "ls")] == ["a.#"]
    publish = ("exchange", "publish", "orders", "order 1", "-H", "n:=1", "--key")
    assert command(*publish, "a.b")[0] == 0
    assert command(*publish, "b")[0] == 1
    [queue] = lines(command, "broker", "queue", "ls")
    assert (queue["messages"], queue["arguments"]) == (1, {"x-max-length": 9})
    assert "large" in command("broker", "queue", "ls")[1]
    [message] = lines(command, "broker", "queue", "get", "large")
    assert (message["payload"], message["properties"]["headers"]) == ("order 1", {"n": 1})
    assert command("broker", "queue", "get", "large", "--take")[0] == 0
    assert command("broker", "queue", "get", "large")[0] == 1
    assert command("broker", "queue", "show", "large")[0] == 0
    assert command("binding", "rm", "orders", "large", "--key", "b")[0] == 1
    assert command("binding", "rm", "orders", "large", "--key", "a.#")[0] == 0
    assert command("broker", "queue", "purge", "large", "--yes")[0] == 0
    assert command("exchange", "rm", "orders", "--yes")[0] == 0
    assert command("broker", "queue", "rm", "large", "--yes")[0] == 0
    code, _, err = command("broker", "queue", "show", "large")
    assert (code, "no such object" in err) == (2, True)


def test_policies_and_parameters(command):
    definition = '{"max-length": 3}'
    assert command("policy", "set", "short", "^x", definition, "--apply-to", "queues")[0] == 0
    assert lines(command, "policies", "ls")[0]["definition"] == {"max-length": 3}
    assert command("policy", "set", "short", "^x", "{")[0] == 2
    assert command("policy", "rm", "short")[0] == 0
    assert command("parameter", "set", "shop", "colour", '"red"')[0] == 0
    assert lines(command, "parameter", "ls")[0]["value"] == "red"
    assert command("parameter", "rm", "shop", "colour")[0] == 0
    assert command("parameter", "set-global", "colour", '"blue"')[0] == 0
    assert {"name": "colour", "value": "blue"} in lines(command, "parameter", "ls", "--global")
    assert command("parameter", "rm-global", "colour")[0] == 0
    assert command("parameter", "rm-global", "colour")[0] == 2


def test_connections_and_the_overview(command, amqp):
    channel = amqp.channel()
    channel.queue_declare("q")
    channel.basic_consume("q", lambda *_: None, consumer_tag="one")
    [connection] = lines(command, "connection", "ls")
    assert connection["user"] == "guest"
    assert lines(command, "channel", "ls")[0]["consumer_count"] == 1
    assert lines(command, "consumer", "ls")[0]["consumer_tag"] == "one"
    for words in (("connection", "ls"), ("channel", "ls"), ("consumer", "ls"), ("broker", "overview"), ("broker", "health"), ("exchange", "ls")):  # fmt: skip
        assert command(*words)[0] == 0
    assert command("connection", "close", connection["name"], "--yes")[0] == 0


def test_definitions_go_out_and_in_again(command, tmp_path):
    file = tmp_path / "definitions.json"
    assert command("broker", "queue", "declare", "kept", "--type", "quorum")[0] == 0
    assert command("definitions", "export", str(file))[0] == 0
    assert "kept" in [queue["name"] for queue in json.loads(file.read_text())["queues"]]
    assert command("broker", "queue", "rm", "kept", "--yes")[0] == 0
    assert command("definitions", "import", str(file))[0] == 0
    assert [row["type"] for row in lines(command, "broker", "queue", "ls")] == ["quorum"]
    file.write_text('{"queues": 1}')
    assert command("definitions", "import", str(file))[0] == 2


def test_a_broker_that_does_not_answer_is_one_line(command, monkeypatch):
    monkeypatch.setenv("HEADGATE_URL", "http://guest:hunter2@127.0.0.1:1")
    code, _, err = command("broker", "overview")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "is `headgate serve` running there?" in err
    assert "hunter2" not in err
    monkeypatch.setenv("HEADGATE_URL", "ftp://guest:hunter2@x")
    code, _, err = command("broker", "overview")
    assert (code, "hunter2" in err) == (2, False)
