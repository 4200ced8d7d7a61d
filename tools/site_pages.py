"""Hooks of mkdocs: the site has README.md as its home, the pages of docs/, and every file of the repository they link to.

Links in the documents are paths in the repository, so that they work there; here they become paths in the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
HOME, CONTENTS = "README.md", "docs/README.md"
LINK = re.compile(r"""(\]\(|src="|srcset=")([^)"\s#]+)([)"#])""")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the home page, and what the pages link to outside of docs/."""
    files.remove(files.src_uris["README.md"])
    waiting = [HOME, CONTENTS, *(f"docs/{file.src_uri}" for file in files.documentation_pages())]
    known = set(waiting)
    for path in waiting:
        if site_path(path) not in files.src_uris:
            files.append(File.generated(config, site_path(path), abs_src_path=str(ROOT / path)))
        if path.endswith(".md"):
            found = {target for target in targets(path) if (ROOT / target).is_file()} - known
            known |= found
            waiting += sorted(found)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    here = repository_path(page.file.src_uri)

    def rewrite(found: re.Match[str]) -> str:
        if is_elsewhere(found[2]):
            return found[0]
        target = site_path(resolve(here, found[2]))
        return found[1] + posixpath.relpath(target, posixpath.dirname(page.file.src_uri)) + found[3]

    return LINK.sub(rewrite, markdown)


def targets(path: str) -> list[str]:
    """The files of the repository that a document links to."""
    links = [found[2] for found in LINK.finditer((ROOT / path).read_text())]
    return [resolve(path, link) for link in links if not is_elsewhere(link)]


def is_elsewhere(link: str) -> bool:
    return "://" in link or link.startswith("mailto:")


def resolve(document: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(document), link))


def site_path(path: str) -> str:
    """Where a file of the repository is in the site."""
    return {HOME: "index.md", CONTENTS: "pages.md"}.get(path, path.removeprefix("docs/"))


def repository_path(uri: str) -> str:
    """Where a page of the site is in the repository."""
    if uri in ("index.md", "pages.md"):
        return {"index.md": HOME, "pages.md": CONTENTS}[uri]
    return f"docs/{uri}" if (ROOT / "docs" / uri).exists() else uri
