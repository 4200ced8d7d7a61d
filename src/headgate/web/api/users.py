"""Users, permissions and their limits over HTTP."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from headgate.broker import Permission, TopicPermission, User, hash_quickly, make_user, parse_tags
from headgate.web.api.bodies import integer, text
from headgate.web.api.listing import QUERY, list_rows
from headgate.web.api.shapes import JsonObject
from headgate.web.endpoints import Call, EndpointTable
from headgate.web.problems import bad_request, missing

api = EndpointTable()

USER: Final = {
    "type": "object",
    "properties": {
        "password": {"type": "string"},
        "password_hash": {"type": "string"},
        "hashing_algorithm": {"type": "string"},
        "tags": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    },
}
PERMISSION: Final = {
    "type": "object",
    "required": ["configure", "write", "read"],
    "properties": {name: {"type": "string"} for name in ("configure", "write", "read")},
}
TOPIC_PERMISSION: Final = {
    "type": "object",
    "required": ["exchange", "write", "read"],
    "properties": {name: {"type": "string"} for name in ("exchange", "write", "read")},
}
PATTERNS: Final = ("configure", "write", "read")
SHA256: Final = "rabbit_password_hashing_sha256"
LIMIT: Final = {
    "type": "object",
    "required": ["value"],
    "properties": {"value": {"type": "integer"}},
}


def user_row(user: User) -> JsonObject:
    return {"name": user.name, **user.to_json()}


@api.get("/api/users", needs="administrator", query=QUERY)
def get_users(call: Call) -> Any:
    """Users, with the hashes of their passwords."""
    return list_rows(call, map(user_row, call.broker.access.users.values()), ("name",))


@api.get("/api/users/without-permissions", needs="administrator", query=QUERY)
def get_users_without_permissions(call: Call) -> Any:
    """Users that may not use any virtual host."""
    access = call.broker.access
    with_some = {user for _, user in access.permissions}
    rows = [user_row(user) for user in access.users.values() if user.name not in with_some]
    return list_rows(call, rows, ("name",))


@api.post("/api/users/bulk-delete", needs="administrator", body={"type": "object"}, told=("users",))
def delete_users(call: Call) -> None:
    """Delete several users."""
    names = call.document().get("users")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise bad_request("users must be a list of names")
    for name in names:
        if name in call.broker.access.users:
            _delete(call, name)


@api.get("/api/users/{user}", needs="administrator")
def get_user(call: Call) -> JsonObject:
    """One user."""
    return user_row(call.broker.access.find_user(call.values["user"]))


@api.put("/api/users/{user}", needs="administrator", body=USER, told=("tags",))
async def put_user(call: Call) -> Response:
    """Add a user, or change one: give a password, or its hash, or an empty hash for no password, and tags."""
    access, name, given = call.broker.access, call.values["user"], call.document()
    known = access.users.get(name)
    if "tags" not in given:
        raise bad_request("tags must be given; an empty text for none")
    tags = parse_tags(given["tags"])
    password = given.get("password")
    if isinstance(password, str) and password:
        await access.add_user(name, password, tags)
    elif "password_hash" in given:
        hashed = {key: text(given, key, "") for key in ("password_hash", "hashing_algorithm")}
        hashed["hashing_algorithm"] = hashed["hashing_algorithm"] or SHA256
        limits = known.limits if known else {}
        access.put_user(make_user(name, {**hashed, "tags": tags, "limits": limits}))
    else:
        access.put_user(User(name, None, tags, known.limits if known else {}))
    call.shared["sessions"].end_all(name)
    return Response(status_code=201 if known is None else 204)


@api.delete("/api/users/{user}", needs="administrator")
def delete_user(call: Call) -> None:
    """Delete a user with its permissions; its connections are closed."""
    _delete(call, call.values["user"])


def _delete(call: Call, name: str) -> None:
    call.broker.access.delete_user(name)
    call.shared["sessions"].end_all(name)


@api.get("/api/auth/hash_password/{password}", needs="management")
def hash_password(call: Call) -> JsonObject:
    """The salted SHA-256 hash of a password, in the form of definitions."""
    return {"ok": hash_quickly(call.values["password"]).to_text()}


# ---- permissions


def _permission_row(key: tuple[str, str], permission: Permission) -> JsonObject:
    return {
        "user": key[1],
        "vhost": key[0],
        "configure": permission.configure,
        "write": permission.write,
        "read": permission.read,
    }


def _topic_row(key: tuple[str, str, str], permission: TopicPermission) -> JsonObject:
    return {
        "user": key[1],
        "vhost": key[0],
        "exchange": key[2],
        "write": permission.write,
        "read": permission.read,
    }


@api.get("/api/permissions", needs="administrator", query=QUERY)
@api.get("/api/users/{user}/permissions", needs="administrator")
@api.get("/api/vhosts/{vhost}/permissions", needs="administrator")
def get_permissions(call: Call) -> Any:
    """Permissions, of all users, of one, or in one virtual host."""
    user, vhost = _owners(call)
    rows = [
        _permission_row(key, permission)
        for key, permission in call.broker.access.permissions.items()
        if vhost in (None, key[0]) and user in (None, key[1])
    ]
    return list_rows(call, rows, ("vhost", "user"))


def _owners(call: Call) -> tuple[str | None, str | None]:
    """The user and the virtual host of the path, which must exist."""
    user, vhost = call.values.get("user"), call.values.get("vhost")
    if user is not None:
        call.broker.access.find_user(user)
    if vhost is not None:
        call.broker.find_vhost(vhost)
    return user, vhost


@api.get("/api/permissions/{vhost}/{user}", needs="administrator")
def get_permission(call: Call) -> JsonObject:
    """What one user may do in one virtual host."""
    key = call.values["vhost"], call.values["user"]
    permission = call.broker.access.permissions.get(key)
    if permission is None:
        raise missing()
    return _permission_row(key, permission)


@api.put("/api/permissions/{vhost}/{user}", needs="administrator", body=PERMISSION, told=PATTERNS)
def set_permission(call: Call) -> Response:
    """Let a user configure, write and read what the patterns match."""
    access, given = call.broker.access, call.document()
    user, vhost = call.values["user"], call.values["vhost"]
    existed = (vhost, user) in access.permissions
    patterns = [text(given, name) for name in ("configure", "write", "read")]
    access.set_permissions(user, vhost, *patterns)
    return Response(status_code=204 if existed else 201)


@api.delete("/api/permissions/{vhost}/{user}", needs="administrator")
def clear_permission(call: Call) -> None:
    """Remove all permissions of a user in a virtual host."""
    get_permission(call)
    call.broker.access.clear_permissions(call.values["user"], call.values["vhost"])


@api.get("/api/topic-permissions", needs="administrator", query=QUERY)
@api.get("/api/users/{user}/topic-permissions", needs="administrator")
@api.get("/api/vhosts/{vhost}/topic-permissions", needs="administrator")
@api.get("/api/topic-permissions/{vhost}/{user}", needs="administrator")
def get_topic_permissions(call: Call) -> Any:
    """Topic permissions, of all users, of one, or in one virtual host."""
    user, vhost = _owners(call)
    rows = [
        _topic_row(key, permission)
        for key, permission in call.broker.access.topic_permissions.items()
        if vhost in (None, key[0]) and user in (None, key[1])
    ]
    return list_rows(call, rows, ("vhost", "user", "exchange"))


@api.put(
    "/api/topic-permissions/{vhost}/{user}",
    needs="administrator",
    body=TOPIC_PERMISSION,
    told=("exchange", "write", "read"),
)
def set_topic_permission(call: Call) -> Response:
    """Restrict the routing keys of a user at a topic exchange."""
    access, given = call.broker.access, call.document()
    user, vhost = call.values["user"], call.values["vhost"]
    exchange, write, read = (text(given, name) for name in ("exchange", "write", "read"))
    existed = (vhost, user, exchange) in access.topic_permissions
    access.set_topic_permissions(user, vhost, exchange, write, read)
    return Response(status_code=204 if existed else 201)


@api.delete("/api/topic-permissions/{vhost}/{user}", needs="administrator")
@api.delete("/api/topic-permissions/{vhost}/{user}/{exchange}", needs="administrator")
def clear_topic_permission(call: Call) -> None:
    """Lift the restriction of a user at one exchange, or at all exchanges."""
    user, vhost = _owners(call)
    assert user is not None
    assert vhost is not None
    call.broker.access.clear_topic_permissions(user, vhost, call.values.get("exchange"))


# ---- limits of users


@api.get("/api/user-limits", needs="administrator")
@api.get("/api/user-limits/{user}", needs="administrator")
def get_user_limits(call: Call) -> list[JsonObject]:
    """Limits of the connections and channels of users."""
    user, _ = _owners(call)
    users = call.broker.access.users.values()
    return [
        {"user": known.name, "value": dict(known.limits)}
        for known in users
        if known.limits and user in (None, known.name)
    ]


@api.put("/api/user-limits/{user}/{name}", needs="administrator", body=LIMIT, told=("value",))
def set_user_limit(call: Call) -> None:
    """Limit the connections (`max-connections`) or channels (`max-channels`) of a user."""
    value = integer(call.document(), "value")
    call.broker.access.set_user_limits(call.values["user"], {call.values["name"]: value})


@api.delete("/api/user-limits/{user}/{name}", needs="administrator")
def clear_user_limit(call: Call) -> None:
    """Lift a limit of a user."""
    call.broker.access.clear_user_limits(call.values["user"], call.values["name"])
