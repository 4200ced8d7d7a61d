"""Users, what they may do, and who is logged in: values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias
from typing import Literal as OneOf

from headgate.broker.passwords import SHA256, PasswordHash, read_hash
from headgate.broker.refusals import AccessRefused, PreconditionFailed

PermissionKind: TypeAlias = OneOf["configure", "write", "read"]

USER_LIMITS: Final = ("max-connections", "max-channels")
VHOST_LIMITS: Final = ("max-connections", "max-queues")
DEFAULT_EXCHANGE: Final = "amq.default"  # what permissions call the exchange without a name
MAX_NAME_BYTES: Final = 255


@dataclass(frozen=True, slots=True)
class User:
    """A user; without a password it logs in with a certificate only."""

    name: str
    password: PasswordHash | None = None
    tags: tuple[str, ...] = ()
    limits: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As definitions have it, without its name."""
        password = self.password
        return {
            "password_hash": "" if password is None else password.to_text(),
            "hashing_algorithm": SHA256 if password is None else password.algorithm,
            "tags": list(self.tags),
            "limits": dict(self.limits),
        }


@dataclass(frozen=True, slots=True)
class Permission:
    """Patterns of the names that a user may configure, write and read in one virtual host."""

    configure: str = ""
    write: str = ""
    read: str = ""


@dataclass(frozen=True, slots=True)
class TopicPermission:
    """Patterns of the routing keys that a user may write and read at one topic exchange."""

    write: str = ""
    read: str = ""


class Grants(Protocol):
    """What a token allows, instead of the permissions of a user."""

    def may_enter(self, vhost: str) -> bool:
        """Whether it may use the virtual host at all."""

    def may(self, vhost: str, kind: PermissionKind, name: str) -> bool:
        """Whether it may do this with the queue or exchange of this name."""

    def may_topic(self, vhost: str, kind: PermissionKind, exchange: str, routing_key: str) -> bool:
        """Whether it may do this with the routing key."""


@dataclass(frozen=True, slots=True)
class Login:
    """A user that has logged in; `expires`, in seconds since 1970, if a token limits the time."""

    name: str
    tags: tuple[str, ...] = ()
    grants: Grants | None = field(default=None, repr=False)
    expires: float | None = None


class LoginRefused(AccessRefused):
    """A login failed. The text says why: it is for the log, not for the client."""


def make_user(name: str, table: Mapping[str, Any]) -> User:
    """The user that definitions describe."""
    check_name("user", name)
    password = read_hash(table.get("password_hash") or "", table.get("hashing_algorithm"))
    limits = check_limits(table.get("limits") or {}, USER_LIMITS)
    return User(name, password, parse_tags(table.get("tags", "")), limits)


def parse_tags(tags: Any) -> tuple[str, ...]:
    """Tags given as a list, or as text with commas."""
    names = tags.split(",") if isinstance(tags, str) else tags
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise PreconditionFailed(f"tags are a list of texts, not {tags!r}")
    return tuple(dict.fromkeys(name.strip() for name in names if name.strip()))


def check_limits(limits: Any, known: Iterable[str]) -> dict[str, int]:
    """The limits, checked; a negative one is no limit."""
    if not isinstance(limits, Mapping):
        if limits == []:  # how RabbitMQ writes no limits
            return {}
        raise PreconditionFailed(f"limits are a table, not {limits!r}")
    for name, value in limits.items():
        if name not in known:
            raise PreconditionFailed(f"there is no limit '{name}'; there are {', '.join(known)}")
        if isinstance(value, bool) or not isinstance(value, int):
            raise PreconditionFailed(f"the limit {name} is a whole number, not {value!r}")
    return dict(limits)


def check_name(kind: str, name: str) -> None:
    if not name or "\0" in name or len(name.encode()) > MAX_NAME_BYTES:
        raise PreconditionFailed(
            f"the name of a {kind} has 1 to {MAX_NAME_BYTES} bytes and no NUL: {name!r}"
        )
