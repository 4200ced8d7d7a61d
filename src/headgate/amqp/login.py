"""SASL: how a client logs in. PLAIN and AMQPLAIN send a password, EXTERNAL uses the certificate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias
from typing import Literal as OneOf

from headgate.amqp.reply_codes import ConnectionFailed
from headgate.amqp.tables import Malformed, decode_table
from headgate.broker import AccessControl, Login, LoginRefused

CertificateName: TypeAlias = OneOf["common_name", "distinguished_name"]
PASSWORDS: Final = ("PLAIN", "AMQPLAIN")
EXTERNAL: Final = "EXTERNAL"
# Names of the parts of a distinguished name, as RFC 4514 has them.
_SHORT: Final = {
    "commonName": "CN", "countryName": "C", "domainComponent": "DC", "localityName": "L",
    "organizationName": "O", "organizationalUnitName": "OU", "stateOrProvinceName": "ST",
    "streetAddress": "STREET", "userId": "UID", "emailAddress": "emailAddress",
}  # fmt: skip


class Peer(NamedTuple):
    """The other end of a connection: its address, and the certificate that TLS has verified, if any."""

    address: str
    certificate: Mapping[str, Any] | None = None

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The SASL mechanisms that the peer may use."""
        return (*PASSWORDS, EXTERNAL) if self.certificate else PASSWORDS


async def log_in(
    access: AccessControl, peer: Peer, mechanism: str, response: bytes, name_from: CertificateName
) -> Login:
    """Log a client in; LoginRefused if it cannot be trusted."""
    if mechanism not in peer.mechanisms:
        raise ConnectionFailed(503, f"unknown authentication mechanism '{mechanism}'")
    if mechanism == EXTERNAL:
        name = certificate_name(peer.certificate or {}, name_from)
        return access.authenticate_certificate(name, peer.address)
    read = _read_plain if mechanism == "PLAIN" else _read_amqplain
    return await access.authenticate(*read(response), peer.address)


def certificate_name(certificate: Mapping[str, Any], name_from: CertificateName) -> str:
    """The user that a certificate names."""
    parts = [part for relative in certificate.get("subject", ()) for part in relative]
    if name_from == "distinguished_name":
        return ",".join(_write_parts(reversed(parts)))
    names = [value for kind, value in parts if kind == "commonName"]
    if not names:
        raise LoginRefused("the certificate of the client has no common name")
    return str(names[-1])


def _write_parts(parts: Iterable[tuple[str, str]]) -> Iterable[str]:
    for kind, value in parts:
        escaped = "".join(f"\\{c}" if c in '\\,+"<>;' else c for c in value)
        yield f"{_SHORT.get(kind, kind)}={escaped}"


def _read_plain(response: bytes) -> tuple[str, str]:
    parts = response.split(b"\0")
    if len(parts) != 3:
        raise ConnectionFailed(502, "the response of mechanism PLAIN is invalid")
    return _texts(*parts[1:])


def _read_amqplain(response: bytes) -> tuple[str, str]:
    try:
        table = decode_table(len(response).to_bytes(4, "big") + response)[0]
    except Malformed as problem:
        raise ConnectionFailed(502, "the response of mechanism AMQPLAIN is invalid") from problem
    found = [table.get(key) for key in ("LOGIN", "PASSWORD")]
    if not all(isinstance(value, str | bytes) for value in found):
        raise ConnectionFailed(502, "AMQPLAIN auth info is missing LOGIN or PASSWORD field")
    return _texts(*(v if isinstance(v, bytes) else v.encode() for v in found))  # type: ignore[union-attr]


def _texts(user: bytes, password: bytes) -> tuple[str, str]:
    try:
        return user.decode(), password.decode()
    except UnicodeDecodeError:
        raise LoginRefused("user or password is not UTF-8") from None
