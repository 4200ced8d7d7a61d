"""Verbs that users guess or know from rabbitmqctl: those that a noun has under another name, and whole commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from typer._click import Command, Context

_UsageError: Final = cast("type[Exception]", typer.BadParameter.__mro__[1])  # it has no public name
# What a noun may call a verb, the likeliest first.
VERBS: Final = {
    "list": ("ls",),
    "delete": ("rm", "clear"),
    "remove": ("rm", "clear", "delete"),
    "rm": ("delete",),
    "clear": ("purge", "rm"),
    "create": ("add", "declare"),
    "add": ("declare", "create", "set"),
    "consume": ("tail", "claim"),
    "read": ("scan", "browse", "peek"),
    "get": ("peek", "scan"),
    "send": ("publish",),
    "produce": ("publish",),
    "set-tags": ("tags",),
    "set-limits": ("limit",),
    "change-password": ("password",),
}
MOST_NAMED: Final = 5  # commands in a hint
EXTRA: Final = "Got unexpected extra argument"  # how the words of that refusal begin
_HEALTH: Final = ("await_startup", "node_health_check", "ping")
_FACTS: Final = ("cluster_status", "environment", "report", "status")
# The commands of rabbitmqctl that have another name here.
COMMANDS: Final = {
    **dict.fromkeys(_HEALTH, "broker health"),
    **dict.fromkeys(_FACTS, "broker overview"),
    "add_super_stream": "broker super-stream add",
    "add_user": "user add",
    "add_vhost": "vhost add",
    "change_password": "user password",
    "clear_global_parameter": "parameter rm-global",
    "clear_operator_policy": "policy rm --operator",
    "clear_parameter": "parameter rm",
    "clear_permissions": "permission clear",
    "clear_policy": "policy rm",
    "clear_topic_permissions": "permission clear-topic",
    "clear_user_limits": "user limit",
    "clear_vhost_limits": "vhost limit",
    "close_all_connections": "connection close",
    "close_connection": "connection close",
    "delete_queue": "broker queue rm",
    "delete_super_stream": "broker super-stream rm",
    "delete_user": "user rm",
    "delete_vhost": "vhost rm",
    "export_definitions": "definitions export",
    "import_definitions": "definitions import",
    "list_bindings": "binding ls",
    "list_channels": "channel ls",
    "list_connections": "connection ls",
    "list_consumers": "consumer ls",
    "list_exchanges": "exchange ls",
    "list_global_parameters": "parameter ls --global",
    "list_operator_policies": "policy ls --operator",
    "list_parameters": "parameter ls",
    "list_permissions": "permission ls",
    "list_policies": "policy ls",
    "list_queues": "broker queue ls",
    "list_topic_permissions": "permission ls --topic",
    "list_user_limits": "user ls",
    "list_user_permissions": "permission ls --user",
    "list_user_topic_permissions": "permission ls --topic --user",
    "list_users": "user ls",
    "list_vhost_limits": "parameter ls",
    "list_vhosts": "vhost ls",
    "purge_queue": "broker queue purge",
    "set_global_parameter": "parameter set-global",
    "set_operator_policy": "policy set --operator",
    "set_parameter": "parameter set",
    "set_permissions": "permission set",
    "set_policy": "policy set",
    "set_topic_permissions": "permission set-topic",
    "set_user_limits": "user limit",
    "set_user_tags": "user tags",
    "set_vhost_limits": "vhost limit",
    "start_app": "serve",
    "update_vhost_metadata": "vhost add",
}


def fail_with_command(context: Context, word: str) -> None:
    """Refuse a command of rabbitmqctl with the name that it has here; return if there is none."""
    found = COMMANDS.get(word.replace("-", "_"))
    if found is not None:
        context.fail(f"rabbitmqctl's {word} is here: headgate {found}")


def fail_with_nouns(context: Context, word: str, nouns: Mapping[str, Command]) -> None:
    """Refuse a verb without a noun, and name the nouns that have it; return if none has."""
    found = []
    for noun, group in nouns.items():
        known = getattr(group, "commands", {})
        verb = next((verb for verb in (word, *VERBS.get(word, ())) if verb in known), None)
        if verb is not None:
            found.append(f"headgate {noun} {verb}")
    if found:
        more = ", …" if len(found) > MOST_NAMED else ""
        context.fail(f"{word!r} needs a noun before it: {', '.join(found[:MOST_NAMED])}{more}")


class NounCommands(TyperGroup):
    """The verbs of one noun."""

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        known = self.commands
        guess = args[0].replace("_", "-")
        word = next((verb for verb in (guess, *VERBS.get(guess, ())) if verb in known), args[0])
        if word not in known:
            fail_with_command(ctx, word)
        return super().resolve_command(ctx, [word, *args[1:]])

    def invoke(self, ctx: Context) -> Any:
        """A filter that is given without its option gets a hint: it is an argument of `headgate explain`."""
        try:
            return super().invoke(ctx)
        except _UsageError as refused:
            own = getattr(refused, "ctx", None) or ctx
            takes_filter = any("--filter" in option.opts for option in own.command.params)
            if str(refused).startswith(EXTRA) and takes_filter:
                own.fail(f"{refused}; a filter is given with --filter, in quotes")
            raise
