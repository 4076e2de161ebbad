"""The first page of the docs: every page is one click away, and stands in the contents of its section."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(
    path.relative_to(DOCS).as_posix()
    for path in DOCS.glob("*/*.md")
    if path.name != "index.md" and path.parent.name[0] != "_"
)
TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def contents(section: str) -> list[str]:
    """What the index of a section lists."""
    lines = "\n".join(TOCTREE.findall((DOCS / section / "index.md").read_text(encoding="utf-8"))).splitlines()
    return [line for line in lines if line and not line.startswith(":")]


@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_one_click_away(page: str) -> None:
    linked = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", (DOCS / "index.md").read_text(encoding="utf-8"))
    assert page in linked, f"docs/index.md has no link to {page}: add a row for what its reader wants to do"
    section, _, name = page.partition("/")
    assert contents(section).count(name.removesuffix(".md")) == 1, f"docs/{section}/index.md does not list {name}"


def test_guides_are_grouped_as_on_the_first_page() -> None:
    heads = re.findall(r"^## (.*)$", (DOCS / "index.md").read_text(encoding="utf-8"), re.MULTILINE)
    groups = re.findall(r"^:caption: (.*)$", (DOCS / "how-to" / "index.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert groups == [head for head in heads if head in groups]
    assert len(groups) in (4, 5)
