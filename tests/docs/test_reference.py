"""The reference is what the code says today, and nothing in the docs points nowhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def test_generated_pages_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, DOCS / "generate.py", "--check"], capture_output=True, text=True)
    if "not installed: " in done.stderr:
        pytest.skip(done.stderr.splitlines()[0])
    assert done.returncode == 0, done.stderr


def test_sdk_names_are_the_documented_ones() -> None:
    """`__all__` of each module is importable, and exactly the list in docs/reference/sdk.md: a change is a decision."""
    import pkgutil
    from importlib import import_module

    from atropos_cli import sdk

    page = (DOCS / "reference" / "sdk.md").read_text()
    sections = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    names = {sdk.__name__, *(f"{sdk.__name__}.{item.name}" for item in pkgutil.iter_modules(sdk.__path__))}
    assert set(sections) == names
    seen: list[str] = []
    for name in names:
        module = import_module(name)
        assert re.findall(r"^### (\w+)$", sections[name], re.MULTILINE) == list(module.__all__)
        assert all(getattr(module, public) is not None for public in module.__all__)
        seen += module.__all__
    assert len(seen) == len(set(seen)), "a name has one place"


def test_a_name_that_moved_is_found_at_its_old_place_with_a_warning() -> None:
    from atropos_cli import sdk
    from atropos_cli.sdk.backends import Generation

    with pytest.warns(DeprecationWarning, match=r"Generation is now atropos_cli\.sdk\.backends\.Generation"):
        assert sdk.Generation is Generation
    with pytest.raises(AttributeError, match="no attribute 'Generatoin'"):
        _ = sdk.Generatoin
    for module, moved in sdk._MOVED.items():
        assert set(moved.split()) <= set(__import__(f"atropos_cli.sdk.{module}", fromlist=["*"]).__all__)


def test_run_folder_page_names_every_file_of_a_run(cli: Any, tmp_path: Path) -> None:
    """Plays a run with failures and resumes it, and looks for each file's name on the page."""
    (tmp_path / "env.py").write_text(
        "from atropos_cli.sdk import Environment, Task, reward, user\n"
        "@reward\ndef odd(task, rollout):\n    return {'0': 0.0}[task.id]\n"
        "class Mine(Environment):\n    name = 'mine'\n    rewards = (odd,)\n"
        "    def tasks(self, split):\n        return [Task(id=str(i), prompt=(user('x'),)) for i in range(2)]\n"
    )
    run = tmp_path / "run"
    args = ("gen", f"{tmp_path}/env.py:Mine", "--backend", "scripted", "--backend.replies", "a", "--output", str(run))
    result = cli(*args)
    assert result.code == 1, result.stderr
    (run / "groups.jsonl").open("ab").write(b'{"torn":')
    assert cli(*args, "--resume").code in (0, 1)
    files = {path.name for path in run.iterdir()}
    assert {"plan.json", "groups.jsonl", "failures.jsonl", "summary.json", "log.jsonl"} <= files
    page = (DOCS / "reference" / "run-folder.md").read_text()
    missing = {name for name in files if f"`{name}`" not in page}
    assert not missing


def test_readme_names_every_command() -> None:
    from atropos_cli.cli.app import COMMANDS

    rows = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| `atropos ")]
    words = {word for line in rows for word in re.findall(r"[\w-]+", line.split("|")[1])}
    assert not {word for name in COMMANDS for word in name.split()} - words


def test_readme_and_pages_link_to_files_that_exist() -> None:
    broken = []
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md"), *ROOT.glob("examples/*/README.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)} -> {target}")
    assert not broken


def test_every_page_is_in_a_table_of_contents() -> None:
    listed = set()
    for index in DOCS.rglob("index.md"):
        for block in re.findall(r"```\{toctree\}\n(.*?)```", index.read_text(), re.DOTALL):
            listed |= {
                (index.parent / line.strip()).resolve() for line in block.splitlines() if line and line[0] not in ":\n"
            }
    pages = {page.with_suffix("") for page in DOCS.rglob("*.md") if "_build" not in page.parts}
    assert pages - listed - {DOCS / "index"} == set()
