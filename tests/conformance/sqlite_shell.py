"""Plain SQL on a SQLite file, from another process, as a shell would run it.

Never from this one: it holds the file open through apsw's SQLite, and two SQLite libraries in one process destroy
each other's locks.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

_SHELL = """
import json, sqlite3, sys
path, statement, commit = json.load(sys.stdin)
connection = sqlite3.connect(path)
rows = connection.execute(statement).fetchall()
connection.commit() if commit else connection.rollback()
connection.close()
print(json.dumps(rows))
"""


def run_elsewhere(path: Path, statement: str, *, commit: bool = True) -> list[tuple[object, ...]]:
    """The rows of the statement; what it changed is committed, or rolled back."""
    asked = json.dumps([str(path), statement, commit])
    done = subprocess.run(
        [sys.executable, "-c", _SHELL], input=asked, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [tuple(row) for row in json.loads(done.stdout)]
