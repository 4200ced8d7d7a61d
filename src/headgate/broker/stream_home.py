"""Where the streams of stream queues are, and the threads that write and read them.

    <data>/streams/<virtual host>/<queue>      one stream, see FORMAT.md; names are percent-encoded
    <data>/streams/.deleted-…                  a stream that is being deleted

A broker in memory has them in a temporary directory.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from headgate.streams import Fsync

log: Final = logging.getLogger(__name__)

WRITERS: Final = 4  # threads; a write waits for the disk most of the time
READERS: Final = 4
MAX_FILE_NAME: Final = 200
_KEPT: Final = 150  # characters of a name that is too long for a file
_DELETED: Final = ".deleted-"

PostCall = Callable[[Callable[[], None]], object]  # calls a function in the thread of the broker


class StreamHome:
    """The directories of stream queues, and the threads that work on them."""

    def __init__(self, directory: Path | None, post: PostCall) -> None:
        self._temporary = (
            tempfile.TemporaryDirectory(prefix="headgate-streams-") if directory is None else None
        )
        self.directory = directory or Path(self._temporary.name)  # type: ignore[union-attr]
        # A broker in memory needs no fsync.
        self.fsync: Fsync = "never" if directory is None else "always"
        self.closing = threading.Event()
        self._post_to_broker = post
        self._writers = ThreadPoolExecutor(WRITERS, "headgate-stream-writer")
        self._readers = ThreadPoolExecutor(READERS, "headgate-stream-reader")
        self._keepers = ThreadPoolExecutor(1, "headgate-stream-upkeep")
        for left in self.directory.glob(f"{_DELETED}*"):
            self._remove(left)

    def path_of(self, vhost: str, queue: str) -> Path:
        """The directory of a queue's stream."""
        return self.directory / encode_name(vhost) / encode_name(queue)

    def post(self, call: Callable[[], None]) -> None:
        """Have the thread of the broker call a function; not after the end of its event loop."""
        with suppress(RuntimeError):
            self._post_to_broker(call)

    def write(self, call: Callable[[], Any], then: Callable[[Future[Any]], None]) -> None:
        """Call a function in a thread that writes, and then another one, with its result, in that of the broker."""
        self._run(self._writers, call, then)

    def read(self, call: Callable[[], Any], then: Callable[[Future[Any]], None]) -> None:
        """Call a function in a thread that reads, and then another one, with its result, in that of the broker."""
        self._run(self._readers, call, then)

    def maintain(self, call: Callable[[], Any], then: Callable[[Future[Any]], None]) -> None:
        """Call a function in the thread for work that may take long, and then another one in that of the broker."""
        self._run(self._keepers, call, then)

    def _run(
        self,
        threads: ThreadPoolExecutor,
        call: Callable[[], Any],
        then: Callable[[Future[Any]], None],
    ) -> None:
        if self.closing.is_set():
            return
        running = threads.submit(call)
        running.add_done_callback(lambda done: self.post(lambda: then(done)))

    def discard(self, directory: Path, close: Callable[[], None]) -> None:
        """Take a directory out of the way at once, so that its name is free; close and delete it in the background."""
        aside = self.directory / f"{_DELETED}{uuid.uuid4().hex}"
        with suppress(FileNotFoundError):
            directory.rename(aside)

        def delete() -> None:
            close()
            self._remove(aside)

        self.write(delete, log_failure)

    def _remove(self, directory: Path) -> None:
        shutil.rmtree(directory, ignore_errors=True)

    def close(self) -> None:
        """Wait for the work under way, and end the threads."""
        self.closing.set()
        self._keepers.shutdown(cancel_futures=True)
        self._readers.shutdown()
        self._writers.shutdown()

    def remove_temporary(self) -> None:
        """Delete the streams of a broker in memory."""
        if self._temporary is not None:
            self._temporary.cleanup()


def encode_name(name: str) -> str:
    """The name of a file for any text: different for different texts, never hidden, never too long."""
    encoded = quote(name, safe="") or "%"
    if encoded.startswith("."):
        encoded = "%2E" + encoded[1:]
    if len(encoded) <= MAX_FILE_NAME:
        return encoded
    # `quote` writes no plus sign, so that no short name looks like this.
    return f"{encoded[:_KEPT]}+{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def log_failure(done: Future[Any]) -> None:
    """Log what a call in the background raised."""
    problem = done.exception()
    if problem is not None:
        log.error("work on a stream queue failed: %s", problem, exc_info=problem)
