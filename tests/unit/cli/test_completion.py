"""The shell completes names of queues and subscriptions, and paths of streams, and sees no error."""

import pytest

import headgate
from headgate.cli.app import run
from headgate.streams import Stream, SuperStream


@pytest.fixture
def complete(monkeypatch, capsys):
    """What a shell is offered for a command line that is not finished."""

    def offered(line: str) -> list[str]:
        monkeypatch.setenv("_HEADGATE_COMPLETE", "complete_zsh")
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", f"headgate {line}")
        capsys.readouterr()
        assert run([]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        monkeypatch.delenv("_HEADGATE_COMPLETE")
        return [part.split('"')[1] for part in out.splitlines() if '"' in part]

    return offered


def test_commands_are_completed_without_loading_them(complete):
    assert complete("st") == ["stream"]
    assert complete("stream ta") == ["tail"]
    assert complete("streams tr") == ["trim"]


def test_queues_and_subscriptions_are_completed_from_the_database(complete, database_url, tmp_path):
    with headgate.connect(database_url) as db:
        db.queue("orders")
        db.queue("invoices")
        db.subscription("orders-eu", "region = 'EU'")
    assert complete("queue claim or") == ["orders", "orders-eu"]
    assert complete("queue claim inv") == ["invoices"]
    assert complete("sub pause ") == ["orders-eu"]
    assert complete("sub add x --queue inv") == ["invoices"]
    with headgate.connect(f"sqlite:///{tmp_path}/other.db") as db:
        db.queue("other")
    assert complete(f"queue claim --db sqlite:///{tmp_path}/other.db ") == ["other"]


def test_a_database_that_is_not_there_completes_nothing_and_is_not_created(
    complete, database_url, tmp_path
):
    assert complete("queue claim ") == []
    assert list(tmp_path.iterdir()) == []


def test_streams_are_completed_by_their_path(complete, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Stream.create("orders").close()
    SuperStream.create("order-lines", 2).close()
    Stream.create("data/order-log").close()
    (tmp_path / "order.txt").touch()
    assert complete("stream tail ord") == ["order-lines/", "orders"]
    assert complete("stream tail da") == ["data/"]
    assert complete("stream tail data/o") == ["data/order-log"]
    assert complete("stream tail nowhere/o") == []
    assert complete("explain x --stream ord") == ["order-lines/", "orders"]


def test_headers_are_completed_from_the_messages(complete, database_url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Stream.create("orders") as stream, stream.producer() as producer:
        producer.publish(b"", headers={"region": "EU", "amount": 5})
    assert complete("stream set orders --indexed re") == ["region"]
    assert complete("stream publish orders x -H a") == ["amount="]
    with headgate.connect(database_url) as db:
        db.queue("jobs", filter_headers=["kind"]).publish(b"", headers={"size": 3})
    assert complete("queue index add jobs ") == ["kind", "size"]
    assert complete("queue publish jobs x -H k") == ["kind="]
    assert complete("queue publish nothing x -H k") == []
