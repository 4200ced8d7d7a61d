"""Run sample messages through a filter on every engine, and explain the filter.

The exit code is 1 if any engine disagrees with the reference.
"""

from __future__ import annotations

import sys
from time import perf_counter

from rich.console import Console
from rich.table import Table

from headgate import Message, as_filter
from headgate.check import ENGINES, Question, open_engine
from headgate.cli.app import run
from headgate.filters import evaluate

FILTER = "region = 'EU' AND amount > 1000 AND type IN ('created', 'paid') AND NOT sys.topic MATCHES '#.test.#'"
MESSAGES = {
    "all terms hold": Message(
        topic="orders.eu.created", headers={"region": "EU", "amount": 1200, "type": "created"}
    ),
    "amount as a float": Message(
        topic="orders.eu.paid", headers={"region": "EU", "amount": 1000.5, "type": "paid"}
    ),
    "too small": Message(
        topic="orders.eu.paid", headers={"region": "EU", "amount": 1000, "type": "paid"}
    ),
    "amount as text": Message(
        topic="orders.eu.paid", headers={"region": "EU", "amount": "1200", "type": "paid"}
    ),
    "no region": Message(topic="orders.paid", headers={"amount": 5000, "type": "paid"}),
    "another region": Message(
        topic="orders.us.paid", headers={"region": "US", "amount": 5000, "type": "paid"}
    ),
    "a test topic": Message(
        topic="orders.test.paid", headers={"region": "EU", "amount": 5000, "type": "paid"}
    ),
}
TRUTH = {True: "[green]TRUE[/]", False: "FALSE", None: "[yellow]UNKNOWN[/]"}
MARK = {True: "[green]✓[/]", False: "·"}


def main() -> int:
    console = Console(highlight=False)
    tree = as_filter(FILTER)
    reference = [evaluate(tree, message) for message in MESSAGES.values()]
    answers, seconds = run_every_engine(console, [Question(tree, m) for m in MESSAGES.values()])
    console.print(f"\n[bold]{FILTER}[/]\n")
    console.print(table_of(reference, answers, seconds))
    agreed = all(found == [truth is True for truth in reference] for found in answers.values())
    console.print("\nAll engines agree.\n" if agreed else "\n[red]The engines disagree.[/]\n")
    run(["explain", FILTER])
    return 0 if agreed else 1


def run_every_engine(
    console: Console, questions: list[Question]
) -> tuple[dict[str, list[bool]], dict[str, float]]:
    answers, seconds = {}, {}
    for name in ENGINES:
        with console.status(f"running on {name} …"), open_engine(name) as engine:
            started = perf_counter()
            answers[name] = engine.answer(questions)
            seconds[name] = perf_counter() - started
    return answers, seconds


def table_of(
    reference: list[bool | None], answers: dict[str, list[bool]], seconds: dict[str, float]
) -> Table:
    table = Table("message", "reference", *answers)
    for i, name in enumerate(MESSAGES):
        table.add_row(name, TRUTH[reference[i]], *(MARK[found[i]] for found in answers.values()))
    table.add_section()
    table.add_row("time to answer", "", *(f"{seconds[name] * 1000:.1f} ms" for name in answers))
    return table


if __name__ == "__main__":
    sys.exit(main())
