"""A pipeline drawn: for the terminal, as Mermaid and as SVG."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from xml.etree import ElementTree

import pytest

from headgate.pipelines.figure import Figure, columns, figure_of, to_lines, to_mermaid, to_svg
from headgate.pipelines.file import read_pipeline

TEXT = """
    [source]
    stream = "events"
    filter = "type = 'order'"
    [[exchange]]
    name = "orders"
    type = "headers"
    [[exchange]]
    name = "audit"
    type = "topic"
    [[binding]]
    queue = "eu"
    arguments = { region = "EU", x-match = "any", vip = true }
    filter = "amount > 1000"
    [[binding]]
    exchange = "audit"
    present = ["audit"]
    [[binding]]
    from = "audit"
    queue = "eu"
    key = "eu.#"
    [[binding]]
    from = "audit"
    exchange = "orders"
    key = "again"
    [[sink]]
    queue = "eu"
    to = "stream:out/eu"
    [[sink]]
    queue = "eu"
    to = "queue:postgresql://anna:secret@host/db?password=secret"
    [dead_letter]
    to = "parquet:lost"
"""


@pytest.fixture
def drawn(tmp_path: Path) -> Figure:
    file = tmp_path / "p.toml"
    file.write_text(dedent(TEXT))
    return figure_of(read_pipeline(file))


def test_the_terminal_gets_a_tree_with_the_conditions_of_bindings(drawn: Figure) -> None:
    assert "\n".join(to_lines(drawn)) == (
        "stream events\n"
        "└─ exchange orders (headers): type = 'order'\n"
        "   ├─ queue eu: region = 'EU' or vip = True; amount > 1000\n"
        "   │  ├─ → stream:out/eu\n"
        "   │  └─ → queue:postgresql://host/db#eu\n"
        "   ├─ exchange audit (topic): audit exists\n"
        "   │  ├─ queue eu: key eu.# ↑\n"
        "   │  └─ exchange orders (headers): key again ↑\n"
        "   └─ no queue: unroutable\n"
        "      └─ → parquet:lost"
    )


def test_no_drawing_shows_a_password(drawn: Figure) -> None:
    for text in ("\n".join(to_lines(drawn)), to_mermaid(drawn), to_svg(drawn)):
        assert "secret" not in text


@pytest.mark.parametrize(
    ("states", "said"), [("archived", "archive of"), ("ready,dead", "ready,dead in")]
)
def test_a_queue_is_a_source_without_who_asks(tmp_path: Path, states: str, said: str) -> None:
    source = f'queue = "postgresql://anna:secret@host/db#orders"\n    states = "{states}"'
    (tmp_path / "p.toml").write_text(dedent(TEXT.replace('stream = "events"', source)))
    lines = to_lines(figure_of(read_pipeline(tmp_path / "p.toml")))
    assert lines[0] == f"{said} queue:postgresql://host/db#orders"


def test_mermaid_names_every_node_and_every_edge(drawn: Figure) -> None:
    lines = to_mermaid(drawn).splitlines()
    assert lines[0] == "flowchart LR"
    assert sum("-->" in line for line in lines) == len(drawn.edges)
    assert '  n1{{"orders<br/>headers"}}' in lines


def test_svg_is_well_formed_and_holds_a_box_for_every_node(drawn: Figure) -> None:
    root = ElementTree.fromstring(to_svg(drawn))
    kinds = [group.get("class") for group in root.iter("{http://www.w3.org/2000/svg}g")]
    assert sorted(kinds) == sorted(node.kind for node in drawn.nodes)
    titles = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert "stream:out/eu" in titles


def test_exchanges_in_a_circle_stand_before_their_queues(drawn: Figure) -> None:
    step = {node.name: at for node, at in columns(drawn).items()}
    assert step["stream events"] < step["orders"] < step["audit"] < step["eu"]
    assert step["eu"] < step["stream:out/eu"]


def test_many_bindings_of_one_queue_are_a_few_and_a_number(tmp_path: Path) -> None:
    bindings = "".join(f'[[binding]]\nqueue = "q"\nkey = "k{n}"\n' for n in range(1000))
    sink = '[[sink]]\nqueue = "q"\nto = "none:"\n'
    head = '[source]\nstream = "e"\n[exchange]\ntype = "direct"\n'
    (tmp_path / "p.toml").write_text(head + bindings + sink)
    (line,) = [
        line
        for line in to_lines(figure_of(read_pipeline(tmp_path / "p.toml")))
        if "queue q" in line
    ]
    assert line.endswith("queue q: key k0 | key k1 | key k2 | key k3 | … and 996 more")
