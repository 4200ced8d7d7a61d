"""Ctrl-C between any two steps of a commit: what was accepted is stored, once, and readers see nothing else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from itertools import count
from linecache import getline
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from headgate.message import Message
from headgate.streams.options import StreamOptions, save_options
from headgate.streams.stream import Stream
from headgate.streams.upkeep.verification import verify
from headgate.streams.write.producer import Producer
from headgate.streams.write.writer import Writer

MODULES = ("writer.py", "log.py", "pending.py")


def is_with(frame: FrameType) -> bool:
    """Python traces such a line again between the block and the release of its lock, where it handles no signal."""
    return getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with ")


def interrupted_at(step: int, act: Callable[[], object]) -> bool:
    """Do it, and raise KeyboardInterrupt before the step-th line of the writer's own code; whether it came so far."""
    left = step

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(MODULES):
            return None
        if event == "line" and not is_with(frame):
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with suppress(KeyboardInterrupt):
            act()
    finally:
        sys.settrace(before)
    return left <= 0


def read(path: Path) -> list[bytes]:
    return [message.payload for message in Stream.open(path).consume()]


def steps_between(full: bool) -> Iterator[int]:
    """Every step; by default, every eleventh."""
    return count(1, 1 if full else 11)


@pytest.mark.parametrize("claimed", [False, True], ids=["marked", "unmarked"])
@pytest.mark.parametrize("name", [None, "p"])
@pytest.mark.parametrize("act", [Writer.commit, Writer.roll])
def test_an_accepted_message_is_stored_once_wherever_its_commit_is_interrupted(
    tmp_path: Path, full: bool, act: Callable[[Writer], None], name: str | None, claimed: bool
) -> None:
    # Three messages of three chunks in two segments, then a fourth.
    options = StreamOptions(segment_bytes=8192, chunk_bytes=3000, fsync="never")
    sent = [b"%d" % i + b"-" * 2500 for i in range(4)]
    for step in steps_between(full):
        path = tmp_path / str(step)
        path.mkdir()
        save_options(path, options)
        with closing(Writer(path, options, "test")) as writer:
            if claimed:
                writer.pending.claim_unmarked(name)
            for payload in sent[:3]:
                if claimed:
                    writer.pending.items.append(Message(payload))
                else:
                    writer.pending.add(Message(payload), name, None)
            came = interrupted_at(step, partial(act, writer))
            seen = read(path)
            writer.accept([Message(sent[3])], name)
            writer.commit()
            assert read(path)[: len(seen)] == seen, step
        assert read(path) == sent, step
        assert verify(path).fine, step
        with closing(Writer(path, options, "test")) as writer:
            assert writer.producers.committed == ({} if name is None else {name: 3}), step
        if not came:
            break
    assert step > 100


def test_publish_many_stores_all_or_nothing_wherever_it_is_interrupted(
    tmp_path: Path, full: bool
) -> None:
    options = StreamOptions(chunk_messages=2, fsync="never")
    sent = [b"%d" % i for i in range(5)]
    for step in steps_between(full):
        path = tmp_path / str(step)
        path.mkdir()
        save_options(path, options)
        with closing(Writer(path, options, "test")) as writer:
            producer = Producer(writer, None, None, lambda _: None)
            came = interrupted_at(step, partial(producer.publish_many, list(map(Message, sent))))
            producer.publish(Message(b"last"))
        assert read(path) in ([b"last"], [*sent, b"last"]), step
        assert verify(path).fine, step
        if not came:
            break
    assert step > 20
