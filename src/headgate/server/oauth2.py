"""OAuth2 bearer tokens: a JWT in place of a password says who logs in, until when, and what it may do.

Scopes are read as RabbitMQ reads them, behind a prefix that names this broker, `rabbitmq.` for example:

read:vhost/name    write:vhost/name    configure:vhost/name       `*` stands for anything; other characters are URL-encoded
read:vhost/exchange/routing-key                                   for topic exchanges
tag:administrator
"""

from __future__ import annotations

import json
import re
import time
import urllib.request
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard
from urllib.parse import quote, unquote_plus, urlsplit

from headgate.broker import Login, LoginRefused, PermissionKind, is_loopback
from headgate.errors import MissingExtra, SettingsError
from headgate.filters import compile_like

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

ASYMMETRIC: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519",
)  # fmt: skip
SYMMETRIC: Final = ("HS256", "HS384", "HS512")
LEEWAY_S: Final = 10  # clocks differ
FETCH_S: Final = 5
MAX_KEYS_BYTES: Final = 1 << 20
REFRESH_S: Final = 60.0  # keys are asked for at most this often
LATEST: Final = 253_402_300_799  # the end of the year 9999
_TAG: Final = "tag:"
_LIKE_SIGNS: Final = re.compile("[%_!]")
_VARIABLE: Final = re.compile(r"\{([^{}]*)\}")


class Grant(NamedTuple):
    """One scope: patterns of a virtual host, of a name and, for topic exchanges, of a routing key."""

    kind: str
    vhost: str
    name: str
    routing_key: str | None


