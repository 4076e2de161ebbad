"""The walks on the page about the architecture lead from file to file."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
MOST = {"atropos gen": 10, "atropos train grpo": 12, "atropos slurm submit": 9}


def walks() -> dict[str, list[tuple[str, str]]]:
    """(file, role) of each row, by command."""
    found = {}
    for section in PAGE.split("\n### ")[1:]:
        rows = re.findall(r"^\| `([^`]+\.py)` \| (.*) \|$", section, re.MULTILINE)
        found[section.splitlines()[0].strip("`")] = rows
    return found


def path_of(name: str) -> Path:
    return ROOT / name if name.startswith("plugins/") else ROOT / "atropos_cli" / name


def module_of(path: Path) -> str:
    inside = path.relative_to(ROOT).with_suffix("").as_posix()
    return inside.rpartition("/src/")[2].replace("/", ".")


@cache
def imported(path: Path) -> frozenset[str]:
    """Modules that a file imports, at its top or in a function; names that the sdk offers count as their module."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    if path.parent.name != "sdk":
        for module in sorted(found):
            if module == "atropos_cli.sdk" or module.startswith("atropos_cli.sdk."):
                file = ROOT.joinpath(*module.split("."))
                file = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
                found |= imported(file) if file.exists() else set()
    return frozenset(found)


def is_component(module: str) -> bool:
    """Does a manifest name a component of this module, or the loader of commands a command?"""
    manifests = [
        ROOT / "atropos_cli" / "cli" / "lazy.py",
        *ROOT.glob("atropos_cli/builtin/__init__.py"),
        *ROOT.glob("plugins/*/src/*/__init__.py"),
    ]
    return any(f'"{module}:' in manifest.read_text(encoding="utf-8") for manifest in manifests)


def test_the_page_has_the_walks() -> None:
    assert {command: len(rows) <= MOST[command] for command, rows in walks().items()} == dict.fromkeys(MOST, True)
    assert all(len(rows) >= 6 for rows in walks().values())


@pytest.mark.parametrize(
    ("command", "index"), [(command, index) for command, rows in walks().items() for index in range(len(rows))]
)
def test_each_file_is_reached_from_one_above_it(command: str, index: int) -> None:
    from atropos_cli.cli.app import COMMANDS

    name, role = walks()[command][index]
    module = module_of(path_of(name))
    assert path_of(name).is_file()
    if index == 0:
        assert name == "cli/app.py"
    elif role.endswith(", by name"):
        assert is_component(module)
    elif index == 1:
        assert command.split()[1] in COMMANDS
        assert path_of(name).stem in (command.split()[1], "commands")
    else:
        above = [path_of(earlier) for earlier, _ in walks()[command][:index]]
        assert any(module in imported(path) for path in above), f"no file above imports {name}"
