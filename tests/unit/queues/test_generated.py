"""The sync API of queues is generated from the asyncio API."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "tools/generate_sync.py"


@pytest.fixture(scope="module")
def generated():
    spec = spec_from_file_location("generate_sync", TOOL)
    tool = module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool.generate()


def test_the_sync_api_is_current(generated):
    outdated = [path.name for path, text in generated.items() if path.read_text() != text]
    assert outdated == [], "run `make generate`"


def test_the_sync_api_mentions_nothing_of_asyncio(generated):
    for path, text in generated.items():
        code = text.partition("\n")[2]  # without the header
        for word in ("async", "await", "aio", "Coroutine", "task"):
            assert word not in code, f"{word!r} in {path.name}"
