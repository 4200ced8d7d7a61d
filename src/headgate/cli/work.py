"""headgate work: call a handler for each message of queues, as a service."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Annotated

import typer

from headgate import insights, queues, worker
from headgate.cli.arguments import DatabaseUrl, FilterOption, parse_duration
from headgate.cli.completion import complete_queue
from headgate.cli.output import print_warnings
from headgate.cli.stop_signals import watch_stop_signals
from headgate.logs import LogSettings, log_as

_log = logging.getLogger("headgate.worker")


def work(
    handler: Annotated[
        str,
        typer.Argument(
            help="The function to call with each delivery: module:function. It may be async.",
            metavar="MODULE:FUNCTION",
        ),
    ],
    queue: Annotated[
        list[str],
        typer.Option(
            "--queue",
            "-q",
            help="A queue or subscription to take messages from; may be repeated.",
            autocompletion=complete_queue,
        ),
    ],
    db: DatabaseUrl = None,
    filter: FilterOption = "",
    threads: Annotated[
        int,
        typer.Option(
            "--threads",
            "--concurrency",
            "-c",
            min=1,
            help="Messages handled at a time, for each process and queue: threads, or tasks if the handler is async.",
        ),
    ] = 1,
    processes: Annotated[
        int | None,
        typer.Option(
            "--processes",
            "-p",
            min=1,
            help="Run this many processes; one in which a handler hangs is replaced. By default, work in this process.",
        ),
    ] = None,
    batch: Annotated[
        int,
        typer.Option(
            min=1,
            help="Messages claimed at a time; more are faster if handlers are quick, and wait for each other if not.",
        ),
    ] = 1,
    lease: Annotated[
        str, typer.Option(help="How long a claim lasts; it is renewed while the handler runs.")
    ] = "30s",
    timeout: Annotated[
        str,
        typer.Option(
            "--timeout",
            "--time-limit",
            help="A handler that takes longer has failed; 0s: no limit.",
        ),
    ] = "10m",
    retry_first: Annotated[
        str, typer.Option(help="Wait this long after the first failure.")
    ] = "1s",
    retry_factor: Annotated[
        float, typer.Option(min=1.0, help="Each further wait is this much longer.")
    ] = 2.0,
    retry_most: Annotated[str, typer.Option(help="The longest wait.")] = "5m",
    retry_jitter: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, help="Shorten each wait by a random part of up to this."),
    ] = 0.2,
    once: Annotated[
        bool,
        typer.Option(
            "--once", "--burst", help="Handle what is ready and end. Exit code 1: a handler failed."
        ),
    ] = False,
    shutdown_timeout: Annotated[
        str | None,
        typer.Option(
            help="After the first signal, give back what is not done within this time; by default, wait."
        ),
    ] = None,
    log_format: Annotated[
        str, typer.Option(help="text, or json with one object per line.")
    ] = "text",
    log_level: Annotated[
        str, typer.Option(help="debug, which logs every message, info, warning or error.")
    ] = "info",
    metrics: Annotated[
        str | None,
        typer.Option(
            help="Serve Prometheus metrics here: a port of this machine, or host:port.",
            metavar="[HOST:]PORT",
        ),
    ] = None,
    schedules: Annotated[
        bool,
        typer.Option(
            help="Publish what is due of the schedules in the database, too; not with --once."
        ),
    ] = True,
    name: Annotated[
        str, typer.Option(help="Under which `headgate queue stats` shows what it did.")
    ] = "worker",
) -> None:
    """Call a handler for each message of queues, until SIGTERM or Ctrl-C.

    The first signal lets running handlers finish, the second one gives their messages back. A handler that returns acks its
    message; one that raises, or takes too long, makes it wait and be retried, or after the last attempt a dead letter. Exit
    code 1: messages were given back, or with --once a handler failed.

    Example: headgate work shop:handle --queue orders --concurrency 4 --timeout 30s --log-format json
    """
    from headgate.settings import load_settings

    options = worker.WorkerOptions(
        handler=handler,
        database=load_settings(database=db).database,
        queues=tuple(dict.fromkeys(queue)),
        filter=filter or None,
        threads=threads,
        batch=batch,
        lease=parse_duration(lease),
        timeout=parse_duration(timeout) or None,
        retry=queues.Retry(
            parse_duration(retry_first), retry_factor, parse_duration(retry_most), retry_jitter
        ),
        once=once,
        schedules=schedules,
        name=name,
    )
    logs = LogSettings(log_format, log_level)  # type: ignore[arg-type]  # refused if unknown
    grace = parse_duration(shutdown_timeout)
    _work(options, processes, logs, metrics, None if grace is None else grace.total_seconds())


def _work(
    options: worker.WorkerOptions,
    processes: int | None,
    logs: LogSettings,
    metrics: str | None,
    grace_s: float | None,
) -> None:
    account, control = worker.WorkAccount(), worker.Control()
    run = _prepare(options, processes, logs, account, control)
    with ExitStack() as stack:
        stack.enter_context(log_as(logs))
        signals = stack.enter_context(watch_stop_signals(most=2))
        worker.drain_on(signals.wait, control, grace_s)
        if metrics is not None:
            from headgate.metrics import parse_address

            host, port = parse_address(metrics)
            served = stack.enter_context(worker.serve_worker_metrics(options, account, host, port))
            _log.info("metrics on http://%s:%d/metrics", host, served)
        _log.info("working on %s", ", ".join(options.queues), extra={"queues": options.queues})
        run()
        _end(options, account, control)


def _prepare(
    options: worker.WorkerOptions,
    processes: int | None,
    logs: LogSettings,
    account: worker.WorkAccount,
    control: worker.Control,
) -> Callable[[], None]:
    """The function that works, after what can be wrong was looked at."""
    with queues.connect(options.database, access="change") as database:
        for name in options.queues:
            found = database.find(name)
            found.consumer(print, filter=options.filter, batch=options.batch)
            print_warnings(insights.warn_of_filter(options.filter or "", queue=found))
    if processes is not None:
        return lambda: worker.run_processes(options, processes, logs, account, control)
    handler = worker.load_handler(options.handler)
    return lambda: worker.run_here(options, handler, account.observe, control)


def _end(
    options: worker.WorkerOptions, account: worker.WorkAccount, control: worker.Control
) -> None:
    """Log what was done, and exit; at once, if handlers are still running."""
    counts = account.counts()
    done, failed = counts.outcomes("done"), counts.outcomes("failed") + counts.outcomes("timeout")
    failed += account.died  # a message that kills its worker has failed, too
    _log.info("ended: %d handled, %d failed", done, failed, extra={"done": done, "failed": failed})
    code = 1 if control.is_stopped or (options.once and failed) else 0
    if control.is_stopped or counts.outcomes("timeout"):
        logging.shutdown()
        sys.stdout.flush()
        os._exit(code)  # a thread that hangs, or waits for one, would keep the process
    raise typer.Exit(code)
