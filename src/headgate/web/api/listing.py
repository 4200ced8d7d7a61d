"""Lists: sorted, in pages, and with some columns only, as RabbitMQ's query parameters say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from starlette.datastructures import QueryParams

from headgate.broker import PreconditionFailed, read_pattern
from headgate.web.api.shapes import JsonObject
from headgate.web.endpoints import Call
from headgate.web.problems import bad_request

PAGE_SIZE: Final = 100
MAX_PAGE_SIZE: Final = 500
MAX_PATTERN: Final = 1_024
SLICE: Final = 200  # rows made before other clients have their turn
QUERY: Final = ("page", "page_size", "name", "use_regex", "pagination", "columns", "sort", "sort_reverse", "disable_stats", "enable_queue_totals")  # fmt: skip

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class ListPage:
    """The page of a list that a request asks for."""

    number: int
    size: int
    name: str = ""
    use_regex: bool = False

    def chooser(self) -> Callable[[str], bool]:
        """Return the test that selects the names of the list which is cut into pages."""
        if not self.name:
            return lambda _: True
        if not self.use_regex:
            wanted = self.name.lower()
            return lambda name: wanted in name.lower()
        if len(self.name) > MAX_PATTERN:
            raise bad_request("name filter regex is too long")
        try:
            return read_pattern(self.name, ignore_case=True).is_in
        except PreconditionFailed as problem:
            raise bad_request(f"name filter regex is invalid: {problem}") from problem

    def cut(self, items: Sequence[Item]) -> Sequence[Item]:
        start = (self.number - 1) * self.size
        return items[start : start + self.size]

    def describe(self, total: int, filtered: int, items: Any, count: int) -> JsonObject:
        return {
            "total_count": total,
            "item_count": count,
            "filtered_count": filtered,
            "page": self.number,
            "page_size": self.size,
            "page_count": -(-filtered // self.size),
            "items": items,
        }


def read_page(query: QueryParams) -> ListPage | None:
    """The page that a request wants; None for everything."""
    if "page" not in query:
        return None
    try:
        number, size = int(query["page"]), int(query.get("page_size", PAGE_SIZE))
    except ValueError as problem:
        raise bad_request("Pagination parameters are invalid") from problem
    if not (0 < number < 1 << 31 and 0 < size <= MAX_PAGE_SIZE):
        raise bad_request(f"Invalid pagination parameters: page number {number}, page size {size}")
    return ListPage(number, size, query.get("name", ""), query.get("use_regex") == "true")


def read_columns(query: QueryParams) -> list[list[str]] | None:
    """The columns that a request wants, each as a path of names; None for all."""
    text = query.get("columns")
    return None if not text else [column.split(".") for column in text.split(",") if column]


def pick_columns(value: Any, columns: list[list[str]] | None) -> Any:
    """A row with some columns only."""
    if columns is None:
        return value
    if isinstance(value, list):
        return [pick_columns(inner, columns) for inner in value]
    if not isinstance(value, dict):
        return value
    picked = {}
    for key, inner in value.items():
        below = [column[1:] for column in columns if column[0] == key]
        if below:
            picked[key] = inner if [] in below else pick_columns(inner, below)
    return picked


def sort_rows(
    rows: list[JsonObject], query: QueryParams, default: Sequence[str]
) -> list[JsonObject]:
    """Rows by the column that a request names, then by the default ones."""
    wanted = query.get("sort", "")
    columns = [*([wanted] if wanted else []), *default]
    paths = [column.split(".") for column in dict.fromkeys(columns)]
    rows.sort(key=lambda row: [_sort_key(row, path) for path in paths])
    if query.get("sort_reverse") == "true":
        rows.reverse()
    return rows


def _sort_key(row: Any, path: list[str]) -> tuple[int, Any]:
    """A key that orders values of any types: numbers first."""
    for name in path:
        row = row.get(name) if isinstance(row, dict) else None
    match row:
        case None:
            return 0, 0
        case bool() | int() | float():
            return 0, row
        case str():
            return 1, row
    return 2, str(row)


def list_rows(
    call: Call, rows: Iterable[JsonObject], default: Sequence[str] = ("vhost", "name")
) -> list[JsonObject] | JsonObject:
    """The answer to a request for a list that is short enough to be made at once."""
    page, columns = read_page(call.query), read_columns(call.query)
    ordered = sort_rows(list(rows), call.query, default)
    if page is None:
        return [pick_columns(row, columns) for row in ordered]
    chosen = page.chooser()
    kept = [row for row in ordered if chosen(str(row.get("name", "")))]
    items = [pick_columns(row, columns) for row in page.cut(kept)]
    return page.describe(len(ordered), len(kept), items, len(items))


async def list_long(
    call: Call, rows: list[JsonObject], default: Sequence[str] = ("vhost", "name")
) -> list[JsonObject] | JsonObject:
    """The answer to a request for a long list; it is made in a thread, because sorting a hundred thousand rows takes long."""
    work = partial(list_rows, call, rows, default)
    return await asyncio.get_running_loop().run_in_executor(None, work)


async def in_slices(items: Iterable[Item]) -> list[Item]:
    """Collect the items of a slow iterator in slices; the broker has its turn in between."""
    found: list[Item] = []
    for number, item in enumerate(items, 1):
        found.append(item)
        if not number % SLICE:
            await asyncio.sleep(0)
    return found


def slices(items: Sequence[Item], size: int = SLICE) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
