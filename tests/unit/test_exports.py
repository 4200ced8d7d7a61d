"""The public API is small, explicit and lazy."""

import ast
import inspect
import subprocess
import sys
from importlib.metadata import version

import pytest

import headgate

PUBLIC = """
OPAQUE FilterError FilterLimitError FilterSyntaxError HeadgateError InvalidMessage Message Settings
Stream SuperStream Topology all_of any_of as_filter compile_filter connect header topic
""".split()


def test_the_public_api_is_exactly_this():
    assert sorted(headgate.__all__) == sorted(PUBLIC)


def test_every_public_name_is_loaded_when_asked_for():
    assert all(getattr(headgate, name) is not None for name in headgate.__all__)


def test_a_type_checker_sees_every_public_name():
    imports = ast.walk(ast.parse(inspect.getsource(headgate)))
    seen = {
        alias.asname for node in imports if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert set(headgate.__all__) <= seen


def test_the_version_is_that_of_the_installed_package():
    assert headgate.__version__ == version("headgate")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        headgate.nonsense


def test_importing_headgate_loads_nothing_heavy():
    code = "import sys, headgate; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"lark", "pyarrow", "numpy", "apsw", "psycopg", "pyspark", "starlette", "typer", "rich"}
    assert not heavy & set(loaded)
