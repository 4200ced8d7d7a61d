"""How a broker is protected from the network: TLS, the first administrator, and addresses that need both."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

from headgate.broker import ADMINISTRATOR, Broker, User, hash_password, is_loopback
from headgate.errors import SettingsError
from headgate.server.configuration import ServerOptions
from headgate.server.oauth2 import OAuth2Tokens, TokenKeys, TokenRules

ADMIN_PASSWORD: Final = "HEADGATE_ADMIN_PASSWORD"  # the name of the variable
GUEST: Final = "guest"
_VERIFY: Final = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


class TlsContext:
    """The TLS context of listening sockets; `load` reads certificates and keys again, for new connections.

    Sockets listen with `context`, which stays. Each handshake is handed to a context of the last load: what is added to a
    context, such as an authority, cannot be taken out of it.
    """

    def __init__(self, options: ServerOptions) -> None:
        self.context = _make_context(options)
        self.context.sni_callback = self._choose
        self.load(options)

    def load(self, options: ServerOptions) -> None:
        """Read certificates and keys; files that cannot be used change nothing."""
        if options.tls_certificate is None:
            raise SettingsError("tls.certificate is missing: a PEM file with the certificate")
        hosts = {
            name: _load(options, certificate, key) for name, certificate, key in options.tls_hosts
        }
        default = _load(options, options.tls_certificate, options.tls_key)
        # OpenSSL wants a certificate here, although every handshake uses another context.
        self.context.load_cert_chain(options.tls_certificate, options.tls_key)
        self._default, self._hosts = default, hosts
        files = [options.tls_certificate, *(file for _, file, _ in options.tls_hosts)]
        self.expiries = dict(_read_expiries(files))

    def _choose(self, connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        """Use the certificate of the host that the client asked for, if it has one of its own."""
        connection.context = self._hosts.get((name or "").lower(), self._default)


def _read_expiries(files: Iterable[Path]) -> Iterator[tuple[str, datetime]]:
    """When certificates expire, of a chain the first; unknown without the extra `server`, which asks for it."""
    try:
        from cryptography import x509
    except ImportError:
        return
    for file in files:
        yield str(file), x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc


def _make_context(options: ServerOptions) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = _VERIFY[options.tls_verify]
    # A resumed session skips the check of the certificate, whose authority may not be trusted any more.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    return context


def _load(options: ServerOptions, certificate: Path, key: Path | None) -> ssl.SSLContext:
    context = _make_context(options)
    try:
        context.load_cert_chain(certificate, key)
        if options.tls_authorities is not None:
            context.load_verify_locations(options.tls_authorities)
        elif options.tls_verify != "none":
            raise SettingsError(
                "tls.verify needs tls.authorities: a PEM file with the CAs whose clients are trusted"
            )
    except (OSError, ssl.SSLError) as problem:
        files = ", ".join(map(str, filter(None, (certificate, key, options.tls_authorities))))
        raise SettingsError(f"TLS cannot use {files}: {problem}") from problem
    return context


def set_up_access(
    broker: Broker, options: ServerOptions, environment: Mapping[str, str] = os.environ
) -> None:
    """Make the first administrator, and refuse an address from which everybody would know the password of `guest`."""
    password = _read_password(options, environment)
    access = broker.access
    access.tokens = _read_tokens(options)
    if password:
        if options.admin_user not in access.users:
            access.put_user(User(options.admin_user, hash_password(password), (ADMINISTRATOR,)))
            for vhost in broker.vhosts:
                access.set_permissions(options.admin_user, vhost, ".*", ".*", ".*")
        if options.admin_user != GUEST and access.has_default_password():
            access.delete_user(GUEST)
    if _is_local(options.host) or not access.has_default_password():
        return
    raise SettingsError(
        f"broker.host is {options.host}, which others can reach, and user guest has the password that everybody "
        f"knows. Set {ADMIN_PASSWORD} (or broker.admin_password_file) once: user '{options.admin_user}' is made an "
        "administrator with it, and guest is deleted. Or give guest another password first."
    )


def _read_tokens(options: ServerOptions) -> OAuth2Tokens | None:
    if options.oauth2_resource_server_id is None:
        return None
    if options.oauth2_keys is None:
        raise SettingsError(
            "oauth2.resource_server_id needs oauth2.keys: a PEM file, or a JWK or JWKS file or address"
        )
    rules = TokenRules(
        resource_server_id=options.oauth2_resource_server_id,
        scope_prefix=options.oauth2_scope_prefix,
        username_claims=options.oauth2_username_claims,
        issuer=options.oauth2_issuer,
        verify_audience=options.oauth2_verify_audience,
        additional_scopes=options.oauth2_additional_scopes,
        aliases=dict(options.oauth2_scope_aliases),
    )
    return OAuth2Tokens(rules, TokenKeys(str(options.oauth2_keys)))


def _read_password(options: ServerOptions, environment: Mapping[str, str]) -> str:
    if options.admin_password_file is None:
        return environment.get(ADMIN_PASSWORD, "")
    try:
        return options.admin_password_file.read_text().strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise SettingsError(f"broker.admin_password_file cannot be read: {problem}") from problem


def _is_local(host: str) -> bool:
    return host == "localhost" or (bool(host) and is_loopback(host))
