"""A pipeline's account as tables for the terminal: while it runs, and when it has run."""

from __future__ import annotations

from typing import Final

from rich.table import Table
from rich.text import Text

from headgate.cli.arguments import size_text
from headgate.pipelines import Account

_MOST_QUEUES: Final = 20  # shown while it runs


def live_table(account: Account, seconds: float) -> Table:
    """What is known right now."""
    table = _table(account, seconds, _MOST_QUEUES)
    last = account.last
    if last is None:
        table.caption = "waiting for the first batch …"
    else:
        rate = (last.counters.scanned or last.counters.read) / max(last.seconds, 1e-3)
        table.caption = f"batch {last.number}: {last.seconds:.2f} s, {rate:,.0f} messages/s"
    return table


def final_table(account: Account, seconds: float) -> Table:
    """What the whole run did."""
    table = _table(account, seconds, len(account.counters.queues))
    table.caption = f"{account.batches:,} batches in {seconds:.1f} s"
    return table


def _table(account: Account, seconds: float, most_queues: int) -> Table:
    counted = account.counters
    table = Table("", title=Text(account.pipeline), title_justify="left", caption_justify="left")
    table.add_column("messages", justify="right")
    table.add_column("")
    table.add_row(
        "scanned",
        f"{account.counters.scanned:,}",
        f"{account.counters.scanned / max(seconds, 1e-3):,.0f}/s",
    )
    table.add_row("passed the filter", f"{counted.read:,}")
    table.add_row("routed", f"{counted.routed:,}")
    style = "red" if counted.unroutable else ""
    table.add_row("unroutable", f"{counted.unroutable:,}", style=style)
    if counted.malformed:
        table.add_row("malformed", f"{counted.malformed:,}", style="red")
    if account.lag is not None:
        table.add_row("yet to be read", f"{account.lag:,}")
    if counted.bytes_total:
        table.add_row("chunks skipped", f"{counted.chunks_skipped:,}", _not_read(account))
    _add_queues(table, account, most_queues)
    return table


def _not_read(account: Account) -> str:
    counted = account.counters
    spared = max(counted.bytes_total - counted.bytes_read, 0)
    return f"{size_text(spared)} of {size_text(counted.bytes_total)} not read"


def _add_queues(table: Table, account: Account, most: int) -> None:
    table.add_section()
    ranked = sorted(account.counters.queues.items(), key=lambda queue: (-queue[1], queue[0]))
    for queue, count in ranked[:most]:
        table.add_row(Text(f"→ {queue}"), f"{count:,}")
    if len(ranked) > most:
        rest = sum(count for _, count in ranked[most:])
        table.add_row(f"→ {len(ranked) - most:,} more queues", f"{rest:,}")
