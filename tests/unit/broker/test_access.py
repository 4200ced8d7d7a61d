"""Users, passwords, permissions, limits: what is asked, answered and kept."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path

import pytest

from headgate.broker import (
    AccessRefused,
    Broker,
    Login,
    LoginRefused,
    NotAllowed,
    NotFound,
    PreconditionFailed,
    User,
    VhostSettings,
    hash_quickly,
    make_user,
)
from headgate.broker.login_throttle import LoginThrottle, network_of
from headgate.broker.passwords import SCRYPT, SHA512, PasswordHash, hash_password, read_hash

HERE = "127.0.0.1"


def log_in(broker: Broker, name: str, password: str, address: str = HERE) -> Login:
    return asyncio.run(broker.access.authenticate(name, password, address))


def test_a_new_broker_has_one_user_that_is_let_in_from_this_machine(broker: Broker) -> None:
    assert log_in(broker, "guest", "guest").tags == ("administrator",)
    assert log_in(broker, "guest", "guest", "::ffff:127.0.0.1").name == "guest"
    with pytest.raises(LoginRefused, match="can only connect via localhost"):
        log_in(broker, "guest", "guest", "192.0.2.1")
    for name, password in (("guest", "x"), ("nobody", "guest"), ("guest", "")):
        with pytest.raises(LoginRefused):
            log_in(broker, name, password)
    broker.access.loopback_users = frozenset()
    assert log_in(broker, "guest", "guest", "192.0.2.1").name == "guest"


def test_a_hash_of_rabbitmq_is_replaced_at_the_next_login(broker: Broker) -> None:
    broker.access.put_user(User("ann", hash_quickly("secret", SHA512)))
    log_in(broker, "ann", "secret")
    kept = broker.access.users["ann"].password
    assert kept is not None
    assert kept.algorithm == SCRYPT
    assert kept.verify("secret")


def test_the_hash_that_rabbitmqs_documentation_computes_is_accepted() -> None:
    # https://www.rabbitmq.com/docs/passwords: salt 908DC60A and password "test12"
    known = read_hash("kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR")
    assert known is not None
    assert known.verify("test12")
    assert not known.verify("test13")


@pytest.mark.parametrize(
    ("text", "algorithm"),
    [("???", None), ("AAAA", None), ("AAAA", SCRYPT), ("AAAA", "rabbit_password_hashing_md5")],
)
def test_a_hash_that_cannot_be_used_is_refused(text: str, algorithm: str | None) -> None:
    with pytest.raises(PreconditionFailed):
        read_hash(text, algorithm)


def test_a_user_without_a_password_logs_in_with_a_certificate_only(broker: Broker) -> None:
    broker.access.put_user(make_user("ann", {"password_hash": "", "tags": "monitoring, x"}))
    assert broker.access.authenticate_certificate("ann", HERE).tags == ("monitoring", "x")
    for password in ("", "ann"):
        with pytest.raises(LoginRefused):
            log_in(broker, "ann", password)


def test_who_comes_again_does_not_wait_for_scrypt_until_the_password_changes(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = broker.access
    asyncio.run(access.add_user("ann", "secret"))
    log_in(broker, "ann", "secret")
    with monkeypatch.context() as patch:
        patch.delattr(hashlib, "scrypt")
        log_in(broker, "ann", "secret")
    asyncio.run(access.change_password("ann", "other"))
    with pytest.raises(LoginRefused):
        log_in(broker, "ann", "secret")


def test_secrets_are_in_no_text(broker: Broker) -> None:
    hashed = hash_password("opensesame")
    user = User("ann", hashed)
    broker.access.put_user(user)
    with pytest.raises(LoginRefused) as refused:
        log_in(broker, "ann", "opensesame2")
    for text in (repr(user), repr(hashed), str(refused.value), repr(Login("ann"))):
        assert "opensesame" not in text
        assert hashed.to_text() not in text
        assert repr(hashed.value)[2:20] not in text


def test_permissions_are_patterns_found_anywhere_in_a_name(broker: Broker) -> None:
    access = broker.access
    access.put_user(User("ann"))
    access.set_permissions("ann", "/", "^q-", "amq.default|x", "")
    ann = Login("ann")
    assert access.may(ann, "/", "configure", "q-1")
    assert not access.may(ann, "/", "configure", "aq-")
    assert access.may(ann, "/", "write", "")
    assert access.may(ann, "/", "write", "axb")
    assert not access.may(ann, "/", "read", "q-1")
    access.check(ann, "/", "configure", "queue", "q-1")
    with pytest.raises(AccessRefused) as refused:
        access.check(ann, "/", "read", "queue", "q-1")
    assert str(refused.value) == "read access to queue 'q-1' in vhost '/' refused for user 'ann'"
    access.clear_permissions("ann", "/")
    with pytest.raises(NotAllowed, match="access to vhost '/' refused for user 'ann'"):
        access.check_enter(ann, "/")
    with pytest.raises(PreconditionFailed):
        access.set_permissions("ann", "/", "(", "", "")
    with pytest.raises(NotFound):
        access.set_permissions("bob", "/", "", "", "")
    with pytest.raises(NotFound):
        access.set_permissions("ann", "other", "", "", "")


def test_topic_permissions_know_the_user_and_the_virtual_host(broker: Broker) -> None:
    access = broker.access
    access.put_user(User("a.n"))
    access.set_topic_permissions("a.n", "/", "amq.topic", r"^{username}\.", "^{vhost}")
    ann = Login("a.n")
    assert access.may_topic(ann, "/", "write", "amq.topic", "a.n.x")
    assert not access.may_topic(ann, "/", "write", "amq.topic", "aan.x")
    assert access.may_topic(ann, "/", "read", "amq.topic", "/x")
    assert access.may_topic(ann, "/", "write", "other", "anything")
    access.clear_topic_permissions("a.n", "/")
    assert access.may_topic(ann, "/", "write", "amq.topic", "x")


def test_everything_survives_a_restart(make_broker: object) -> None:
    broker = make_broker()  # type: ignore[operator]
    asyncio.run(broker.access.add_user("ann", "secret", ["monitoring"]))
    broker.add_vhost("v", VhostSettings("mine", ("t",), "quorum"))
    broker.access.set_permissions("ann", "v", "a", "b", "c")
    broker.access.set_topic_permissions("ann", "v", "x", "w", "r")
    broker.access.set_user_limits("ann", {"max-connections": 3})
    broker.parameters.set_vhost_limits("v", {"max-queues": 5})
    broker.parameters.set("v", "component", "name", {"a": [1, 2.5, None, True]})
    broker.parameters.set_global("cluster_name", "mine")
    broker.policies.set("v", "p", "^q", {"max-length": 3}, priority=2, apply_to="queues")
    broker.operator_policies.set("v", "o", "", {"expires": 3})
    broker.access.delete_user("guest")
    broker.flush()
    again = make_broker()  # type: ignore[operator]
    for name in ("users", "permissions", "topic_permissions"):
        assert dict(getattr(again.access, name)) == dict(getattr(broker.access, name)), name
    assert again.vhosts["v"].settings == broker.vhosts["v"].settings
    assert again.parameters.list() == broker.parameters.list() != []
    assert dict(again.parameters.of_all) == {"cluster_name": "mine"}
    assert again.policies.list() == broker.policies.list() != []
    assert again.operator_policies.list() == broker.operator_policies.list() != []
    assert log_in(again, "ann", "secret").tags == ("monitoring",)
    assert "guest" not in again.access.users
    broker.delete_vhost("v")
    broker.flush()
    last = make_broker()  # type: ignore[operator]
    assert list(last.vhosts) == ["/"]
    assert last.policies.list() == last.parameters.list() == []
    assert dict(last.access.permissions) == dict(last.access.topic_permissions) == {}


def test_the_store_holds_no_password(make_broker: object, tmp_path: Path) -> None:
    broker = make_broker()  # type: ignore[operator]
    asyncio.run(broker.access.add_user("ann", "opensesame"))
    broker.flush()
    assert (
        b"opensesame"
        not in json.dumps(
            {
                " ".join(key): value.decode()
                for key, value in broker.store.read().definitions.items()
            }
        ).encode()
    )


def test_those_who_guess_are_slowed_down_and_those_who_know_are_not() -> None:
    now = [100.0]
    throttle = LoginThrottle(lambda: now[0])
    for _ in range(10):
        assert throttle.allows("a", "ann")
        throttle.note_failure("a", "ann")
    assert not throttle.allows("a", "ann")
    assert throttle.allows("a", "bob")
    assert throttle.allows("b", "ann")
    now[0] += 1.5
    assert throttle.allows("a", "ann")
    throttle.note_failure("a", "ann")
    now[0] += 1.5
    assert not throttle.allows("a", "ann")
    now[0] += 100
    throttle.forget_failures("a", "ann")
    assert throttle.allows("a", "ann")
    for number in range(50):
        throttle.note_failure("c", f"user {number}")
    assert not throttle.allows("c", "another")
    for number in range(30_000):
        throttle.note_failure(f"address {number}", "ann")
    assert len(throttle._failures) <= 10_000


def test_a_known_password_is_let_in_while_others_guess(broker: Broker) -> None:
    log_in(broker, "guest", "guest")
    for _ in range(10):
        broker.access.throttle.note_failure(HERE, "guest")
    with pytest.raises(LoginRefused, match="too many failed logins"):
        log_in(broker, "guest", "wrong")
    assert log_in(broker, "guest", "guest").name == "guest"


@pytest.mark.parametrize(
    ("password", "most"), [("guest {0}", 10), ("guest", 1)], ids=["guesses", "a fleet"]
)
def test_logins_at_the_same_time_cost_what_they_would_one_by_one(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, password: str, most: int
) -> None:
    verify, verified = PasswordHash.verify, []

    def count(known: PasswordHash, password: str) -> bool:
        verified.append(password)
        return verify(known, password)

    async def log_all_in() -> None:
        logins = (
            broker.access.authenticate("guest", password.format(number), HERE)
            for number in range(100)
        )
        await asyncio.gather(*logins, return_exceptions=True)

    monkeypatch.setattr(PasswordHash, "verify", count)
    asyncio.run(log_all_in())
    assert len(verified) <= most


def test_all_addresses_of_an_ipv6_network_count_as_one():
    throttle = LoginThrottle(lambda: 0.0)
    for number in range(10):
        throttle.note_failure(f"2001:db8::{number:x}", "ann")
    assert not throttle.allows("2001:db8::ffff:1", "ann")
    assert throttle.allows("2001:db8:0:1::1", "ann")
    assert network_of("::ffff:10.0.0.1") == "::ffff:10.0.0.1"
    assert network_of("fe80::1%eth0") == "fe80::"
