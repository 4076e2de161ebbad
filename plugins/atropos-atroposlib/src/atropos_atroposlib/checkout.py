"""Environment classes in a folder, found by reading the sources: nothing of them is imported."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from atropos_cli.sdk import Config

BASES = frozenset({"BaseEnv", "TeacherDistillationEnv"})
_BASE_CONFIGS = frozenset({"BaseEnvConfig", "BaseModel"})
_LARGEST = 2_000_000
_SKIPPED = frozenset({".git", ".venv", "venv", "node_modules", "__pycache__"})
_ASK = """
import importlib.util, json, sys
def there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
print(json.dumps([name for name in json.load(sys.stdin) if not there(name)]))
"""


class Found(Config):
    """A class: FILE.py:CLASS, its own options, and the modules that it imports and its Python lacks."""

    source: str
    options: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    summary: str = ""


def scan(place: Path, python: str | None) -> list[Found]:
    """All classes below a path, by path. python: where to look for the modules that they import."""
    files = [place] if place.is_file() else sorted(_sources(place))
    trees = {file: tree for file in files if (tree := _parsed(file)) is not None}
    classes = {file: _classes(tree) for file, tree in trees.items()}
    bases = _environment_names(classes.values())
    imported = {file: sorted(_imported(trees[file])) for file in trees}
    found = []
    lacking = _lacking({name for names in imported.values() for name in names}, python)
    for file, known in classes.items():
        local = {item.stem for item in file.parent.glob("*.py")} | {item.name for item in file.parent.iterdir()}
        top = {item.name for item in place.iterdir()} if place.is_dir() else set()
        missing = tuple(name for name in imported[file] if name in lacking and name not in local | top)
        for name, node in known.items():
            if bases & set(_bases(node)):
                options = tuple(_options(node, known))
                doc = (ast.get_docstring(node) or "").partition("\n")[0]
                found.append(Found(source=f"{file}:{name}", options=options, missing=missing, summary=doc))
    return found


def _sources(place: Path) -> Iterator[Path]:
    for item in place.iterdir():
        if item.is_dir() and not item.is_symlink() and item.name not in _SKIPPED:
            yield from _sources(item)
        elif item.suffix == ".py":
            yield item


def _parsed(file: Path) -> ast.Module | None:
    try:
        if file.stat().st_size > _LARGEST:
            return None
        return ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def _classes(tree: ast.Module) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def _bases(node: ast.ClassDef) -> list[str]:
    return [base.id if isinstance(base, ast.Name) else base.attr for base in node.bases if _is_named(base)]  # type: ignore[attr-defined]


def _is_named(base: ast.expr) -> bool:
    return isinstance(base, ast.Name | ast.Attribute)


def _environment_names(files: Iterable[Mapping[str, ast.ClassDef]]) -> set[str]:
    """BaseEnv and, until no more are found, the classes that are derived from one of these names."""
    nodes = [(name, node) for known in files for name, node in known.items()]
    names = set(BASES)
    while True:
        more = {name for name, node in nodes if names & set(_bases(node))} - names
        if not more:
            return names
        names |= more


def _options(node: ast.ClassDef, known: Mapping[str, ast.ClassDef]) -> Iterator[str]:
    """The annotated fields of its config class, where that is in the same file."""
    for item in node.body:
        targets = item.targets if isinstance(item, ast.Assign) else [getattr(item, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "env_config_cls" for target in targets):
            value = getattr(item, "value", None)
            if isinstance(value, ast.Name) and value.id in known and value.id not in _BASE_CONFIGS:
                for field in known[value.id].body:
                    if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                        yield field.target.id


def _imported(tree: ast.Module) -> set[str]:
    """Top-level modules that the file imports when it is loaded: not those inside functions or try blocks."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names - sys.stdlib_module_names - {"__future__", "environments"}


def _lacking(names: set[str], python: str | None) -> set[str]:
    """Those that a Python does not have; none where there is no Python to ask."""
    if python is None or not names:
        return set()
    try:
        asked = subprocess.run(  # noqa: S603 - the Python that the user added
            [python, "-c", _ASK],
            input=json.dumps(sorted(names)),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return set(json.loads(asked.stdout))
    except (OSError, subprocess.SubprocessError, ValueError):
        return set()
