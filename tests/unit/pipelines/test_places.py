from __future__ import annotations

from pathlib import Path

import pytest

from headgate.errors import QueueOptionsError, SparkOptionsError
from headgate.pipelines.places import ExchangePlace, absolute_place, parse_place, queue_place
from headgate.queues import hide_password, tables_key
from headgate.queues.database_url import sqlite_path


def test_a_place_is_a_database_and_a_queue() -> None:
    place = queue_place("queue:postgres://me@host/db#orders")
    assert (place.url, place.name, place.file) == ("postgresql://me@host/db", "orders", None)
    assert queue_place("queue:postgresql://host/db", "orders").name == "orders"
    assert queue_place("queue:postgresql://host/db#eu", "orders").name == "eu"


@pytest.mark.parametrize(
    "text",
    [
        "queue:mysql://me:secret@host/db#q",
        "queue:postgresql://me:secret@host/db",
        "queue:mysql://me:a@secret:/?b@host/db",
        "queue:postgres://host/db?user=me&PassWord=secret&sslmode=require",
        "queue:redis://:secret@host#q",
    ],
)
def test_errors_show_places_without_their_password(text: str) -> None:
    with pytest.raises(SparkOptionsError) as refused:
        queue_place(text)
    assert "secret" not in str(refused.value)
    assert "host" in str(refused.value)


def test_only_passwords_are_hidden() -> None:
    shown = "queue:postgresql://me@[::1]:5432/db?schema=s#q"
    assert hide_password(shown) == shown
    assert hide_password("queue:sqlite:///a:b.db#q@r") == "queue:sqlite:///a:b.db#q@r"
    assert hide_password("queue:postgresql://me:x@h:1/d") == "queue:postgresql://me:…@h:1/d"


def test_the_path_of_a_database_is_made_absolute_and_its_settings_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = queue_place("queue:sqlite:///my%20data/../a b#.db?synchronous=NORMAL")
    assert place.name == ".db?synchronous=NORMAL"  # a # begins the name: write %23
    place = queue_place("queue:sqlite:///my%20data/../a b%23.db?synchronous=NORMAL#q")
    assert place.file == tmp_path.resolve() / "a b#.db"
    assert sqlite_path(place.url) == place.file
    assert place.url.endswith("?synchronous=NORMAL")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("postgresql://host/db", "postgres://host/db"),
        ("postgresql://host/db", "postgresql://me:secret@host/db?sslmode=require"),
        ("postgresql://host/db", "postgresql://HOST:5432/db"),
        ("postgresql://host/db", "postgresql:///db?host=host"),
        ("postgresql://host/db", "postgresql://host/db?schema=headgate"),
        ("postgresql://host/my%20db", "postgresql://host?dbname=my+db"),
        ("postgresql://me@host", "postgresql://host/me"),
        ("postgresql://a,b:1/db", "postgresql://a:5432,b:1/db"),
        ("postgresql://%2Frun%2Fpg/db", "postgresql:///db?host=/run/pg"),
        ("postgresql://[::1]/db", "postgresql://[::1]:5432/db"),
    ],
)
def test_two_spellings_of_one_database(
    one: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PGHOST", "PGPORT", "PGDATABASE"):
        monkeypatch.delenv(name, raising=False)
    assert tables_key(one) == tables_key(other)


@pytest.mark.parametrize(
    "other",
    [
        "postgresql://other/db",
        "postgresql://host:5433/db",
        "postgresql://host/other",
        "postgresql://host/db?schema=other",
        "sqlite:///db",
    ],
)
def test_another_database_is_another(other: str) -> None:
    assert tables_key("postgresql://host/db") != tables_key(other)


def test_a_link_to_a_file_leads_to_the_same_tables(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "q.db")
    assert tables_key(f"sqlite:///{tmp_path}/link.db") == tables_key(
        f"sqlite:///{tmp_path}/q.db?a=b"
    )


def test_a_schema_that_cannot_be_is_refused() -> None:
    with pytest.raises(QueueOptionsError, match="cannot be used"):
        tables_key('postgresql://host/db?schema="; DROP')


def test_an_exchange_is_a_place() -> None:
    place = parse_place("amqps://me:secret@host:5671/orders#paid%20ones")
    assert place == ExchangePlace("amqps://me:secret@host:5671/orders", "paid ones")
    assert isinstance(place, ExchangePlace)
    assert place.shown == "amqps://host:5671/orders#paid ones"
    assert absolute_place("amqp://host/#x", "q", Path("/tmp")) == "amqp://host/#x"


@pytest.mark.parametrize(
    "text", ["amqp://host/", "amqp://host/#", "amqp:///#x", "amqp://me:secret@h:x/#x"]
)
def test_an_address_without_a_broker_or_an_exchange_is_refused(text: str) -> None:
    with pytest.raises(
        SparkOptionsError, match=r"write amqp://user:password@host:port/vhost#exchange"
    ) as refused:
        parse_place(text)
    assert "secret" not in str(refused.value)


def test_the_tilde_of_a_user_that_does_not_exist_is_a_name_like_others() -> None:
    place = absolute_place("stream:~no-such-user/out", "orders", Path("/data"))
    assert place == "stream:/data/~no-such-user/out"
