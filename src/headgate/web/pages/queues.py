"""The pages of a broker's queues: all of them, and one with its consumers, messages and bindings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from headgate.broker import BrokerQueue
from headgate.clock import now_us
from headgate.filters import FilterLike
from headgate.insights import (
    MessagePage,
    bindings_of_queue,
    dead_letter_queues,
    find_problem,
    list_consumers,
    matching_backlog,
    newest_in_broker_queue,
    newest_in_stream,
    oldest_in_broker_queue,
    published_since,
    queue_facts_of,
    queues_by_name,
    refresh,
)
from headgate.routing import Binding, describe_condition
from headgate.web.pages.listing import Cell, ListColumn, ListRow, number_cell
from headgate.web.pages.rendering import query_text, rate_text
from headgate.web.pages.site import Link, Site, queue_place
from headgate.web.pages.visit import PageTable, Visit, parse_moment

pages: Final = PageTable()

AT_ONCE: Final = 200  # queues of a page
COLUMNS: Final = (
    ListColumn("queue"),
    ListColumn("ready", True),
    ListColumn("in flight", True),
    ListColumn("unmatched", True),
    ListColumn("in /s", True),
    ListColumn("out /s", True),
    ListColumn("consumers", True),
    ListColumn("type"),
    ListColumn("virtual host"),
    ListColumn("policy"),
)
BINDING_COLUMNS: Final = (ListColumn("from"), ListColumn("condition"))


@pages.get("/queues")
async def show_queues(visit: Visit) -> Response:
    refresh(visit.site.running)
    wanted, start = visit.ask("q").lower(), visit.ask_number("start") or 0
    found = [queue for queue in queues_by_name(visit.vhosts()) if wanted in queue.name.lower()]
    shown = found[start : start + AT_ONCE]
    return visit.render(
        "list.html",
        title="Queues",
        subtitle=f"{len(found):,}" + (f" with {wanted!r} in the name" if wanted else ""),
        searches=True,
        q=visit.ask("q"),
        columns=COLUMNS,
        rows=[_queue_row(queue) for queue in shown],
        empty="No queue. Clients declare queues: channel.queue_declare('orders', durable=True)",
        pages=_neighbours(visit, start, len(found)),
        forms=(),
    )


def _neighbours(visit: Visit, start: int, count: int) -> list[Link]:
    links = []
    if start:
        links.append(Link(visit.link(start=max(start - AT_ONCE, 0) or None), "Before"))
    if start + AT_ONCE < count:
        links.append(Link(visit.link(start=start + AT_ONCE), "Next"))
    return links


def _queue_row(queue: BrokerQueue) -> ListRow:
    facts = queue_facts_of(queue)
    rates = facts.flow.rates
    out = rates["deliver"] + rates["deliver_no_ack"] + rates["get"] + rates["get_no_ack"]
    return ListRow(
        (
            Cell(facts.name, queue_path(facts.vhost, facts.name)),
            number_cell(facts.ready),
            number_cell(facts.unacknowledged),
            number_cell(facts.unmatched),
            number_cell(rates["publish"], rate_text(rates["publish"])),
            number_cell(out, rate_text(out)),
            number_cell(facts.consumers),
            Cell(facts.type),
            Cell(facts.vhost),
            Cell(facts.policy or "–"),
        )
    )


def queue_path(vhost: str, name: str) -> str:
    """The page of a queue."""
    return "/queue" + query_text({"vhost": vhost, "name": name})


@pages.get("/queue")
async def show_queue(visit: Visit) -> Response:
    refresh(visit.site.running)
    queue = visit.find_queue(visit.ask("vhost", "/"), visit.ask("name"))
    text, since, may_read = visit.ask("filter"), visit.ask("since"), visit.may_read(queue)
    problem = find_problem(text)
    page = None
    if problem is None and may_read:
        wanted = published_since(parse_moment(since), text or None)
        page = await read_queue(queue, wanted, before=visit.ask_number("before"))
    oldest_us = oldest_in_broker_queue(queue)
    may_change = may_read and visit.may("write", queue.vhost.name, queue.name)
    may_publish = visit.may("write", queue.vhost.name, "")
    following = page.following if page else None
    consumers = [
        consumer
        for consumer in list_consumers(visit.site.running, queue.vhost.name)
        if consumer.queue == queue.name
    ]
    return visit.render(
        "queue.html",
        q=queue_facts_of(queue),
        of=queue_place(queue.vhost.name, queue.name).of,
        filter=text,
        since=since,
        problem=problem,
        page=page,
        following=None if following is None else visit.link(before=following),
        at_start=not visit.ask("before"),
        beginning=visit.link(before=None),
        consumers=[
            (c, matching_backlog(c), may_read and visit.may_steer(c.connection.user))
            for c in consumers
            if visit.may_watch(c.connection.user)
        ],
        hidden_consumers=sum(not visit.may_watch(c.connection.user) for c in consumers),
        oldest_s=None if oldest_us is None else max(now_us() - oldest_us, 0) / 1e6,
        dead_letter_queues=dead_letter_queues([queue]),
        may_read=may_read,
        may_change=may_change and queue.definition.type != "stream",
        may_publish=may_publish,
        may_delete=visit.may("configure", queue.vhost.name, queue.name),
        stream_name=_stream_name(visit.site, queue),
        binding_columns=BINDING_COLUMNS,
        bindings=binding_rows(bindings_of_queue(queue.vhost, queue.name)),
    )


async def read_queue(
    queue: BrokerQueue, filter: FilterLike | None, *, before: int | None = None, limit: int = 50
) -> MessagePage:
    """The newest messages of a queue; those of a stream are read in a thread."""
    directory: Path | None = getattr(queue, "directory", None)
    if directory is None:
        return newest_in_broker_queue(queue, filter, before=before, limit=limit)
    return await run_in_threadpool(newest_in_stream, directory, filter, before=before, limit=limit)


def _stream_name(site: Site, queue: BrokerQueue) -> str | None:
    directory: Path | None = getattr(queue, "directory", None)
    if directory is None or site.data is None:
        return None
    found, data = directory.resolve(), site.data.resolve()
    return str(found.relative_to(data)) if found.is_relative_to(data) else None


def binding_rows(bindings: Sequence[Binding]) -> list[ListRow]:
    """Where messages come from, and on which condition."""
    return [
        ListRow(
            (
                Cell(binding.source or "(default)"),
                Cell(describe_condition(binding.key, binding.arguments), mono=True),
            )
        )
        for binding in bindings
    ]