@dataclass(frozen=True, slots=True)
class TokenGrants:
    """The permissions that the scopes of a token grant."""

    grants: tuple[Grant, ...]
    claims: Mapping[str, str]  # the texts that `{name}` in a pattern of routing keys stands for

    def may_enter(self, vhost: str) -> bool:
        return any(wildcard_matches(grant.vhost, vhost) for grant in self.grants)

    def may(self, vhost: str, kind: PermissionKind, name: str) -> bool:
        return any(self._find(vhost, kind, name))

    def may_topic(self, vhost: str, kind: PermissionKind, exchange: str, routing_key: str) -> bool:
        return any(
            wildcard_matches(self._expand(grant.routing_key, vhost), routing_key)
            for grant in self._find(vhost, kind, exchange)
            if grant.routing_key is not None
        )

    def _find(self, vhost: str, kind: PermissionKind, name: str) -> Iterable[Grant]:
        for grant in self.grants:
            if (
                grant.kind == kind
                and wildcard_matches(grant.vhost, vhost)
                and wildcard_matches(grant.name, name)
            ):
                yield grant

    def _expand(self, pattern: str, vhost: str) -> str:
        """Put claims in place of their names; a `*` in a claim stands for itself, since users may choose those."""
        values = {**self.claims, "vhost": vhost}
        return _VARIABLE.sub(
            lambda found: quote(values[found[1]], safe="") if found[1] in values else found[0],
            pattern,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """The conditions under which a token is trusted, and the claims that name its user."""

    resource_server_id: str
    scope_prefix: str | None = None  # the id and a dot, unless it is said
    username_claims: tuple[str, ...] = ("sub", "client_id")
    issuer: str | None = None
    verify_audience: bool = True
    additional_scopes: str | None = None  # a claim with further scopes
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # scopes by another name

    @property
    def prefix(self) -> str:
        return f"{self.resource_server_id}." if self.scope_prefix is None else self.scope_prefix


class OAuth2Tokens:
    """Verifies tokens and reads their permissions; called in a thread."""

    def __init__(
        self, rules: TokenRules, keys: TokenKeys, clock: Callable[[], float] = time.time
    ) -> None:
        self._rules, self._keys, self._clock = rules, keys, clock

    def read(self, token: str) -> Login:
        claims = self._keys.verify(token)
        self._check_claims(claims)
        named = _resolve_aliases(_scopes(claims, self._rules), self._rules.aliases)
        scopes = _strip_prefix(named, self._rules.prefix)
        tags = tuple(scope.removeprefix(_TAG) for scope in scopes if scope.startswith(_TAG))
        texts = {name: value for name, value in claims.items() if isinstance(value, str)}
        grants = TokenGrants(tuple(parse_grants(scopes)), texts)
        return Login(self._name(claims), tags, grants, claims.get("exp"))

    def _check_claims(self, claims: Mapping[str, Any]) -> None:
        rules, now = self._rules, self._clock()
        expires, begins = claims.get("exp", LATEST), claims.get("nbf", 0)
        if not _is_time(expires) or not _is_time(begins):
            raise LoginRefused("the token has times that are no numbers of seconds")
        if expires <= now:
            raise LoginRefused(f"the token has expired at {expires} (it is {now:.0f})")
        if begins > now + LEEWAY_S:
            raise LoginRefused(f"the token is valid from {begins} on (it is {now:.0f})")
        if rules.issuer is not None and claims.get("iss") != rules.issuer:
            raise LoginRefused("the token is of another issuer")
        if rules.verify_audience and rules.resource_server_id not in _texts(claims.get("aud")):
            raise LoginRefused(f"the token is not for audience '{rules.resource_server_id}'")

    def _name(self, claims: Mapping[str, Any]) -> str:
        for claim in self._rules.username_claims:
            name = claims.get(claim)
            if isinstance(name, str) and name:
                return name
        raise LoginRefused(f"the token has no claim {' or '.join(self._rules.username_claims)}")


class TokenKeys:
    """The keys that sign tokens: a PEM file, a JWK, or a set of them, in a file or at an https address."""

    def __init__(self, source: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._source, self._clock = source, clock
        self._is_url = "://" in source
        if self._is_url:
            _check_url(source)
        self._read_at = clock()
        self._keys, self._is_symmetric = _read_keys(self._fetch())

    def verify(self, token: str) -> dict[str, Any]:
        """The claims of a token that one of the keys has signed."""
        from joserfc import jwt
        from joserfc.errors import JoseError

        algorithms = list(SYMMETRIC if self._is_symmetric else ASYMMETRIC)
        named = _key_id(token)
        for is_last in (False, True):
            keys = [key for key in self._keys.keys if key.kid == named] or self._keys.keys
            for key in keys:
                try:
                    return dict(jwt.decode(token, key, algorithms=algorithms).claims)
                except (JoseError, ValueError, TypeError, KeyError):
                    continue
            # Keys are replaced from time to time: perhaps it is signed with a new one.
            if is_last or not self._refresh():
                break
        raise LoginRefused("the token is not signed with a key that is known here")

    def _refresh(self) -> bool:
        if not self._is_url or self._clock() - self._read_at < REFRESH_S:
            return False
        self._read_at = self._clock()
        try:
            self._keys, self._is_symmetric = _read_keys(self._fetch())
        except SettingsError:
            return False
        return True

    def _fetch(self) -> str:
        try:
            if not self._is_url:
                return Path(self._source).read_text()
            with urllib.request.urlopen(self._source, timeout=FETCH_S) as answer:  # checked
                data: bytes = answer.read(MAX_KEYS_BYTES + 1)
            if len(data) > MAX_KEYS_BYTES:
                raise SettingsError(f"oauth2.keys: more than {MAX_KEYS_BYTES} bytes")
            return data.decode()
        except (OSError, UnicodeDecodeError) as problem:
            raise SettingsError(f"oauth2.keys cannot be read: {problem}") from problem


def parse_grants(scopes: Iterable[str]) -> Iterable[Grant]:
    """The grants of scopes without prefix; other scopes are ignored."""
    for scope in scopes:
        kind, colon, resource = scope.partition(":")
        parts = resource.split("/")
        if colon and kind in ("configure", "write", "read") and len(parts) in (2, 3):
            yield Grant(kind, parts[0], parts[1], parts[2] if len(parts) == 3 else None)


@lru_cache(maxsize=4_096)
def _wildcard(pattern: str) -> Callable[[str], bool]:
    # A regular expression would try each `*` at each place: LIKE is matched in linear time.
    parts = [_LIKE_SIGNS.sub(r"!\g<0>", unquote_plus(part)) for part in pattern.split("*")]
    return compile_like("%".join(parts), "!")


def wildcard_matches(pattern: str, text: str) -> bool:
    """Whether a text is what a pattern with `*` describes."""
    return _wildcard(pattern)(text)


def _is_time(value: Any) -> TypeGuard[float]:
    """Whether a claim is a time that a clock can reach; NaN is none."""
    return isinstance(value, int | float) and 0 <= value <= LATEST


def _scopes(claims: Mapping[str, Any], rules: TokenRules) -> list[str]:
    found = _texts(claims.get("scope"))
    more = claims.get(rules.additional_scopes) if rules.additional_scopes else None
    if isinstance(more, Mapping):  # by resource server, without prefix
        own = _texts(more.get(rules.resource_server_id))
        return found + [f"{rules.resource_server_id}.{scope}" for scope in own]
    return found + _texts(more)


def _resolve_aliases(
    scopes: Iterable[str], aliases: Mapping[str, tuple[str, ...]]
) -> Iterable[str]:
    """Scopes, and in place of each alias those that it stands for."""
    for scope in scopes:
        yield from aliases.get(scope, (scope,))


def _strip_prefix(scopes: Iterable[str], prefix: str) -> list[str]:
    return [scope.removeprefix(prefix) for scope in scopes if scope.startswith(prefix)]


def _texts(value: Any) -> list[str]:
    """A list of texts, or a text with spaces."""
    parts = value.split() if isinstance(value, str) else value
    return [part for part in parts if isinstance(part, str)] if isinstance(parts, list) else []


def _key_id(token: str) -> str | None:
    """The name of the key that a token says it is signed with."""
    head = token.partition(".")[0]
    try:
        found = json.loads(urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    except (ValueError, RecursionError):
        return None
    return found.get("kid") if isinstance(found, dict) else None


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    host = parts.hostname or ""
    is_local = host == "localhost" or (bool(host) and is_loopback(host))
    if parts.scheme != "https" and not (parts.scheme == "http" and is_local):
        raise SettingsError(f"oauth2.keys must be a file or an https address, not {url!r}")


def _read_keys(text: str) -> tuple[KeySet, bool]:
    """A set of keys, and whether they are secrets that sign as well."""
    try:
        from joserfc.errors import JoseError
        from joserfc.jwk import ECKey, KeySet, OKPKey, RSAKey
    except ImportError as problem:
        raise MissingExtra("server", "OAuth2 tokens") from problem
    try:
        if text.lstrip().startswith("{"):
            document = json.loads(text)
            keys = KeySet.import_key_set(document if "keys" in document else {"keys": [document]})
            return keys, all(key.key_type == "oct" for key in keys.keys)
    except (JoseError, ValueError, TypeError, KeyError) as problem:
        raise SettingsError(f"oauth2.keys is no JWK or set of them: {problem}") from problem
    for kind in (RSAKey, ECKey, OKPKey):
        try:
            return KeySet([kind.import_key(text)]), False
        except (JoseError, ValueError, TypeError):
            continue
    raise SettingsError(
        "oauth2.keys is neither a JWK, nor a set of them, nor a PEM file of a public key"
    )
