"""A stream of which something is planned to be read, while retention goes on: what is gone by then is an error."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from headgate.errors import DataLost
from headgate.streams.read import SegmentCatalog
from headgate.streams.segments import Segment

GO_ON: Final = "go on without them: failOnDataLoss=false, or fail_on_data_loss = false in a pipeline's [source]"

_log: Final = logging.getLogger(__name__)


class PlannedCatalog(SegmentCatalog):
    """The segments of a stream, asked only for offsets that were there when they were planned.

    Messages that are not there any more are a `DataLost`, or a line in the log when `fail` is false.
    """

    def __init__(self, path: str, *, fail: bool = True, go_on: str = GO_ON) -> None:
        super().__init__(Path(path))
        self._path, self._fail, self._go_on = path, fail, go_on

    def covering(self, offset: int) -> Segment | None:
        found = super().covering(offset)
        if found is None:
            self._lose(f"{self._path}: the stream ends before offset {offset}, which was there")
        elif found.first_offset > offset:
            until = found.first_offset - 1
            self._lose(
                f"{self._path}: offsets {offset} to {until} were dropped before the query read them"
            )
        return found

    def _lose(self, what: str) -> None:
        report_loss(what, f"keep more (max_age, max_bytes), or {self._go_on}", fail=self._fail)


def report_loss(what: str, remedy: str, *, fail: bool) -> None:
    """Raise `DataLost`, or only log what was lost."""
    if fail:
        raise DataLost(f"{what}; {remedy}")
    _log.warning("%s", what)
