"""The types of the keywords of `consume`, `scan` and `join_group`, for methods that pass these keywords on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypedDict

from headgate.streams.read.consumer import PostFilter
from headgate.streams.read.entry_filters import EntryFilters
from headgate.streams.read.scan import OnCorrupt
from headgate.streams.read.start import OnLost, Start


class ReadOptions(TypedDict, total=False):
    """Keywords that `consume` and `scan` share."""

    start: Start
    filter_values: Iterable[str] | None
    match_unfiltered: bool
    entry_filter: EntryFilters
    on_corrupt: OnCorrupt
    on_lost: OnLost


class GroupOptions(ReadOptions, total=False):
    """Keywords of `join_group`, without `follow` and `timeout`."""

    post_filter: PostFilter | None


class ConsumeOptions(GroupOptions, total=False):
    """Keywords of `consume`, without `follow` and `timeout`."""

    cursor: str | None
    whole_chunks: bool


class ScanOptions(ReadOptions, total=False):
    """Keywords of `scan`."""

    end: int | None
    columns: Sequence[str] | None
