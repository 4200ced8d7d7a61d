"""The command line: `headgate <noun> <verb>`. Exit code 0 is yes, 1 is no, 2 is an error."""

from __future__ import annotations

import sys

from headgate.cli.app import run


def main() -> None:
    sys.exit(run(sys.argv[1:]))
