"""Bearer tokens in place of passwords: scopes as RabbitMQ reads them, keys, audience, expiry and renewal."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pika
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey

from headgate.broker import LoginRefused
from headgate.errors import SettingsError
from headgate.server.oauth2 import OAuth2Tokens, TokenKeys, TokenRules, wildcard_matches
from headgate.testing import Broker

KEY = RSAKey.generate_key(2048, {"kid": "first"})
OTHER = RSAKey.generate_key(2048, {"kid": "other"})


def make_token(*scopes: str, key: Any = KEY, alg: str = "RS256", **claims: Any) -> str:
    given = {
        "sub": "ann",
        "aud": ["rabbitmq"],
        "exp": int(time.time()) + 3600,
        "scope": " ".join(scopes),
        **claims,
    }
    head = {"alg": alg, "kid": key.kid} if key.kid else {"alg": alg}
    return jwt.encode(head, {k: v for k, v in given.items() if v is not None}, key)


def make_unsigned(**head: Any) -> str:
    parts = head, {"sub": "ann", "aud": "rabbitmq", "scope": "rabbitmq.tag:administrator"}
    encoded = (urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)
    return ".".join((*encoded, "x" if head["alg"] != "none" else ""))


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps({"keys": [KEY.as_dict(private=False)]}))
    return file


@pytest.fixture
def running(keys: Path) -> Iterator[Broker]:
    with Broker(oauth2_resource_server_id="rabbitmq", oauth2_keys=keys) as broker:
        yield broker


def connect(broker: Broker, token: str) -> pika.BlockingConnection:
    credentials = pika.PlainCredentials("ignored", token)
    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", broker.port, credentials=credentials)
    )


def reader(keys: Path, **rules: Any) -> OAuth2Tokens:
    return OAuth2Tokens(TokenRules(resource_server_id="rabbitmq", **rules), TokenKeys(str(keys)))


def test_scopes_are_permissions_and_tags(keys: Path) -> None:
    login = reader(keys).read(
        make_token(
            "rabbitmq.read:*/q*",
            "rabbitmq.write:%2F/x/key.*",
            "rabbitmq.configure:v%20w/a%2Ab",
            "rabbitmq.tag:administrator",
            "other.read:*/*",
            "rabbitmq.unknown:*/*",
            "rabbitmq.read:one",
        )
    )
    assert (login.name, login.tags) == ("ann", ("administrator",))
    grants = login.grants
    assert grants.may("/", "read", "q1")
    assert not grants.may("/", "read", "x")
    assert grants.may("/", "write", "x")
    assert not grants.may("v", "write", "x")
    assert grants.may("v w", "configure", "a*b")
    assert grants.may_enter("anything")
    assert grants.may_topic("/", "write", "x", "key.1")
    assert not grants.may_topic("/", "write", "x", "other")
    assert not grants.may_topic(
        "/", "read", "q1", "other"
    )  # a scope of two parts is about no topic
    assert "ann" not in repr(grants.grants)


@pytest.mark.parametrize(
    ("pattern", "text", "answer"),
    [
        ("*", "", True), ("*", "x/y", True), ("a*", "abc", True), ("a*", "ba", False), ("*c", "abc", True),
        ("a*c", "abcbc", True), ("a%2Fb", "a/b", True), ("a+b", "a b", True), ("a.b", "axb", False), ("", "", True),
        ("", "x", False), ("a%25_!b", "a%_!b", True), ("a_b", "axb", False), ("*\n*", "a\nb", True),
    ],
)  # fmt: skip
def test_wildcards(pattern: str, text: str, answer: bool) -> None:
    assert wildcard_matches(pattern, text) is answer


def test_a_pattern_of_many_wildcards_does_not_take_long() -> None:
    assert not wildcard_matches("*a" * 30 + "*b", "a" * 255)


def test_aliases_of_scopes(keys: Path) -> None:
    aliases = {"mq-admin": ("rabbitmq.tag:administrator", "rabbitmq.read:*/q")}
    login = reader(keys, aliases=aliases).read(make_token("mq-admin", "rabbitmq.tag:other"))
    assert login.tags == ("administrator", "other")
    assert login.grants.may("/", "read", "q")
    assert reader(keys).read(make_token("mq-admin")).tags == ()


def test_a_claim_is_no_pattern(keys: Path) -> None:
    token = make_token("rabbitmq.write:*/x/{sub}.*", sub="*", other="{sub}")
    grants = reader(keys).read(token).grants
    assert grants.may_topic("/", "write", "x", "*.1")
    assert not grants.may_topic("/", "write", "x", "bob.1")


def test_further_scopes_claims_and_prefixes(keys: Path) -> None:
    more = {"additional_scopes": "roles", "username_claims": ("name", "sub"), "scope_prefix": "mq:"}
    login = reader(keys, **more).read(make_token("mq:tag:a", roles=["mq:tag:b"], name="bob"))
    assert (login.name, login.tags) == ("bob", ("a", "b"))
    token = make_token("rabbitmq.tag:a", roles={"rabbitmq": "tag:b tag:c", "other": "tag:d"})
    assert reader(keys, additional_scopes="roles").read(token).tags == ("a", "b", "c")
    token = make_token("rabbitmq.write:*/x/{sub}.{vhost}")
    assert reader(keys).read(token).grants.may_topic("v", "write", "x", "ann.v")


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: make_token(key=OTHER), "not signed with a key that is known"),
        (lambda: make_token() + "x", "not signed"),
        (lambda: "eyJ.eyJ.x", "not signed"),
        (lambda: make_token(exp=1), "expired at 1"),
        (lambda: make_token(nbf=int(time.time()) + 1000), "valid from"),
        (lambda: make_token(exp="soon"), "no numbers"),
        (lambda: make_token(exp=10**400), "no numbers"),
        (lambda: make_token(exp=float("nan")), "no numbers"),
        (lambda: make_token(nbf=float("nan")), "no numbers"),
        (lambda: make_unsigned(alg="none"), "not signed"),
        (lambda: make_unsigned(alg=["RS256"]), "not signed"),
        (lambda: make_unsigned(alg="RS256", crit=["x"]), "not signed"),
        (lambda: make_unsigned(alg="RS256", kid=["first"]), "not signed"),
        (lambda: make_unsigned(alg="RS256", deep=json.loads("[" * 900 + "]" * 900)), "not signed"),
        (lambda: make_token(aud=["other"]), "not for audience"),
        (lambda: make_token(aud=None), "not for audience"),
        (lambda: make_token(sub=None), "no claim sub or client_id"),
        (lambda: make_token(key=OctKey.import_key("a" * 32), alg="HS256"), "not signed"),
    ],
)
def test_a_token_that_is_not_to_be_trusted(
    keys: Path, make: Callable[[], str], problem: str
) -> None:
    token = make()
    with pytest.raises(LoginRefused, match=problem) as refused:
        reader(keys).read(token)
    assert token not in str(refused.value)


def test_the_public_key_is_no_secret_to_sign_with(tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    file.write_bytes(KEY.as_pem(private=False))
    assert reader(file).read(make_token()).name == "ann"
    forged = make_token(key=OctKey.import_key(file.read_bytes().hex()), alg="HS256")
    with pytest.raises(LoginRefused):
        reader(file).read(forged)
    curve = ECKey.generate_key("P-256")
    file.write_bytes(curve.as_pem(private=False))
    assert (
        reader(file, verify_audience=False).read(make_token(key=curve, alg="ES256", aud=None)).name
        == "ann"
    )
    with pytest.raises(LoginRefused, match="another issuer"):
        reader(file, issuer="https://sso/").read(make_token(key=curve, alg="ES256"))


def test_keys_are_fetched_again_when_they_are_replaced() -> None:
    served = {"keys": [KEY.as_dict(private=False)]}

    class Document(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(served).encode())

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Document) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        now = [100.0]
        keys = TokenKeys(f"http://127.0.0.1:{server.server_port}/jwks", lambda: now[0])
        assert keys.verify(make_token())["sub"] == "ann"
        served["keys"] = [OTHER.as_dict(private=False)]
        with pytest.raises(LoginRefused):  # it was asked for a moment ago
            keys.verify(make_token(key=OTHER))
        now[0] += 100
        assert keys.verify(make_token(key=OTHER))["sub"] == "ann"
        server.shutdown()


@pytest.mark.parametrize(
    "source", ["http://example.org/jwks", "ftp://example.org/x", "missing.pem"]
)
def test_keys_that_cannot_be_used(source: str) -> None:
    with pytest.raises(SettingsError, match=r"oauth2\.keys"):
        TokenKeys(source)


def test_a_client_logs_in_with_a_token(running: Broker) -> None:
    token = make_token(
        "rabbitmq.configure:*/q", "rabbitmq.read:*/q", "rabbitmq.write:%2F/amq.default"
    )
    connection = connect(running, token)
    channel = connection.channel()
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"m")
    assert channel.basic_get("q")[2] == b"m"
    text = "write access to exchange 'amq.topic' in vhost '/' refused for user 'ann'"
    channel.basic_publish("amq.topic", "k", b"")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=text):
        channel.basic_qos()
    connection.close()
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        connect(running, make_token(key=OTHER))
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError):
        connect(running, make_token("rabbitmq.read:other/*"))
    pika.BlockingConnection(pika.URLParameters(running.url)).close()  # users are there as before


def test_a_connection_ends_with_its_token_unless_that_is_renewed(running: Broker) -> None:
    soon = int(time.time()) + 2
    ending, renewed = (
        connect(running, make_token("rabbitmq.read:*/*", exp=soon)) for _ in range(2)
    )
    channel = renewed.channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="configure access"):
        channel.queue_declare("q")
    renewed.update_secret(make_token("rabbitmq.configure:*/*"), "renewed")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="credential expired"):
        ending.process_data_events(30)
    assert time.time() >= soon
    renewed.channel().queue_declare("q")
    renewed.close()


def test_a_new_secret_must_be_of_the_same_user(running: Broker) -> None:
    connection = connect(running, make_token("rabbitmq.read:*/*"))
    text = "NOT_ALLOWED - New secret was refused by one of the backends"
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match=text):
        connection.update_secret(make_token("rabbitmq.read:*/*", sub="bob"), "another")


def test_bad_tokens_do_not_keep_good_ones_of_the_same_address_out(running: Broker) -> None:
    for _ in range(60):
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            connect(running, make_token(key=OTHER))
    connect(running, make_token("rabbitmq.read:*/*")).close()
    pika.BlockingConnection(pika.URLParameters(running.url)).close()
