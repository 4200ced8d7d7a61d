"""`make site` builds strictly, and its pages load nothing from elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
pytest.importorskip("mkdocs", reason="pip install -e '.[docs]' installs what builds the site")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, built without a network."""
    place = tmp_path_factory.mktemp("site")
    nowhere = "http://127.0.0.1:9"
    offline = {"http_proxy": nowhere, "https_proxy": nowhere, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **offline},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return place


class Loaded(HTMLParser):
    """The addresses a browser loads for a page: scripts, styles, pictures, frames; not links."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag == "link" and given.get("rel") in ("canonical", "next", "prev"):
            return
        names = ("href",) if tag == "link" else ("src", "srcset", "data", "poster")
        self.found += [given[name] for name in names if given.get(name)]


def test_no_page_loads_anything_from_elsewhere(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        loaded = Loaded()
        loaded.feed(page.read_text())
        assert [address for address in loaded.found if "//" in address] == [], page
        assert "https://fonts" not in page.read_text()


def test_the_home_page_shows_the_readme_with_its_pictures(site):
    loaded = Loaded()
    loaded.feed((site / "index.html").read_text())
    pictures = [address for address in loaded.found if address.endswith(".svg")]
    assert pictures == ["headgate-dark.svg", "headgate-light.svg"]
    assert all((site / picture).exists() for picture in pictures)
