"""Pages and texts in code avoid the phrases that CONTRIBUTING.md lists under "Words"."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PHRASES = {
    "stand": r"\b(?:stands?|stood)\b(?! (?:alone|for|out)\b)",
    "is no": r"(?<!there )(?<!There )\b(?:is|are|was|were) no\b(?! (?:longer|more)\b)",
    "tell": r"\b(?:tells?|told)\b",
    "go on": r"\b(?:go|goes|gone|going|went) on\b",
    "begun": r"\b(?:begun|anew)\b",
    "carry out": r"\b(?:carry|carries|carried|carrying) (?:\w+ ){0,3}out\b",
    "so many": r"\bso (?:many|much) (?!that\b|as\b)",
    "pass over": r"\bpass(?:es|ed) over\b",
    "bare what": r"\b[Ww]hat (?:is|was|are|were|it|they|came|comes|has|had|remains|follows|stands|else)\b(?! [^.]*\?)",
    "nobody": r"\b(?:[Nn]obody|[Ww]hoever)\b",
}
"""How each phrase of the table in CONTRIBUTING.md is recognised, by the words in its first column."""

IN_CODE = {
    "stand": 108,
    "is no": 65,
    "tell": 105,
    "go on": 79,
    "begun": 33,
    "carry out": 47,
    "so many": 12,
    "pass over": 8,
    "bare what": 494,
    "nobody": 39,
}
"""The most that the code may have; pages have none. These numbers only go down: lower them when you remove some."""


def pages() -> list[Path]:
    """Hand-written pages: not those made from code, not the list of words itself."""
    made = "<!-- Made by docs/generate.py"
    found = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", *ROOT.glob("changes/*.md")]
    found += [
        *ROOT.glob("plugins/*/README.md"),
        *ROOT.glob("templates/*/README.md"),
        *ROOT.glob("examples/*/README.md"),
    ]
    return [path for path in sorted(found) if "_build" not in path.parts and made not in path.read_text("utf-8")[:100]]


def prose(path: Path) -> str:
    """A page without its blocks of code, inline code and tables that docs/generate.py writes."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!-- rooms.*?<!-- end of rooms -->", "", text, flags=re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


@cache
def texts_of_code() -> tuple[tuple[str, str], ...]:
    """(place, text) of every string with several words, docstrings included, in the core and the plugins."""
    found = []
    for path in [*ROOT.glob("atropos_cli/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.count(" ") >= 2:
                found.append((f"{path.relative_to(ROOT)}:{node.lineno}", node.value))
    return tuple(found)


def places(texts: list[tuple[str, str]], phrase: str) -> list[str]:
    pattern = re.compile(PHRASES[phrase])
    return [f"{place}: {match[0]}" for place, text in texts for match in pattern.finditer(text)]


@pytest.mark.parametrize("phrase", PHRASES)
def test_pages(phrase: str) -> None:
    found = places([(str(path.relative_to(ROOT)), prose(path)) for path in pages()], phrase)
    assert not found


@pytest.mark.parametrize("phrase", PHRASES)
def test_code(phrase: str) -> None:
    found = places(list(texts_of_code()), phrase)
    assert len(found) <= IN_CODE[phrase], "\n".join(found)


def test_the_table_has_every_phrase() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("\n## Words\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1].strip().strip('"') for line in page.splitlines() if line.startswith('| "')]
    assert rows == list(PHRASES)


@pytest.mark.parametrize(
    ("phrase", "text"),
    [
        ("stand", "the key stands in a variable"),
        ("is no", "a run that is no run"),
        ("tell", "the ending does not tell what to write"),
        ("go on", "a run that is gone on with"),
        ("begun", "a run that was begun there"),
        ("carry out", "every step is carried quickly out"),
        ("bare what", "look at what came out"),
    ],
)
def test_phrases_are_recognised(phrase: str, text: str) -> None:
    assert places([("here", text)], phrase)
    assert not places([("here", "There is no run, and no longer any question. An unfinished run is resumed.")], phrase)
