"""The core alone, installed from its wheel, then its plugins one after another: each adds its own and changes no more.

Dependencies are those of the environment that runs the tests, linked without any distribution of ours.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))
SCRIPTED = ("--backend", "scripted", "--backend.replies", "odd", "--backend.replies", "even")
PARITY = """
from atropos_cli.sdk import Environment, Task, TaskStream, reward, user

@reward
def right(task, rollout) -> float:
    return float(rollout.text.strip().lower() == task.answer)

class Parity(Environment):
    name = "parity"
    rewards = (right,)

    def tasks(self, split):
        return TaskStream(lambda i: Task(
            id=f"{split}-{i}", prompt=(user(f"Is {i} even or odd?"),), answer="odd" if i % 2 else "even"))
"""

pytestmark = pytest.mark.slow


class Bare:
    """An environment with the dependencies and nothing of this repository; commands run in an empty folder."""

    def __init__(self, folder: Path, dist: Path) -> None:
        self.folder, self.work, self.dist = folder, folder / "work", dist
        self.work.mkdir()
        venv.create(folder / "venv", symlinks=True)
        self.python = folder / "venv" / "bin" / "python"
        (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
        for place in (Path(item) for item in sys.path if Path(item).name == "site-packages"):
            for item in sorted(place.iterdir()):
                link = packages / item.name
                if "atropos" not in item.name and item.suffix != ".pth" and not link.exists():
                    link.symlink_to(item)

    def install(self, project: Path) -> None:
        name = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
        (wheel,) = self.dist.glob(f"{name.replace('-', '_')}-*.whl")
        command = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "--no-index", str(wheel)]
        done = subprocess.run(
            [*command, "-q", "--disable-pip-version-check", "--no-deps"], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

    def atropos(self, *words: str, code: int = 0) -> str:
        """Both outputs of a command that must end with `code`."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("ATROPOS_", "PYTHON"))}
        environment = {**kept, "HOME": str(self.folder), "COLUMNS": "200"}
        command = [str(self.python), "-m", "atropos_cli", *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.work, env=environment, timeout=120)
        assert done.returncode == code, f"{' '.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def commands(self, *group: str) -> set[str]:
        """The rows of the help that list commands and options; a longer name in a section moves the column of texts."""
        names = re.compile(r"  (\S.*?)(?:  |$)")
        return {
            found[1].strip() for line in self.atropos(*group, "--help").splitlines() if (found := names.match(line))
        }

    def plugins(self) -> dict[str, Any]:
        return json.loads(self.atropos("plugins", "list", "--json"))


def test_the_core_alone_and_plugins_one_by_one(dist: Path, tmp_path: Path) -> None:
    here = Bare(tmp_path, dist)
    here.install(ROOT)
    _check_core(here)
    commands, listed = here.commands(), here.plugins()
    assert [plugin["dist"] for plugin in listed["plugins"]] == ["atropos-cli"]
    assert listed["commands"] == []
    for plugin in PLUGINS:
        points = tomllib.loads((plugin / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
        here.install(plugin)
        more_commands, more = here.commands(), here.plugins()
        assert commands <= more_commands
        added = {tuple(name.split(".")) for name in points.get("atropos.commands", ())}
        assert {(name,) for name in more_commands - commands} == {words for words in added if len(words) == 1}
        for group, name in (words for words in added if len(words) == 2):
            assert name in here.commands(group)
        for kind in ("plugins", "commands"):
            new = [row for row in more[kind] if row not in listed[kind]]
            assert [row for row in more[kind] if row not in new] == listed[kind], plugin.name
            assert {row["dist"] for row in new} <= {plugin.name}
            assert all(row.get("state", "ok") == "ok" for row in new), new
        assert {row["name"] for row in more["plugins"]} - {row["name"] for row in listed["plugins"]} == set(
            points.get("atropos", ())
        )
        commands, listed = more_commands, more
    assert "result: ok" in here.atropos("env", "check", "./parity.py:Parity", "--limit", "4")
    here.atropos("new", "environment", "maze")
    assert (here.work / "atropos-maze" / "src" / "atropos_maze" / "environment.py").exists()
    assert "4 groups" in here.atropos("view", "runs/parity", "--export", "page.html")
    assert "mean reward" in here.atropos("analyze", "runs/parity", "--html", "report.html")
    assert "<svg" in (here.work / "report.html").read_text(encoding="utf-8")
    here.atropos(
        "eval", "./parity.py:Parity", *SCRIPTED, "--limit", "2", "--track", "tensorboard", "-o", "runs/tracked"
    )
    assert list((here.work / "runs" / "tracked" / "tensorboard").iterdir())


def _check_core(here: Bare) -> None:
    """What the core does by itself, and how it names what is not there."""
    (here.work / "parity.py").write_text(PARITY, encoding="utf-8")
    env = "./parity.py:Parity"
    here.atropos("gen", env, *SCRIPTED, "--limit", "4", "--group-size", "2", "--output", "runs/parity")
    assert "accuracy" in here.atropos("eval", env, *SCRIPTED, "--limit", "4", "--output", "runs/judged")
    here.atropos("score", "runs/parity", "--reward", "exact_match", "-o", "scored.jsonl")
    here.atropos("filter", "runs/parity", "--min-score", "1", "-o", "good.jsonl")
    here.atropos("sft-gen", "runs/parity", "-o", "sft.jsonl")
    here.atropos("dpo-gen", "runs/parity", "-o", "pairs.jsonl")
    for name in ("scored", "good", "sft", "pairs"):
        assert (here.work / f"{name}.jsonl").read_text(encoding="utf-8").count("\n") >= 1, name
    assert "pip install atropos-view" in here.atropos("view", "runs/parity", code=4)
    for words in (("env", "check", env), ("plugins", "check"), ("new", "environment", "maze")):
        assert "pip install atropos-authoring" in here.atropos(*words, code=4)
    assert "pip install atropos-hub" in here.atropos(
        "sft-gen", "runs/parity", "-o", "pushed.jsonl", "--push-to-hub", "me/sums", code=4
    )
    assert not (here.work / "pushed.jsonl").exists()
    for name, plugin in (
        ("push", "hub"),
        ("pipeline", "pipeline"),
        ("journal", "tracking"),
        ("reevaluate", "tracking"),
    ):
        assert f"pip install atropos-{plugin}" in here.atropos(name, "x", "y", code=4)
    assert "pip install atropos-textworld" in here.atropos("gen", "textworld", "--backend", "scripted", code=4)
    assert "atropos-tracking" in here.atropos(
        "gen", env, *SCRIPTED, "--limit", "1", "--track", "tensorboard", "--output", "runs/t", code=4
    )
