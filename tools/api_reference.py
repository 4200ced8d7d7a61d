"""Write the reference of the Python API from its docstrings: `python tools/api_reference.py`, or `make docs`.

A page for each package, with the classes and functions that users call. An indented block of a docstring is an example if it
is Python; `tests/acceptance/test_documents.py` runs the examples of a page from top to bottom.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

PLACE = Path(__file__).parent.parent / "docs/reference/api"
ALIGNED = re.compile(r"^[\w\"`][\w\"`=, .]*\s{2,}\S")  # `name   what it means`: a list in columns
FIELD = re.compile(r"^\s+(\w+): .*?(?:  # (.+))?$")
COMMENT_ABOVE = re.compile(r"^\s+# (?!-)(.+)$")


class ApiPage(NamedTuple):
    """A page: its title, the module that is imported from, the names in their order, and what to say first."""

    title: str
    module: str
    names: str
    about: str
    more: str = ""  # a module whose docstring is printed last


PAGES = {
    "streams": ApiPage(
        "Streams",
        "headgate.streams",
        "Stream StreamOptions Producer StreamConsumer Scan ScanStats Cursors SuperStream "
        "AsyncStream AsyncProducer AsyncStreamConsumer",
        "How to use them: [tail a stream and resume](../../how-to/tail-and-resume.md), "
        "[streams in asyncio](../../how-to/streams-in-asyncio.md), "
        "[streams in DuckDB, Polars and pandas](../../how-to/streams-and-data-frames.md).",
        "headgate.streams.read.start",
    ),
    "queues": ApiPage(
        "Queues",
        "headgate.queues",
        "connect Database Queue Subscription Delivery Consumer Retry Member Publication State QueueStats "
        "DeliverySnapshot Outbox Relay ParkedEntry",
        "[Queues in Python](../queues.md) has all verbs on one page. `headgate.aio` has the same classes for asyncio "
        "(`AsyncDatabase`, `AsyncQueue`, …), from which these are generated.",
    ),
    "routing": ApiPage(
        "Routing",
        "headgate.routing",
        "Topology Routed RoutedBatch Binding Explained Reason from_toml to_toml",
        "[Routing](../routing.md) explains exchanges and bindings.",
    ),
    "filters": ApiPage(
        "Filters and messages",
        "headgate.filters",
        "compile_filter as_filter header topic all_of any_of Condition parse to_text explain matches_filter evaluate "
        "headgate.message:Message",
        "[FILTERS.md](../../../FILTERS.md) defines the language.",
    ),
    "spark": ApiPage(
        "Spark",
        "headgate.spark",
        "session HeadgateSource to_column jobs:compact jobs:replay jobs:advise jobs:stream_stats "
        "pipeline:start pipeline:follow",
        "The format `headgate` is described in [the source](../spark.md) and [the sink](../sink.md); pipelines in "
        "[run a pipeline](../../how-to/pipeline.md).",
    ),
    "testing": ApiPage(
        "Testing",
        "headgate.testing",
        "memory_database ManualClock MessageFactory",
        "[Test your code](../../how-to/test-your-code.md) shows them at work, also as pytest fixtures.",
    ),
}


def api_pages() -> dict[Path, str]:
    """The text that each page should have."""
    return {PLACE / f"{name}.md": render(page) for name, page in PAGES.items()}


def render(page: ApiPage) -> str:
    written = "Written by `make docs` from the docstrings."
    parts = [f"# {page.title}: the Python API", f"{page.about} {written}"]
    for name in page.names.split():
        module, _, attribute = name.rpartition(":")
        within = module if "." in module else f"{page.module}.{module}".rstrip(".")
        parts += describe(getattr(importlib.import_module(within), attribute), within, attribute)
    if page.more:
        parts += [
            "## Where reading begins",
            prose(importlib.import_module(page.more).__doc__ or ""),
        ]
    return "\n\n".join(part for part in parts if part) + "\n"


# ---- classes and functions ---------------------------------------------------------------------------


def describe(found: Any, module: str, name: str) -> Iterator[str]:
    yield f"## `{name}`"
    yield f"`from {importable(module, name)} import {name}`"
    if inspect.isclass(found) or not callable(found):  # or one object of a class, as `topic`
        yield from describe_class(found if inspect.isclass(found) else type(found), name)
    else:
        yield code(f"{name}{signature_text(found)}", "text")
        yield prose(inspect.getdoc(found) or "")


def importable(module: str, name: str) -> str:
    """The shortest module that offers the name."""
    import headgate

    return "headgate" if name in headgate.__all__ else module


def describe_class(found: type, name: str) -> Iterator[str]:
    yield prose(class_doc(found))
    if rows := list(field_rows(found)):
        yield "\n".join(["| field | default | |", "|---|---|---|", *rows])
    for attribute, member in public_members(found):
        text = member.__doc__ or ""
        if isinstance(member, property):
            yield f"### `{name}.{attribute}`"
        else:
            yield f"### `{name}.{attribute}()`"
            yield code(f"{attribute}{signature_text(function_of(member))}", "text")
        yield prose(text)


def class_doc(found: type) -> str:
    """Its own docstring; not that of its base, and not the one that dataclasses write."""
    text = inspect.cleandoc(found.__doc__ or "")
    return "" if text.startswith(f"{found.__name__}(") else text


def public_members(found: type) -> Iterator[tuple[str, Any]]:
    """Documented methods and properties, also those of bases in Headgate, in the order of the source, without aliases."""
    seen: set[str] = set()
    for home in found.__mro__:
        if not home.__module__.startswith("headgate"):
            continue
        for attribute, member in vars(home).items():
            function = function_of(member)
            if attribute.startswith("_") or attribute in seen or not callable(function):
                continue
            if getattr(function, "__name__", attribute) == attribute and not inspect.isclass(
                member
            ):
                seen.add(attribute)
                yield attribute, member


def function_of(member: Any) -> Any:
    if isinstance(member, property):
        return member.fget
    return member.__func__ if isinstance(member, classmethod | staticmethod) else member


def field_rows(found: type) -> Iterator[str]:
    """The fields of a value, with the comments behind them."""
    if issubclass(found, enum.Enum):
        yield from (f"| `{one.name}` | | |" for one in found)
        return
    comments = field_comments(found)
    if dataclasses.is_dataclass(found):
        for field in dataclasses.fields(found):
            if not field.name.startswith("_"):
                yield field_row(field.name, default_of(field), comments)
    elif issubclass(found, tuple):
        for name in getattr(found, "_fields", ()):
            default = getattr(found, "_field_defaults", {}).get(name, inspect.Parameter.empty)
            yield field_row(name, default, comments)


def default_of(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    made = field.default_factory is not dataclasses.MISSING
    return field.default_factory() if made else inspect.Parameter.empty


def field_row(name: str, default: Any, comments: dict[str, str]) -> str:
    shown = "" if default is inspect.Parameter.empty else f"`{default_text(default)}`"
    return f"| `{name}` | {shown} | {comments.get(name, '')} |".replace("  |", " |")


def field_comments(found: type) -> dict[str, str]:
    """The comment of each field: behind it, or in the lines above it."""
    comments: dict[str, str] = {}
    above: list[str] = []
    for line in inspect.getsource(found).splitlines():
        if match := COMMENT_ABOVE.match(line):
            above.append(match[1])
            continue
        if (match := FIELD.match(line)) and (match[2] or above):
            comments[match[1]] = (match[2] or " ".join(above)).replace("|", "\\|")
        above = []
    return comments


# ---- signatures --------------------------------------------------------------------------------------


def signature_text(function: Any) -> str:
    """The parameters with their types, one on each line where they are many."""
    signature = inspect.signature(function)
    shown = [parameter_text(one) for one in with_stars(signature) if one not in ("self", "cls")]
    result = signature.return_annotation
    returns = "" if result in (inspect.Signature.empty, "None", None) else f" -> {plain(result)}"
    line = f"({', '.join(shown)}){returns}"
    if len(line) <= 90:
        return line
    return "(\n" + "".join(f"    {one},\n" for one in shown) + f"){returns}"


def with_stars(signature: inspect.Signature) -> Iterator[Any]:
    """The parameters, with the bare `*` before those that are given by name."""
    starred = False
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            yield "*"
        starred = starred or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        yield parameter


def parameter_text(parameter: Any) -> str:
    if parameter == "*":
        return "*"
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    kind = parameter.annotation
    text = stars + parameter.name + ("" if kind is parameter.empty else f": {plain(kind)}")
    if parameter.default is parameter.empty:
        return text
    return f"{text} = {default_text(parameter.default)}"


def default_text(value: Any) -> str:
    """A default as it is written in Python, and not at which address it is."""
    if callable(value):
        return str(value.__name__)
    return repr(dict(value)) if isinstance(value, MappingProxyType) else repr(value)


def plain(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


# ---- docstrings --------------------------------------------------------------------------------------


def prose(docstring: str) -> str:
    """A docstring as Markdown: examples and lists in columns become blocks."""
    return "\n\n".join(paragraphs(inspect.cleandoc(docstring))) if docstring else ""


def paragraphs(text: str) -> Iterator[str]:
    first, _, rest = text.partition("\n\n")
    if is_program(
        rest
    ):  # nothing but the example follows, and its indentation is taken for the margin
        yield from (first, code(rest.strip(), "python"))
        return
    waiting: list[str] = []  # an example may have empty lines
    for part in text.split("\n\n"):
        if part.startswith("    "):
            waiting.append(part)
            continue
        yield from example(waiting)
        waiting = []
        yield code(part, "text") if ALIGNED.match(part) else part
    yield from example(waiting)


def example(parts: list[str]) -> Iterator[str]:
    if not parts:
        return
    text = inspect.cleandoc("\n" + "\n\n".join(parts))
    yield code(text, "python" if is_program(text) else "text")


def is_program(text: str) -> bool:
    try:
        compile(text, "example", "exec")
    except SyntaxError:
        return False
    return "import" in text or "assert" in text


def code(text: str, language: str) -> str:
    return f"```{language}\n{text}\n```"


if __name__ == "__main__":
    PLACE.mkdir(parents=True, exist_ok=True)
    for path, text in api_pages().items():
        path.write_text(text)
