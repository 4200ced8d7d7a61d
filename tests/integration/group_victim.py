"""A member of a consumer group that is killed: it writes down each message it handles, and what it has committed.

    python group_victim.py <stream> <group> <ledger> <seed>

A line of the ledger is {"did": offset}, before the commit, or {"committed": [offset, …]}, after it has returned.
"""

from __future__ import annotations

import json
import sys
from random import Random

from headgate.streams.stream import Stream


def handle_messages(path: str, group: str, ledger: str, seed: int) -> None:
    draw, handled = Random(seed), list[int]()
    with open(ledger, "a", buffering=1) as lines, Stream.open(path) as stream:
        with stream.join_group(group, "n >= 0", follow=True) as member:
            for record in member.records():
                lines.write(json.dumps({"did": record.offset}) + "\n")
                handled.append(record.offset)
                if draw.random() < 0.05:
                    member.commit()
                    lines.write(json.dumps({"committed": handled}) + "\n")
                    handled = []


if __name__ == "__main__":
    handle_messages(*sys.argv[1:4], int(sys.argv[4]))
