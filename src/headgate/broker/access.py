"""Who may log in, and what each may do: users, permissions, limits. As RabbitMQ 4.0.

Passwords are checked in a thread, because that takes long on purpose; a client that connects again with a password
that was right a moment ago does not wait for it. Everything else happens in the thread of the broker.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from weakref import WeakValueDictionary

from headgate.broker.login_throttle import LoginThrottle
from headgate.broker.name_patterns import check_pattern, name_matches
from headgate.broker.passwords import (
    BLOCKS,
    KEY_BYTES,
    LOG_N,
    PARALLEL,
    SALT_BYTES,
    SCRYPT,
    PasswordHash,
    hash_password,
    hash_quickly,
)
from headgate.broker.refusals import AccessRefused, NotAllowed, NotFound, PreconditionFailed
from headgate.broker.stored_table import StoredDefinitions, StoredTable
from headgate.broker.users import (
    DEFAULT_EXCHANGE,
    MAX_NAME_BYTES,
    USER_LIMITS,
    Login,
    LoginRefused,
    Permission,
    PermissionKind,
    TopicPermission,
    User,
    check_limits,
    check_name,
    make_user,
    parse_tags,
)

if TYPE_CHECKING:
    from headgate.broker.broker import Broker

log: Final = logging.getLogger(__name__)

GUEST: Final = "guest"  # the first user, and its password
ADMINISTRATOR: Final = "administrator"
MAX_VERIFIED: Final = 1_024
HASHING_THREADS: Final = 2
# Checked when there is no such user, so that the answer takes as long.
_UNKNOWN: Final = PasswordHash(
    SCRYPT, bytes((LOG_N, BLOCKS, PARALLEL)) + os.urandom(SALT_BYTES + KEY_BYTES)
)
_Result = TypeVar("_Result")


class TokenReader(Protocol):
    """Reads bearer tokens, which clients send instead of passwords."""

    def read(self, token: str) -> Login:
        """The login that the token grants; LoginRefused if the token cannot be trusted."""


class AccessControl:
    """Users and permissions of a broker. Names are those of RabbitMQ's commands."""

    def __init__(self, broker: Broker, clock: Callable[[], float] = time.monotonic) -> None:
        store = broker.store
        self._broker = broker
        self.users: StoredTable[str, User] = StoredTable(
            store, "user", lambda user: {"name": user.name, **user.to_json()}, _read_user
        )
        self.permissions: StoredTable[tuple[str, str], Permission] = StoredTable(
            store, "permission", asdict, lambda table: Permission(**table)
        )  # by virtual host and user
        self.topic_permissions: StoredTable[tuple[str, str, str], TopicPermission] = StoredTable(
            store, "topic-permission", asdict, lambda table: TopicPermission(**table)
        )  # by virtual host, user and exchange
        self.loopback_users: frozenset[str] = frozenset({GUEST})
        self.tokens: TokenReader | None = None
        self.throttle = LoginThrottle(clock)
        self._verified: OrderedDict[bytes, PasswordHash] = OrderedDict()
        self._turns: WeakValueDictionary[bytes | str, asyncio.Lock] = WeakValueDictionary()
        self._secret = os.urandom(32)
        self._threads: ThreadPoolExecutor | None = None

    def restore(self, definitions: StoredDefinitions) -> None:
        """Take over what an earlier run stored."""
        for table in (self.users, self.permissions, self.topic_permissions):
            table.restore(definitions)

    def add_guest(self) -> None:
        """Add the first user: it may do everything, and is let in from this machine only."""
        self.put_user(User(GUEST, hash_quickly(GUEST), (ADMINISTRATOR,)))
        self.set_permissions(GUEST, "/", ".*", ".*", ".*")

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    # ---- users

    def find_user(self, name: str) -> User:
        user = self.users.get(name)
        if user is None:
            raise NotFound("user", name)
        return user

    async def add_user(self, name: str, password: str, tags: Iterable[str] = ()) -> User:
        """Add a user, or give one that is there another password and other tags."""
        if not password:
            raise PreconditionFailed(f"the password of user '{name}' is empty")
        known = self.users.get(name)
        hashed = await self._in_thread(lambda: hash_password(password))
        user = User(name, hashed, parse_tags(list(tags)), known.limits if known else {})
        self.put_user(user)
        return user

    async def change_password(self, name: str, password: str) -> None:
        await self.add_user(name, password, self.find_user(name).tags)

    def put_user(self, user: User) -> None:
        """Add a user whose password is hashed already, or replace one."""
        check_name("user", user.name)
        self.users.put(user.name, user)
        self._changed()

    def set_tags(self, name: str, tags: Iterable[str]) -> None:
        self.put_user(replace(self.find_user(name), tags=parse_tags(list(tags))))

    def set_user_limits(self, name: str, limits: Mapping[str, int]) -> None:
        """Set limits of a user, as RabbitMQ names them; others stay as they are."""
        user = self.find_user(name)
        limits = {**user.limits, **check_limits(limits, USER_LIMITS)}
        self.put_user(replace(user, limits=limits))

    def clear_user_limits(self, name: str, limit: str | None = None) -> None:
        """Lift a limit of a user, or all."""
        user = self.find_user(name)
        left = {key: value for key, value in user.limits.items() if limit not in (None, key)}
        self.put_user(replace(user, limits=left))

    def delete_user(self, name: str) -> None:
        """Delete a user with its permissions; its connections are closed."""
        self.find_user(name)
        self.users.remove(name)
        for key in [key for key in self.permissions if key[1] == name]:
            self.permissions.remove(key)
        for topic in [topic for topic in self.topic_permissions if topic[1] == name]:
            self.topic_permissions.remove(topic)
        self._changed()
        self._broker.sessions.close_user(name, f"user '{name}' was deleted")

    def forget_vhost(self, vhost: str) -> None:
        """Delete all permissions in a virtual host."""
        for key in [key for key in self.permissions if key[0] == vhost]:
            self.permissions.remove(key)
        for topic in [topic for topic in self.topic_permissions if topic[0] == vhost]:
            self.topic_permissions.remove(topic)

    # ---- permissions

    def set_permissions(self, user: str, vhost: str, configure: str, write: str, read: str) -> None:
        """Set the patterns of names that a user may configure, write and read in a virtual host; the empty pattern allows nothing."""
        self.find_user(user)
        self._broker.find_vhost(vhost)
        patterns = map(check_pattern, (configure, write, read))
        self.permissions.put((vhost, user), Permission(*patterns))
        self._changed()

    def clear_permissions(self, user: str, vhost: str) -> None:
        self.find_user(user)
        self._broker.find_vhost(vhost)
        self.permissions.remove((vhost, user))
        self._changed()

    def set_topic_permissions(
        self, user: str, vhost: str, exchange: str, write: str, read: str
    ) -> None:
        """Restrict the routing keys that a user may write and read at a topic exchange."""
        self.find_user(user)
        self._broker.find_vhost(vhost)
        permission = TopicPermission(check_pattern(write), check_pattern(read))
        self.topic_permissions.put((vhost, user, exchange), permission)
        self._changed()

    def clear_topic_permissions(self, user: str, vhost: str, exchange: str | None = None) -> None:
        """Lift the restriction at one exchange, or at all."""
        self.find_user(user)
        for key in [key for key in self.topic_permissions if key[:2] == (vhost, user)]:
            if exchange in (None, key[2]):
                self.topic_permissions.remove(key)
        self._changed()

    # ---- questions

    def may_enter(self, login: Login, vhost: str) -> bool:
        """Whether a login may use a virtual host at all."""
        if login.grants is not None:
            return login.grants.may_enter(vhost)
        return (vhost, login.name) in self.permissions

    def may(self, login: Login, vhost: str, kind: PermissionKind, name: str) -> bool:
        """Whether a login may configure, write or read the queue or exchange of this name."""
        name = name or DEFAULT_EXCHANGE
        if login.grants is not None:
            return login.grants.may(vhost, kind, name)
        permission = self.permissions.get((vhost, login.name))
        return permission is not None and name_matches(getattr(permission, kind), name)

    def may_topic(
        self, login: Login, vhost: str, kind: PermissionKind, exchange: str, routing_key: str
    ) -> bool:
        """Whether a login may write or read a routing key at a topic exchange."""
        if login.grants is not None:
            return login.grants.may_topic(vhost, kind, exchange, routing_key)
        permission = self.topic_permissions.get((vhost, login.name, exchange))
        if permission is None:
            return True
        pattern = permission.write if kind == "write" else permission.read
        for name, value in (("username", login.name), ("vhost", vhost)):
            pattern = pattern.replace(f"{{{name}}}", re.escape(value))
        return name_matches(pattern, routing_key)

    def check_enter(self, login: Login, vhost: str) -> None:
        if not self.may_enter(login, vhost):
            raise NotAllowed(f"access to vhost '{vhost}' refused for user '{login.name}'")

    def check(
        self, login: Login, vhost: str, permission: PermissionKind, kind: str, name: str
    ) -> None:
        """Refuse, in RabbitMQ's words, an operation on a queue or exchange that the login may not do."""
        if not self.may(login, vhost, permission, name):
            shown = name or DEFAULT_EXCHANGE
            raise AccessRefused(
                f"{permission} access to {kind} '{shown}' in vhost '{vhost}' refused for user '{login.name}'"
            )

    def check_topic(
        self, login: Login, vhost: str, permission: PermissionKind, exchange: str, routing_key: str
    ) -> None:
        """Refuse, in RabbitMQ's words, a routing key that the login may not use at a topic exchange."""
        if not self.may_topic(login, vhost, permission, exchange, routing_key):
            raise AccessRefused(
                f"{permission} access to topic '{routing_key}' in exchange topic '{exchange}' in vhost '{vhost}' "
                f"refused for user '{login.name}'"
            )

    # ---- logging in

    async def authenticate(self, name: str, password: str, address: str) -> Login:
        """Log in with a password, or with a token in its place; LoginRefused says why not."""
        if self.tokens is not None and password.count(".") == 2 and password.startswith("ey"):
            return await self._in_thread(partial(self.tokens.read, password))
        if not password:
            raise LoginRefused(f"user '{name}' sent an empty password")
        if len(name) > MAX_NAME_BYTES:
            raise LoginRefused(f"user '{name[:20]}…' has a name of {len(name)} characters")
        ticket = self._ticket(name, password)
        # Many clients that reconnect at once wait for the first verification; a guesser waits for the last failure.
        async with self._turn(ticket):
            if not self._is_verified(name, ticket):
                async with self._turn(address):
                    await self._verify(name, password, address)
        return self._let_in(name, self.users.get(name), address)

    def authenticate_certificate(self, name: str, address: str) -> Login:
        """Log in as the user that a certificate names, which the TLS handshake has checked."""
        return self._let_in(name, self.users.get(name), address)

    def has_default_password(self) -> bool:
        """Whether the first user is still there with the password that everybody knows."""
        guest = self.users.get(GUEST)
        return guest is not None and guest.password is not None and guest.password.verify(GUEST)

    def _turn(self, of: bytes | str) -> asyncio.Lock:
        return self._turns.setdefault(of, asyncio.Lock())

    def _is_verified(self, name: str, ticket: bytes) -> bool:
        user, verified = self.users.get(name), self._verified.get(ticket)
        return user is not None and verified is not None and user.password == verified

    async def _verify(self, name: str, password: str, address: str) -> None:
        if not self.throttle.allows(address, name):
            raise LoginRefused(f"too many failed logins of user '{name}' from {address or 'here'}")
        user = self.users.get(name)
        known = user.password if user is not None else None
        hashed = known or _UNKNOWN
        is_right = await self._in_thread(lambda: hashed.verify(password))
        if known is None or not is_right:
            self.throttle.note_failure(address, name)
            raise LoginRefused(f"user '{name}' - invalid credentials")
        self.throttle.forget_failures(address, name)
        if not known.is_current:
            known = await self._renew(name, password, known)
        self._verified[self._ticket(name, password)] = known
        if len(self._verified) > MAX_VERIFIED:
            self._verified.popitem(last=False)

    async def _renew(self, name: str, password: str, known: PasswordHash) -> PasswordHash:
        """Store the hash of a password in the current form, unless the password was changed meanwhile."""
        renewed = await self._in_thread(lambda: hash_password(password))
        user = self.users.get(name)
        if user is None or user.password != known:
            return known
        self.users.put(name, replace(user, password=renewed))
        return renewed

    def _let_in(self, name: str, user: User | None, address: str) -> Login:
        if user is None:
            raise LoginRefused(f"user '{name}' - invalid credentials")
        if name in self.loopback_users and not is_loopback(address):
            raise LoginRefused(f"user '{name}' can only connect via localhost")
        return Login(name, user.tags)

    def _ticket(self, name: str, password: str) -> bytes:
        """A keyed digest of user and password, which reveals neither."""
        text = f"{len(name)}:{name}{password}".encode()
        return hmac.new(self._secret, text, hashlib.sha256).digest()

    async def _in_thread(self, call: Callable[[], _Result]) -> _Result:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(HASHING_THREADS, "headgate-passwords")
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def _changed(self) -> None:
        """Make every connection check its permissions anew."""
        for vhost in self._broker.vhosts.values():
            vhost.forget_routes()


def _read_user(table: Mapping[str, Any]) -> User:
    return make_user(table["name"], table)


def is_loopback(address: str) -> bool:
    """Whether a peer is on this machine; one without an address uses a Unix socket."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return address == ""
    return (getattr(ip, "ipv4_mapped", None) or ip).is_loopback
