"""The pages of consumers with their filters, of connections and of channels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Final, TypeVar

from starlette.responses import Response

from headgate.insights import (
    ChannelFacts,
    ConnectionFacts,
    ConsumerFacts,
    list_channels,
    list_connections,
    list_consumers,
    matching_backlog,
    refresh,
    size_text,
)
from headgate.web.pages.listing import Cell, ListColumn, ListRow, RowAction, number_cell
from headgate.web.pages.queues import queue_path
from headgate.web.pages.rendering import (
    matched_share,
    path_part,
    query_text,
    rate_text,
    share_text,
    span_text,
)
from headgate.web.pages.site import queue_place
from headgate.web.pages.visit import PageTable, Visit

pages: Final = PageTable()

MOST: Final = 500
_Facts = TypeVar("_Facts", ConsumerFacts, ConnectionFacts, ChannelFacts)
CONSUMER_COLUMNS: Final = (
    ListColumn("consumer"),
    ListColumn("queue"),
    ListColumn("filter"),
    ListColumn("matched", True),
    ListColumn("backlog", True),
    ListColumn("in flight", True),
    ListColumn("prefetch", True),
    ListColumn("user"),
)
CONNECTION_COLUMNS: Final = (
    ListColumn("connection"),
    ListColumn("user"),
    ListColumn("virtual host"),
    ListColumn("state"),
    ListColumn("since", True),
    ListColumn("channels", True),
    ListColumn("in", True),
    ListColumn("out", True),
    ListColumn("client"),
)
CHANNEL_COLUMNS: Final = (
    ListColumn("channel"),
    ListColumn("user"),
    ListColumn("mode"),
    ListColumn("prefetch", True),
    ListColumn("in flight", True),
    ListColumn("consumers", True),
    ListColumn("in /s", True),
    ListColumn("out /s", True),
)


@pages.get("/consumers")
async def show_consumers(visit: Visit) -> Response:
    return _list(
        visit,
        "Consumers",
        CONSUMER_COLUMNS,
        list_consumers(visit.site.running),
        _consumer_row,
        "There is no consumer. A filter is an argument of basic.consume: x-filter.",
    )


def _consumer_row(consumer: ConsumerFacts) -> ListRow:
    backlog, share = matching_backlog(consumer), matched_share(consumer)
    vhost = consumer.connection.vhost
    place = queue_place(vhost, consumer.queue).of
    tried = "/playground" + query_text({"of": place, "filter": consumer.filter})
    return ListRow(
        (
            Cell(consumer.tag),
            Cell(consumer.queue, queue_path(vhost, consumer.queue)),
            Cell(consumer.filter or "–", tried if consumer.filter else None, mono=True),
            Cell(share_text(share)) if share is None else number_cell(share, share_text(share)),
            Cell("–") if backlog is None else number_cell(backlog),
            number_cell(consumer.unacknowledged),
            number_cell(consumer.prefetch, f"{consumer.prefetch}" if consumer.prefetch else "∞"),
            Cell(consumer.connection.user),
        )
    )


@pages.get("/connections")
async def show_connections(visit: Visit) -> Response:
    refresh(visit.site.running)
    now_ms = datetime.now(UTC).timestamp() * 1000
    return _list(
        visit,
        "Connections",
        CONNECTION_COLUMNS,
        list_connections(visit.site.running),
        lambda facts: _connection_row(visit, facts, now_ms),
        "No client is connected. Connect with any client of RabbitMQ.",
    )


def _connection_row(visit: Visit, facts: ConnectionFacts, now_ms: float) -> ListRow:
    opened, counts = facts.connection, facts.flow.counts
    named = opened.properties.get("connection_name") or opened.properties.get("product") or "–"
    age_s = max(now_ms - opened.connected_at, 0) / 1000
    close = RowAction(
        "Close", f"DELETE /api/connections/{path_part(opened.name)}", "Close this connection?"
    )
    return ListRow(
        (
            Cell(f"{opened.peer_host}:{opened.peer_port}"),
            Cell(opened.user),
            Cell(opened.vhost),
            Cell(facts.state),
            number_cell(age_s, span_text(age_s)),
            number_cell(facts.channels),
            number_cell(counts["recv_oct"], size_text(counts["recv_oct"])),
            number_cell(counts["send_oct"], size_text(counts["send_oct"])),
            Cell(str(named)),
        ),
        (close,) if visit.may_steer(opened.user) else (),
    )


@pages.get("/channels")
async def show_channels(visit: Visit) -> Response:
    refresh(visit.site.running)
    return _list(
        visit,
        "Channels",
        CHANNEL_COLUMNS,
        list_channels(visit.site.running),
        _channel_row,
        "No channel is open. Clients open them in their connections.",
    )


def _channel_row(facts: ChannelFacts) -> ListRow:
    rates = facts.flow.rates
    out = rates["deliver"] + rates["deliver_no_ack"] + rates["get"] + rates["get_no_ack"]
    mode = "transactional" if facts.transactional else "confirms" if facts.confirms else "–"
    return ListRow(
        (
            Cell(f"{facts.connection.peer_host}:{facts.connection.peer_port} ({facts.number})"),
            Cell(facts.connection.user),
            Cell(mode),
            number_cell(facts.prefetch, f"{facts.prefetch}" if facts.prefetch else "∞"),
            number_cell(facts.unacknowledged),
            number_cell(facts.consumers),
            number_cell(rates["publish"], rate_text(rates["publish"])),
            number_cell(out, rate_text(out)),
        )
    )


def _list(
    visit: Visit,
    title: str,
    columns: tuple[ListColumn, ...],
    facts: Iterable[_Facts],
    row_of: Callable[[_Facts], ListRow],
    empty: str,
) -> Response:
    """A page of the objects in virtual hosts that the user may see; without the tag monitoring, only its own."""
    names = {vhost.name for vhost in visit.vhosts()}
    found = [
        one
        for one in facts
        if one.connection.vhost in names and visit.may_watch(one.connection.user)
    ]
    subtitle = f"{len(found):,}" if len(found) <= MOST else f"{MOST} of {len(found):,}"
    return visit.render(
        "list.html",
        title=title,
        subtitle=subtitle,
        searches=False,
        q="",
        columns=columns,
        rows=[row_of(one) for one in found[:MOST]],
        empty=empty,
        pages=(),
        forms=(),
    )
