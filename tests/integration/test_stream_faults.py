"""Writers die at any moment: what was confirmed is there, once; offsets are dense; nothing is half there.

A few rounds by default, at least fifty with HEADGATE_FULL=1.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from headgate.streams.cold.compaction import compact
from headgate.streams.cold.manifest import list_manifests, read_note
from headgate.streams.listing import list_segments
from headgate.streams.outlines import Outlines
from headgate.streams.read import catalog
from headgate.streams.stream import Stream
from headgate.streams.upkeep.verification import verify
from tests.integration import stream_victim

FULL = os.environ.get("HEADGATE_FULL") == "1"
ROUNDS = 20 if FULL else 4  # of each seed
SEEDS = range(4 if FULL else 2)


def run_victim(path: Path, seed: str, die_at: int, ids: dict[str, int]) -> tuple[list[str], int]:
    """The keys a victim confirmed, and how it ended. Meanwhile the stream is read, again and again."""
    command = [
        sys.executable,
        stream_victim.__file__,
        str(path),
        seed,
        str(die_at),
        json.dumps(ids),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as victim:
        while victim.poll() is None:
            stored_keys(path)
        output, complaints = victim.communicate()
    assert victim.returncode in (0, -9), complaints.decode()
    return [key for line in output.splitlines() for key in json.loads(line)], victim.returncode


def stored_keys(path: Path) -> dict[str, int]:
    """Every message there is, by its key, with its offset; dense and without a repetition."""
    with Stream.open(path) as stream:
        offsets, keys = [], []
        for batch in stream.scan():
            offsets += batch.column("offset").to_pylist()
            keys += [payload.decode() for payload in batch.column("payload").to_pylist()]
        first_offset = stream.first_offset  # retention may have gone on while we read
    kept = [offset for offset in offsets if offset >= first_offset]
    assert kept == list(range(first_offset, first_offset + len(kept)))
    repeated = [key for key, count in Counter(keys).items() if count > 1]
    assert not repeated
    return dict(zip(keys, offsets, strict=True))


class Witness:
    """What is known of a stream from outside: what was confirmed, and where it was seen."""

    def __init__(self) -> None:
        self.confirmed: dict[str, None] = {}  # in the order it was confirmed in
        self.seen: dict[str, int] = {}
        self.ids: dict[str, int] = {}

    def heard(self, keys: list[str]) -> None:
        self.confirmed.update(dict.fromkeys(keys))
        for key in keys:
            kind, number = key.split(":")[:2]
            if kind in "abc" or kind == "d":
                name = "spark" if kind == "d" else kind
                self.ids[name] = max(self.ids.get(name, -1), int(number))

    def check(self, stored: dict[str, int], first_offset: int) -> None:
        for key, offset in stored.items():
            assert self.seen.get(key, offset) == offset, "a message changed its offset"
        self.seen.update(stored)
        self.check_nothing_is_lost(stored, first_offset)
        self.check_deposits_are_whole(stored, first_offset)

    def check_nothing_is_lost(self, stored: dict[str, int], first_offset: int) -> None:
        missing = [key for key in self.confirmed if key not in stored]
        assert all(self.seen.get(key, -1) < first_offset for key in missing)
        # Dropped messages that were confirmed in this run were never seen here: they are older than the rest.
        unseen = [key for key in missing if key not in self.seen]
        assert not unseen or first_offset > 0
        assert (
            len(set(self.seen) | set(unseen)) <= max(stored.values(), default=-1) + 1 or not stored
        )

    def check_deposits_are_whole(self, stored: dict[str, int], first_offset: int) -> None:
        rows = Counter(int(key.split(":")[1]) for key in stored if key.startswith("d:"))
        for number, found in rows.items():
            first = min(o for key, o in stored.items() if key.startswith(f"d:{number}:"))
            assert found == 1 + number * 37 % 150 or first == first_offset


@pytest.mark.parametrize("seed", SEEDS)
def test_writers_killed_at_any_moment_lose_and_repeat_nothing(tmp_path, seed, monkeypatch):
    monkeypatch.setattr(catalog, "MANY", 1)  # outlines are asked about few segments, too
    path, rng, witness = tmp_path / "s", Random(f"rounds {seed}"), Witness()
    Stream.create(path, **stream_victim.OPTIONS).close()
    deaths = 0
    for number in range(ROUNDS):
        die_at = rng.choice((rng.randint(1, 40), rng.randint(1, 400)))
        keys, ended = run_victim(path, f"{seed}-{number}", die_at, witness.ids)
        deaths += ended == -9
        witness.heard(keys)
        with Stream.open(path) as stream:
            first_offset = stream.first_offset
        witness.check(
            stored_keys(path), first_offset
        )  # before anyone has brought the files into order
        filters_find_their_messages(path)
        assert all(problem.healable for problem in verify(path).problems)
    assert deaths >= ROUNDS // 2
    heir_finds_everything_in_order(path, witness)


def filters_find_their_messages(path: Path) -> None:
    stored = stored_keys(path)
    with Stream.open(path) as stream:
        for kind in "abcdtu-":
            found = stream.scan(f"kind = '{kind}'", columns=["payload"])
            keys = [key.decode() for batch in found for key in batch.column("payload").to_pylist()]
            assert sorted(keys) == sorted(key for key in stored if key[0] == kind)


def heir_finds_everything_in_order(path: Path, witness: Witness) -> None:
    with Stream.open(path) as stream:
        for name in "abc":
            with stream.producer(name) as producer:
                assert (producer.last_publishing_id or -1) >= witness.ids.get(name, -1)
        stream.seal(all=True)
        first_offset = stream.first_offset
    witness.check(stored_keys(path), first_offset)
    filters_find_their_messages(path)
    outlines = Outlines(path)
    outlines.read_on()
    full = {file.path.name for file in list_segments(path)[:-1]}
    assert full <= {outline.name for outline in outlines.known}
    assert verify(path).fine
    compact(path, created_us=0)
    witness.check(stored_keys(path), first_offset)
    filters_find_their_messages(path)
    in_place = {f"cold/{file.name}" for file in (path / "cold").iterdir()}
    assert in_place == {read_note(manifest).file for manifest in list_manifests(path)}
