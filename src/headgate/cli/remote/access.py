"""headgate user, permission, vhost: who may do what on a running broker."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import typer

from headgate.cli.arguments import AsJson, Yes, confirm
from headgate.cli.remote.client import (
    BrokerApi,
    BrokerRefused,
    BrokerUrl,
    ShownColumns,
    Vhost,
    ask_new_password,
    print_rows,
)

user = typer.Typer(no_args_is_help=True)
permission = typer.Typer(no_args_is_help=True)
vhost = typer.Typer(no_args_is_help=True)

UserName: TypeAlias = Annotated[str, typer.Argument(help="The user's name.", metavar="USER")]
VhostName: TypeAlias = Annotated[
    str, typer.Argument(help="The name of the virtual host.", metavar="VHOST")
]
Tags: TypeAlias = Annotated[
    str,
    typer.Option(
        help="administrator, monitoring, policymaker, management: several with commas, none by default.",
        metavar="TAGS",
    ),
]
LimitName: TypeAlias = Annotated[str, typer.Argument(help="The limit's name.", metavar="LIMIT")]
LimitValue: TypeAlias = Annotated[
    int, typer.Argument(help="How much, at most; -1 for any number.", metavar="NUMBER")
]
ALL: Final = ".*"


@user.command(name="ls")
def list_users(url: BrokerUrl = None, as_json: AsJson = False) -> None:
    """List users with their tags.

    Example: headgate user ls
    """
    rows = BrokerApi(url).get("users", columns="name,tags,limits")
    print_rows(rows, {"user": "name", "tags": "tags", "limits": "limits"}, as_json)


@user.command(name="add")
def add_user(name: UserName, tags: Tags = "", url: BrokerUrl = None) -> None:
    """Add a user. The password is asked for, or read from standard input: it is never an argument.

    Example: headgate user add anna --tags monitoring
    """
    api = BrokerApi(url)
    if any(row["name"] == name for row in api.get("users", columns="name")):
        raise BrokerRefused(400, f"there is a user {name}; headgate user password changes it")
    api.put("users", name, body={"password": ask_new_password(), "tags": tags})
    typer.echo(f"added user {name}; headgate permission set lets it use a virtual host")


@user.command(name="password")
def change_password(name: UserName, url: BrokerUrl = None) -> None:
    """Change the password of a user; it is asked for, or read from standard input.

    Example: headgate user password anna
    """
    api = BrokerApi(url)
    known = api.get("users", name)
    api.put("users", name, body={"password": ask_new_password(), "tags": known["tags"]})
    typer.echo(f"changed the password of user {name}")


@user.command(name="tags")
def set_tags(
    name: UserName,
    tags: Annotated[
        str, typer.Argument(help="The tags, with commas; '' for none.", metavar="TAGS")
    ],
    url: BrokerUrl = None,
) -> None:
    """Set the tags of a user, which say what it may administer.

    Example: headgate user tags anna monitoring,policymaker
    """
    api = BrokerApi(url)
    known = api.get("users", name)
    body = {key: known[key] for key in ("password_hash", "hashing_algorithm")}
    api.put("users", name, body={**body, "tags": tags})
    typer.echo(f"user {name} has the tags: {tags or 'none'}")


@user.command(name="rm")
def remove_user(name: UserName, yes: Yes = False, url: BrokerUrl = None) -> None:
    """Delete a user with its permissions; its connections are closed.

    Example: headgate user rm anna --yes
    """
    confirm(f"Delete user {name}?", yes)
    BrokerApi(url).delete("users", name)
    typer.echo(f"deleted user {name}")


@user.command(name="limit")
def limit_user(name: UserName, limit: LimitName, value: LimitValue, url: BrokerUrl = None) -> None:
    """Limit the connections (max-connections) or channels (max-channels) of a user.

    Example: headgate user limit anna max-connections 10
    """
    BrokerApi(url).put("user-limits", name, limit, body={"value": value})
    typer.echo(f"user {name}: {limit} {value}")


# ---- permissions


@permission.command(name="ls")
def list_permissions(
    of_user: Annotated[
        str | None, typer.Option("--user", help="Only those of this user.", metavar="USER")
    ] = None,
    topic: Annotated[
        bool, typer.Option("--topic", help="The routing keys that they may use, by exchange.")
    ] = False,
    url: BrokerUrl = None,
    as_json: AsJson = False,
) -> None:
    """List what users may configure, write and read, by virtual host.

    Example: headgate permission ls --user anna
    """
    api, kind = BrokerApi(url), "topic-permissions" if topic else "permissions"
    rows = api.get("users", of_user, kind) if of_user else api.get(kind)
    names = ("vhost", "user", "exchange" if topic else "configure", "write", "read")
    print_rows(rows, {name: name for name in names}, as_json)


@permission.command(name="set")
def set_permission(
    name: UserName,
    configure: Annotated[
        str, typer.Argument(help="A pattern of the names it may declare and delete.")
    ] = ALL,
    write: Annotated[str, typer.Argument(help="A pattern of those it may publish to.")] = ALL,
    read: Annotated[str, typer.Argument(help="A pattern of those it may consume.")] = ALL,
    vhost: Vhost = "/",
    url: BrokerUrl = None,
) -> None:
    """Let a user use a virtual host: patterns of the names it may configure, write and read.

    Example: headgate permission set anna '^anna-' '.*' '.*' --vhost /
    """
    body = {"configure": configure, "write": write, "read": read}
    BrokerApi(url).put("permissions", vhost, name, body=body)
    typer.echo(f"user {name} in vhost {vhost}: configure {configure}, write {write}, read {read}")


@permission.command(name="clear")
def clear_permission(name: UserName, vhost: Vhost = "/", url: BrokerUrl = None) -> None:
    """Remove all permissions of a user in a virtual host.

    Example: headgate permission clear anna --vhost /
    """
    BrokerApi(url).delete("permissions", vhost, name)
    typer.echo(f"user {name} has no permissions in vhost {vhost}")


@permission.command(name="set-topic")
def set_topic_permission(
    name: UserName,
    exchange: Annotated[str, typer.Argument(help="A topic exchange.", metavar="EXCHANGE")],
    write: Annotated[
        str, typer.Argument(help="A pattern of the routing keys it may publish with.")
    ] = ALL,
    read: Annotated[str, typer.Argument(help="A pattern of those it may bind with.")] = ALL,
    vhost: Vhost = "/",
    url: BrokerUrl = None,
) -> None:
    """Restrict the routing keys of a user at a topic exchange; {username} and {vhost} stand for themselves.

    Example: headgate permission set-topic anna orders '^{username}\\.' '.*'
    """
    body = {"exchange": exchange, "write": write, "read": read}
    BrokerApi(url).put("topic-permissions", vhost, name, body=body)
    typer.echo(f"user {name} at exchange {exchange} in vhost {vhost}: write {write}, read {read}")


@permission.command(name="clear-topic")
def clear_topic_permission(
    name: UserName,
    exchange: Annotated[
        str, typer.Argument(help="The exchange; else all.", metavar="EXCHANGE")
    ] = "",
    vhost: Vhost = "/",
    url: BrokerUrl = None,
) -> None:
    """Lift the restriction of routing keys at one exchange, or at all.

    Example: headgate permission clear-topic anna orders
    """
    BrokerApi(url).delete("topic-permissions", vhost, name, *([exchange] if exchange else []))
    typer.echo(f"user {name} may use any routing key at {exchange or 'any exchange'}")


# ---- virtual hosts


@vhost.command(name="ls")
def list_vhosts(url: BrokerUrl = None, as_json: AsJson = False) -> None:
    """List virtual hosts with their messages.

    Example: headgate vhost ls
    """
    columns: ShownColumns = {
        "vhost": "name",
        "description": "description",
        "tags": "tags",
        "ready": "messages_ready",
        "unacknowledged": "messages_unacknowledged",
    }
    print_rows(BrokerApi(url).get("vhosts"), columns, as_json)


@vhost.command(name="add")
def add_vhost(
    name: VhostName,
    description: Annotated[str, typer.Option(help="What it is for.")] = "",
    default_queue_type: Annotated[
        str, typer.Option(help="classic, quorum or stream: of queues that do not say theirs.")
    ] = "classic",
    url: BrokerUrl = None,
) -> None:
    """Add a virtual host, or change the description of one.

    Example: headgate vhost add shop --description 'orders and invoices'
    """
    body = {"description": description, "default_queue_type": default_queue_type}
    BrokerApi(url).put("vhosts", name, body=body)
    typer.echo(f"added vhost {name}")


@vhost.command(name="rm")
def remove_vhost(name: VhostName, yes: Yes = False, url: BrokerUrl = None) -> None:
    """Delete a virtual host with its queues and messages; its connections are closed.

    Example: headgate vhost rm shop --yes
    """
    confirm(f"Delete vhost {name} with all its queues?", yes)
    BrokerApi(url).delete("vhosts", name)
    typer.echo(f"deleted vhost {name}")


@vhost.command(name="limit")
def limit_vhost(
    name: VhostName, limit: LimitName, value: LimitValue, url: BrokerUrl = None
) -> None:
    """Limit the connections (max-connections) or queues (max-queues) of a virtual host.

    Example: headgate vhost limit shop max-queues 1000
    """
    BrokerApi(url).put("vhost-limits", name, limit, body={"value": value})
    typer.echo(f"vhost {name}: {limit} {value}")
