"""TLS with a CA made here: certificates of hosts and clients, logins by certificate, reloading; and addresses to listen on."""

from __future__ import annotations

import asyncio
import datetime
import gc
import json
import socket
import ssl
import threading
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import httpx
import pika
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from pika.credentials import ExternalCredentials

from benches.amqp_client import connected, encode_publish
from headgate.amqp.connection import Connection
from headgate.amqp.methods import method_frame
from headgate.broker import User
from headgate.errors import SettingsError
from headgate.server import new_event_loop
from headgate.testing import Broker
from headgate.testing import broker as running
from tests.patience import wait_until


class Authority:
    """A CA that writes certificates and keys into a directory."""

    def __init__(self, directory: Path, name: str = "test CA") -> None:
        self.directory, self.key = directory, ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.file = directory / f"{name}.pem"
        self.file.write_bytes(self._sign(self.name, self.key, None))

    def issue(self, name: str, host: str = "localhost", file: str = "") -> tuple[Path, Path]:
        """A certificate and its key, for a host or a client."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Shop, Inc"),
                x509.NameAttribute(NameOID.COMMON_NAME, name),
            ]
        )
        files = self.directory / f"{file or name}.pem", self.directory / f"{file or name}.key"
        files[0].write_bytes(self._sign(subject, key, host))
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return files

    def _sign(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, host: str | None) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=host is None, path_length=None), critical=True)
            .add_extension(_AUTHORITY_USE if host is None else _HOST_USE, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(_key_identifier(self.key.public_key()), critical=False)
        )
        if host is not None:
            names = x509.SubjectAlternativeName([x509.DNSName(host)])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _key_use(certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certificates,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


# Since Python 3.13, clients ask for these.
_AUTHORITY_USE, _HOST_USE = _key_use(certificates=True), _key_use(certificates=False)
_key_identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def secured(authority: Authority) -> Iterator[Broker]:
    certificate, key = authority.issue("broker")
    other = authority.issue("other", "other.example")
    with Broker(
        tls_certificate=certificate,
        tls_key=key,
        tls_authorities=authority.file,
        tls_verify="optional",
        tls_hosts={"Other.example": [str(file) for file in other]},
        http_tls=True,
    ) as broker:
        yield broker


def connect(
    broker: Broker,
    authority: Authority,
    client: tuple[Path, Path] | None = None,
    host: str = "localhost",
    **more: object,
) -> pika.BlockingConnection:
    context = ssl.create_default_context(cafile=str(authority.file))
    if client is not None:
        context.load_cert_chain(*client)
    options = pika.SSLOptions(context, host)
    parameters = pika.ConnectionParameters(
        "127.0.0.1", broker.tls_port, ssl_options=options, **more
    )
    return pika.BlockingConnection(parameters)


def test_messages_go_over_tls(secured: Broker, authority: Authority) -> None:
    connection = connect(secured, authority)
    channel = connection.channel()
    channel.queue_declare("q")
    body = b"x" * 3_000_000
    channel.basic_publish("", "q", body)
    assert channel.basic_get("q")[2] == body
    assert secured.call(lambda: [c.tls for c in secured.broker.connections.values()]) == [True]
    connection.close()


def test_a_host_of_its_own_has_its_own_certificate(secured: Broker, authority: Authority) -> None:
    connect(secured, authority, host="other.example").close()
    context = ssl.create_default_context(cafile=str(authority.file))
    with (
        socket.create_connection(("127.0.0.1", secured.tls_port)) as plain,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        context.wrap_socket(plain, server_hostname="third.example")


def test_the_http_port_speaks_tls(secured: Broker, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=str(authority.file))
    request = urllib.request.Request(f"https://localhost:{secured.http_port}/api/overview")
    request.add_header("Authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=")
    with urllib.request.urlopen(request, context=context, timeout=30) as answer:
        listeners = json.load(answer)["listeners"]
    assert [(row["protocol"], row["port"], row["tls"]) for row in listeners] == [
        ("amqp", secured.port, False),
        ("amqp/ssl", secured.tls_port, True),
        ("https", secured.http_port, True),
    ]


def test_certificates_that_expire_soon_fail_their_health_check(
    secured: Broker, authority: Authority
) -> None:
    context = ssl.create_default_context(cafile=str(authority.file))
    url = f"https://localhost:{secured.http_port}/api/health/checks/certificate-expiration"
    with httpx.Client(verify=context, auth=("guest", "guest")) as client:  # valid for a day
        assert client.get(f"{url}/0/days").json() == {"status": "ok"}
        answer = client.get(f"{url}/1/weeks")
        assert (answer.status_code, answer.json()["reason"]) == (503, "Certificates expiring")
        files = [row["certfile"] for row in answer.json()["expired"]]
        assert files == [str(authority.directory / name) for name in ("broker.pem", "other.pem")]
        for wrong in ("1/hours", "x/days", "99999/years", "-1/days"):
            assert client.get(f"{url}/{wrong}").status_code == 400


@pytest.mark.parametrize(
    ("name_from", "user"),
    [("distinguished_name", "CN=shop,O=Shop\\, Inc"), ("common_name", "shop")],
)
def test_a_certificate_names_its_user(authority: Authority, name_from: str, user: str) -> None:
    certificate, key = authority.issue("broker")
    files = {"tls_certificate": certificate, "tls_key": key, "tls_authorities": authority.file}
    with Broker(**files, tls_verify="optional", certificate_name=name_from) as broker:
        credentials = ExternalCredentials()
        client = authority.issue("shop")
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            connect(broker, authority, client, credentials=credentials)

        def add() -> None:
            broker.broker.access.put_user(User(user))
            broker.broker.access.set_permissions(user, "/", ".*", ".*", ".*")

        broker.call(add)
        connection = connect(broker, authority, client, credentials=credentials)
        connection.channel().queue_declare("q")
        names = broker.call(lambda: [c.user for c in broker.broker.connections.values()])
        assert names == [user]
        connection.close()
        with pytest.raises(pika.exceptions.AMQPConnectionError):  # which is not offered
            connect(broker, authority, None, credentials=credentials)


def test_clients_without_a_trusted_certificate_are_refused(
    authority: Authority, tmp_path: Path
) -> None:
    certificate, key = authority.issue("broker")
    files = {"tls_certificate": certificate, "tls_key": key, "tls_authorities": authority.file}
    (tmp_path / "strangers").mkdir()
    stranger = Authority(tmp_path / "strangers", "another CA").issue("stranger")
    with Broker(**files, tls_verify="required") as broker:
        connect(broker, authority, authority.issue("client")).close()
        for client in (None, stranger):
            with pytest.raises(pika.exceptions.AMQPConnectionError):
                connect(broker, authority, client)


def test_a_renewed_certificate_is_read_on_reload_and_a_bad_one_is_not(
    secured: Broker, authority: Authority, tmp_path: Path
) -> None:
    open_before = connect(secured, authority)
    server = secured.server
    authority.issue("broker", "new.example")
    secured.call(lambda: server.reconfigure(server.options))
    connect(secured, authority, host="new.example").close()
    (tmp_path / "broker.pem").write_text("no certificate")
    secured.call(lambda: server.reconfigure(server.options))
    connect(secured, authority, host="new.example").close()
    open_before.channel().queue_declare("q")
    open_before.close()


def test_an_authority_that_is_taken_out_of_the_file_is_trusted_no_more(
    authority: Authority, tmp_path: Path
) -> None:
    certificate, key = authority.issue("broker")
    (tmp_path / "former").mkdir()
    former = Authority(tmp_path / "former", "former CA")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(authority.file.read_bytes() + former.file.read_bytes())
    files = {"tls_certificate": certificate, "tls_key": key, "tls_authorities": trusted}
    client = former.issue("client")
    with Broker(**files, tls_verify="required") as broker:
        connect(broker, authority, client).close()
        trusted.write_bytes(authority.file.read_bytes())
        broker.call(lambda: broker.server.reconfigure(broker.server.options))
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            connect(broker, authority, client)
        connect(broker, authority, authority.issue("other client")).close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_is_not_resumed_by_a_ticket(
    secured: Broker, authority: Authority, version: ssl.TLSVersion
) -> None:
    context = ssl.create_default_context(cafile=str(authority.file))
    context.minimum_version = context.maximum_version = version
    address = "127.0.0.1", secured.tls_port
    with context.wrap_socket(socket.create_connection(address), server_hostname="localhost") as tls:
        tls.sendall(b"AMQP\0\0\x09\1")
        assert tls.recv(7)
        assert tls.session is None or not tls.session.has_ticket


@pytest.mark.parametrize(
    "sent", [b"", b"\x16\x03\x01", b"AMQP\0\0\x09\1", b"GET / HTTP/1.1\r\n\r\n"]
)
def test_who_does_not_shake_hands_is_cut_off(authority: Authority, sent: bytes) -> None:
    certificate, key = authority.issue("broker")
    with (
        Broker(tls_certificate=certificate, tls_key=key, handshake_timeout="1s", http_tls=True) as broker,
        socket.create_connection(("127.0.0.1", broker.tls_port), timeout=20) as plain,
    ):  # fmt: skip
        plain.sendall(sent)
        with suppress(ConnectionResetError):
            while plain.recv(100):  # an alert of TLS, perhaps
                pass


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, new_event_loop])
@pytest.mark.parametrize("peer", ["silent", "half a hello", "logged in", "unread"])
def test_no_peer_holds_up_a_broker_that_stops(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, make_loop: object, peer: str
) -> None:
    monkeypatch.setattr(running, "new_event_loop", make_loop)
    certificate, key = authority.issue("broker")
    broker = Broker(tls_certificate=certificate, tls_key=key, http_tls=True).__enter__()
    with ExitStack() as peers:
        if peer == "logged in":
            connect(broker, authority).channel()  # which does not answer
        elif peer == "unread":
            client = peers.enter_context(connected(broker.port))
            client.declare("q")
            client.socket.sendall(encode_publish("q", body=bytes(100_000)) * 200)
            client.socket.sendall(
                method_frame(1, "basic.consume", 0, "q", "c", False, True, False, False, {})
            )
            wait_until(lambda: broker.call(lambda: is_unread(broker)))
        else:
            for port in (broker.tls_port, broker.http_port):
                silent = peers.enter_context(socket.create_connection(("127.0.0.1", port)))
                silent.sendall(b"\x16\x03\x01\2\0" if peer == "half a hello" else b"")
            listening = peers.enter_context(
                socket.create_connection(("127.0.0.1", broker.tls_port))
            )
            with pytest.raises(ssl.SSLCertVerificationError):  # and stays
                ssl.create_default_context().wrap_socket(
                    listening.dup(), server_hostname="localhost"
                )
        stopping = threading.Thread(target=broker.__exit__, args=(None, None, None), daemon=True)
        stopping.start()
        stopping.join(5)
        assert not stopping.is_alive()
    with warnings.catch_warnings():  # nobody has closed what did not shake hands
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def is_unread(broker: Broker) -> bool:
    """Whether a client leaves unread what was sent to it."""
    return any(not c.client.is_writable for c in broker.broker.connections.values())


def test_a_login_that_is_late_because_of_tls_has_no_socket_to_close(secured: Broker) -> None:
    listener = secured.server._amqp._listener
    secured.call(lambda: Connection(listener).handshake._too_late())


def test_old_versions_of_tls_are_refused(secured: Broker) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection(("127.0.0.1", secured.tls_port)) as plain,
        pytest.raises((ssl.SSLError, ConnectionResetError)),
    ):
        context.wrap_socket(plain)


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing.pem"
    with (
        pytest.raises(SettingsError, match=r"TLS cannot use .*missing.pem"),
        Broker(tls_certificate=missing),
    ):
        pass
    with (
        pytest.raises(SettingsError, match=r"http.tls needs tls.certificate"),
        Broker(http_tls=True),
    ):
        pass


def test_an_address_for_others_needs_another_password_than_guests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    with (
        pytest.raises(SettingsError, match=r"HEADGATE_ADMIN_PASSWORD") as refused,
        Broker(data, host="0.0.0.0"),
    ):
        pass
    assert "guest is deleted" in str(refused.value)
    monkeypatch.setenv("HEADGATE_ADMIN_PASSWORD", "opensesame")
    with Broker(data, host="0.0.0.0", admin_user="root") as broker:
        assert list(broker.broker.access.users) == ["root"]
        url = f"amqp://root:opensesame@127.0.0.1:{broker.port}/%2F"
        pika.BlockingConnection(pika.URLParameters(url)).close()
    monkeypatch.delenv("HEADGATE_ADMIN_PASSWORD")
    with Broker(data, host="0.0.0.0"):  # it is known from now on
        pass


def test_the_password_of_the_administrator_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    with pytest.raises(SettingsError, match="cannot be read"), Broker(admin_password_file=file):
        pass
    file.write_text("opensesame\n")
    with Broker(admin_password_file=file) as broker:
        url = f"amqp://admin:opensesame@127.0.0.1:{broker.port}/%2F"
        pika.BlockingConnection(pika.URLParameters(url)).close()
        assert "opensesame" not in repr(replace(broker.server.options))
