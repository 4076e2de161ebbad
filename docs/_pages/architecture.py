"""The rooms of the core, as the import-linter contract lists them, written into the page on the architecture."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
BEGIN, END = "<!-- rooms: written by docs/generate.py -->\n", "<!-- end of rooms -->"


def pages() -> Iterator[tuple[str, str]]:
    """The hand-written page with its picture of the layers renewed."""
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"{PAGE.name} lacks the line {BEGIN!r}"
    assert end, f"{PAGE.name} lacks the line {END!r}"
    yield "../explanation/architecture.md", f"{before}{BEGIN}\n{_picture()}\n{END}{after}"


def _picture() -> str:
    """A table with a row per room, from the top layer to the bottom."""
    rows = ["| layer | room | contents | lines |", "|---|---|---|---|"]
    all_layers = layers()
    for place, layer in enumerate(all_layers):
        rows += [f"| {len(all_layers) - place} | `{room}` | {purpose(room)} | {lines(room)} |" for room in layer]
    return "\n".join(rows) + "\n"


def lines(room: str) -> int:
    """Lines of Python in a room, rounded up to hundreds, so that small changes leave the page alone."""
    path = ROOT / "atropos_cli" / room
    files = path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]
    return -(-sum(file.read_text(encoding="utf-8").count("\n") for file in files) // 100) * 100


def layers() -> list[list[str]]:
    """Rooms by layer, from top to bottom, in the order of the contract."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (contract,) = [one for one in contracts if one["type"] == "layers"]
    return [[room.strip() for room in layer.split("|")] for layer in contract["layers"]]


def purpose(room: str) -> str:
    """The first line of a room's docstring."""
    path = ROOT / "atropos_cli" / room
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    return text.split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
