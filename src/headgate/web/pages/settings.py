"""The pages of policies, users, virtual hosts and definitions. Changes go to the API, which checks permissions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from starlette.responses import Response

from headgate.broker import APPLY_TO
from headgate.insights import refresh, vhost_facts
from headgate.web.pages.listing import Cell, ListColumn, ListRow, RowAction, number_cell
from headgate.web.pages.rendering import path_part, query_text
from headgate.web.pages.visit import PageTable, Visit

pages: Final = PageTable()

TAGS: Final = ("", "management", "policymaker", "monitoring", "administrator")


class FormField(NamedTuple):
    """An input of a form; `{name}` in the path of the form stands for its value."""

    name: str
    label: str
    kind: str = "text"  # text, password, number, area, choice
    value: str = ""
    hint: str = ""
    json: bool = False
    options: Sequence[str] = ()


class ApiForm(NamedTuple):
    """A form whose fields become the JSON of a request to the API."""

    title: str
    api: str
    button: str
    fields: Sequence[FormField]


@pages.get("/policies")
async def show_policies(visit: Visit) -> Response:
    broker, may_set = visit.site.running, _has(visit, "policymaker")
    names = [vhost.name for vhost in visit.vhosts()]
    columns = ("policy", "virtual host", "pattern", "applies to", "priority", "says")
    rows = [
        ListRow(
            (
                Cell(policy.name),
                Cell(policy.vhost),
                Cell(policy.pattern, mono=True),
                Cell(policy.apply_to),
                number_cell(policy.priority),
                Cell(json.dumps(policy.definition, default=str), mono=True),
            ),
            (_delete("policies", policy.vhost, policy.name),) if may_set else (),
        )
        for policy in broker.policies.list()
        if policy.vhost in names
    ]
    form = ApiForm(
        "Set a policy",
        "PUT /api/policies/{vhost}/{name}",
        "Set",
        (
            FormField("name", "Name", hint="limits"),
            FormField("vhost", "Virtual host", "choice", "/", options=names),
            FormField("pattern", "Names that match", hint="^orders"),
            FormField("apply-to", "Applies to", "choice", "queues", options=tuple(APPLY_TO)),
            FormField("priority", "Priority", "number", "0", json=True),
            FormField("definition", "Says, as JSON", "area", hint='{"max-length": 100000}', json=True),
        ),
    )  # fmt: skip
    forms = [form] if may_set else []
    empty = "No policy. One sets limits and dead letter exchanges for many queues at once."
    return _list(visit, "Policies", columns, rows, empty, forms)


@pages.get("/users", needs="administrator")
async def show_users(visit: Visit) -> Response:
    access = visit.site.running.access
    rows = []
    for name, user in sorted(access.users.items()):
        granted = [vhost for (vhost, who) in access.permissions if who == name]
        cells = (
            Cell(name),
            Cell(", ".join(user.tags) or "–"),
            Cell(", ".join(sorted(granted)) or "none"),
            Cell("password" if user.password else "certificate only"),
        )
        rows.append(ListRow(cells, (_delete("users", name),)))
    vhosts = [vhost.name for vhost in visit.vhosts()]
    forms = (
        ApiForm(
            "Add a user, or change one",
            "PUT /api/users/{name}",
            "Save",
            (
                FormField("name", "Name"),
                FormField("password", "Password", "password"),
                FormField("tags", "Tag", "choice", "management", options=TAGS),
            ),
        ),
        ApiForm(
            "Grant permissions",
            "PUT /api/permissions/{vhost}/{user}",
            "Grant",
            (
                FormField("user", "User", "choice", options=sorted(access.users)),
                FormField("vhost", "Virtual host", "choice", "/", options=vhosts),
                FormField("configure", "Configure", value=".*"),
                FormField("write", "Write", value=".*"),
                FormField("read", "Read", value=".*"),
            ),
        ),
        ApiForm(
            "Withdraw permissions",
            "DELETE /api/permissions/{vhost}/{user}",
            "Withdraw",
            (
                FormField("user", "User", "choice", options=sorted(access.users)),
                FormField("vhost", "Virtual host", "choice", "/", options=vhosts),
            ),
        ),
    )
    columns = ("user", "tags", "may enter", "logs in with")
    return _list(visit, "Users", columns, rows, "No user.", forms)


@pages.get("/vhosts")
async def show_vhosts(visit: Visit) -> Response:
    refresh(visit.site.running)
    rows = []
    for vhost in visit.vhosts():
        facts = vhost_facts(vhost)
        counts = facts.flow.counts
        cells = (
            Cell(vhost.name, "/exchanges" + query_text({"vhost": vhost.name})),
            number_cell(facts.queues),
            number_cell(counts["messages_ready"]),
            number_cell(counts["messages_unacknowledged"]),
        )
        actions = (_delete("vhosts", vhost.name),) if _has(visit, "administrator") else ()
        rows.append(ListRow(cells, actions))
    form = ApiForm(
        "Add a virtual host", "PUT /api/vhosts/{name}", "Add", (FormField("name", "Name"),)
    )
    forms = [form] if _has(visit, "administrator") else []
    columns = ("virtual host", "queues", "ready", "in flight")
    return _list(
        visit,
        "Virtual hosts",
        columns,
        rows,
        "No virtual host that you may enter. An administrator grants permissions on the page of users.",
        forms,
    )


@pages.get("/definitions", needs="administrator")
async def show_definitions(visit: Visit) -> Response:
    rows = [
        ListRow((Cell("everything", "/api/definitions"), Cell("users, virtual hosts, and all in them")))
    ] + [
        ListRow(
            (
                Cell(vhost.name, f"/api/definitions/{path_part(vhost.name)}"),
                Cell("its exchanges, queues, bindings, policies"),
            )
        )
        for vhost in visit.vhosts()
    ]  # fmt: skip
    form = ApiForm(
        "Import",
        "POST /api/definitions",
        "Import",
        (FormField("", "A document of definitions, RabbitMQ's or ours", "area", json=True),),
    )
    return _list(visit, "Definitions", ("download", "holds"), rows, "", [form])


def _has(visit: Visit, tag: str) -> bool:
    return visit.identity is not None and visit.identity.has(tag)  # type: ignore[arg-type]


def _delete(kind: str, *names: str) -> RowAction:
    path = "/".join(map(path_part, names))
    return RowAction("Delete", f"DELETE /api/{kind}/{path}", f"Delete {names[-1]}?")


def _list(
    visit: Visit,
    title: str,
    columns: Sequence[str],
    rows: Sequence[ListRow],
    empty: str,
    forms: Sequence[ApiForm],
) -> Response:
    numeric = {"priority", "queues", "ready", "in flight"}
    return visit.render(
        "list.html",
        title=title,
        subtitle=f"{len(rows):,}" if title != "Definitions" else "",
        searches=False,
        q="",
        columns=[ListColumn(name, name in numeric) for name in columns],
        rows=rows,
        empty=empty,
        pages=(),
        forms=forms,
    )
