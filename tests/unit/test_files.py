"""Files that others have open."""

import subprocess
import sys
from contextlib import closing

import apsw

from headgate.files import copy_database

WRITE = """
import sqlite3, sys
try:
    sqlite3.connect(sys.argv[1], timeout=0).execute("BEGIN IMMEDIATE")
except sqlite3.OperationalError as problem:
    print(problem)
"""


def test_a_copy_releases_no_lock_that_this_process_holds(tmp_path):
    source, copy = tmp_path / "store.db", tmp_path / "copy.db"
    with closing(apsw.Connection(str(source))) as database:
        database.pragma("journal_mode", "wal")
        database.execute("CREATE TABLE t (n); INSERT INTO t VALUES (1)")
        database.execute("BEGIN IMMEDIATE; INSERT INTO t VALUES (2)")
        copy_database(source, copy)
        other = [sys.executable, "-c", WRITE, str(source)]
        said = subprocess.run(other, capture_output=True, text=True, check=True).stdout
        database.execute("COMMIT")
    assert said == "database is locked\n"
    with closing(apsw.Connection(str(copy))) as copied:
        assert copied.execute("SELECT n FROM t").fetchall() == [(1,)]
