"""Write the sync API of queues from the asyncio API: `python tools/generate_sync.py`, or `make generate`.

`headgate/queues/aio/queue.py` becomes `headgate/queues/queue.py`, and so on: `await` goes, AsyncQueue becomes Queue, tasks become
threads. What cannot be translated word by word, events and workers, has the same names in `queues/aio/tasks.py` and
`queues/threads.py`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
QUEUES = ROOT / "src/headgate/queues"
MODULES = (
    "consumer",
    "consumer_set",
    "database",
    "delivery",
    "outbox",
    "push",
    "queue",
    "scheduler",
    "wakeup",
)

HEADER = "# Generated from headgate/queues/aio/{name} by tools/generate_sync.py: do not edit, run `make generate`.\n"

SUBSTITUTIONS = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        (r"Coroutine\[Any, Any, (.+)\]", r"\1"),
        (r"\bCoroutine, ", ""),
        (r"\basync (def|with|for)\b", r"\1"),
        (r"\bawait ", ""),
        (r"__aenter__", "__enter__"),
        (r"__aexit__", "__exit__"),
        (r"\bAsync([A-Z])", r"\1"),
        (r"\bheadgate\.queues\.aio\b", "headgate.queues"),
        (r"\btask(s?)\b", r"thread\1"),
        (r"\b_tasks\b", "_threads"),
    ]
]


def translate(source: str, name: str) -> str:
    """The text of the sync module for the text of an asyncio module."""
    lines = []
    for line in source.splitlines(keepends=True):
        for pattern, replacement in SUBSTITUTIONS:
            line = pattern.sub(replacement, line)
        lines.append(line)
    return _tidy(HEADER.format(name=name) + "".join(lines), name)


def _tidy(text: str, name: str) -> str:
    """Remove imports that only the asyncio module needs, sort the others, write `yield from`, and format."""
    file = str(QUEUES / name)
    fix = ["check", "--quiet", "--fix-only", "--unsafe-fixes"]
    fix += ["--select", "F401,I,UP028", "--stdin-filename", file, "-"]
    return _ruff(["format", "--quiet", "--stdin-filename", file, "-"], _ruff(fix, text))


def _ruff(arguments: list[str], text: str) -> str:
    command = [sys.executable, "-m", "ruff", *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout


def generate() -> dict[Path, str]:
    """The text that each generated file should have."""
    names = [f"{module}.py" for module in MODULES]
    return {QUEUES / name: translate((QUEUES / "aio" / name).read_text(), name) for name in names}


if __name__ == "__main__":
    for path, text in generate().items():
        path.write_text(text)
