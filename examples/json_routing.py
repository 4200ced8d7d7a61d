"""JSON files, routed by a pipeline into two streams and a queue; what is not wanted or not JSON goes to a third stream.

    python examples/json_routing.py

The pipeline is examples/json_routing.toml. It runs twice, with new files in between: the second run reads only those.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from headgate import Stream, connect

PIPELINE = Path(__file__).with_suffix(".toml")
KINDS = ("log.web.info", "log.web.error", "log.db.error", "order.new", "order.refund")
LINES = 500


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        shutil.copy(PIPELINE, place)
        for part in ("monday", "tuesday"):
            write_file(place / "in" / f"{part}.json")
            run_pipeline(place / PIPELINE.name)
        streams = {
            name: count(place / "out" / name) for name in ("errors", "large-orders", "unrouted")
        }
        refunds = handle_refunds(place / "out/work.db")
    print(f"streams: {streams}; refunds handled: {refunds}")
    return 0 if (streams, refunds) == (expected_streams(), 2 * LINES // len(KINDS)) else 1


def events() -> list[dict[str, object]]:
    return [
        {
            "kind": KINDS[n % len(KINDS)],
            "service": f"service-{n % 7}",
            "amount": n * 10 % 3000,
            "text": f"event {n}",
        }
        for n in range(LINES)
    ]


def write_file(file: Path) -> None:
    """A file with an event on each line, the last of them cut off."""
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(json.dumps(event) + "\n" for event in events()) + '{"kind": "log.w')


def run_pipeline(file: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "headgate", "pipeline", "run", file, "--once"], check=True
    )


def count(path: Path) -> int:
    with Stream.open(path) as stream:
        return stream.next_offset


def handle_refunds(file: Path) -> int:
    """Claim refunds until there are no more."""
    handled = 0
    with connect(f"sqlite:///{file}") as database:
        refunds = database.find("refunds")
        while claimed := refunds.claim(limit=50, lease=timedelta(seconds=30)):
            for delivery in claimed:
                delivery.ack()
                handled += 1
    return handled


def expected_streams() -> dict[str, int]:
    """The numbers of messages, in plain Python; both files have the same events."""
    kinds = [(str(event["kind"]), int(str(event["amount"]))) for event in events()]
    errors = sum(kind.endswith(".error") for kind, _ in kinds)
    large = sum(kind.startswith("order.") and amount >= 1000 for kind, amount in kinds)
    unrouted = sum(
        not kind.endswith(".error")
        and kind != "order.refund"
        and not (kind == "order.new" and amount >= 1000)
        for kind, amount in kinds
    )
    return {"errors": 2 * errors, "large-orders": 2 * large, "unrouted": 2 * (unrouted + 1)}


if __name__ == "__main__":
    sys.exit(main())
