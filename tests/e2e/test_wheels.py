"""The distributions as users get them: wheels, in an empty environment, outside the checkout.

Once for the oldest and once for the newest supported Python. Extras stay out: what they bring is the same as in the
suite's own environment, and much larger.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = [ROOT / "pyproject.toml", *sorted(ROOT.glob("plugins/*/pyproject.toml"))]
OLDEST, NEWEST = "3.11", "3.13"
NEED_EXTRAS = {
    "backend local": "atropos-local[torch]",
    "trainer tinker": "atropos-tinker[tinker]",
    "trainer trl": "atropos-trl[train]",
}

# Of whoever runs the tests, not of the test's own home: else each Python downloads all dependencies again.
PIP_CACHE = os.environ.get("PIP_CACHE_DIR") or str(
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pip"
)

pytestmark = pytest.mark.slow


def interpreter(version: str) -> str:
    """A Python of that version: this one, one on the PATH, or one that pyenv keeps; else the test is skipped."""
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [sys.executable, shutil.which(f"python{version}"), *kept.glob(f"{version}.*/bin/python")]
    for candidate in map(str, filter(None, found)):
        asked = subprocess.run(
            [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True
        )
        if asked.stdout.decode().strip() == version:
            return candidate
    pytest.skip(f"no Python {version} on this machine")


def test_what_an_index_shows_of_each(dist: Path) -> None:
    wheels = sorted(dist.glob("*.whl"))
    assert len(wheels) == len(PROJECTS)
    assert len(list(dist.glob("*.tar.gz"))) == len(PROJECTS)
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            metadata = archive.read(next(name for name in names if name.endswith(".dist-info/METADATA"))).decode()
        fields = HeaderParser().parsestr(metadata)
        assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names), wheel.name
        assert any(name.endswith("/py.typed") for name in names), wheel.name
        assert not [n for n in names if "tests" in Path(n).parts[:2]], wheel.name
        labels = {url.partition(",")[0] for url in fields.get_all("Project-URL") or []}
        assert labels == {"Homepage", "Documentation", "Source", "Issues", "Changelog"}, wheel.name
        assert "Programming Language :: Python :: 3.13" in (fields.get_all("Classifier") or []), wheel.name
        text = fields.get_payload()
        assert isinstance(text, str)
        assert len(text) > 200, wheel.name
        relative = re.findall(r"\]\((?!https?://|#)[^)]*\)", text)
        assert not relative, f"{wheel.name}: an index page cannot follow {relative}"


class Installed:
    """An environment that holds wheels and nothing of this checkout; commands run in an empty folder."""

    def __init__(self, python: str, folder: Path, dist: Path) -> None:
        self.folder, self.dist = folder, dist
        self.bin = folder / "venv" / "bin"
        self.work = folder / "work"
        self.work.mkdir()
        subprocess.run([python, "-m", "venv", str(folder / "venv")], check=True)

    def install(self, *wheels: str) -> None:
        command = [str(self.bin / "python"), "-m", "pip", "install", "-q", "--no-compile"]
        command += ["--disable-pip-version-check", "--find-links", str(self.dist), *wheels]
        environment = {**os.environ, "PIP_CACHE_DIR": PIP_CACHE}
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.work, env=environment)
        assert done.returncode == 0, done.stderr

    def atropos(self, *arguments: str, code: int = 0) -> str:
        """The standard output of a command that must end with `code`."""
        keep = {name: value for name, value in os.environ.items() if not name.startswith(("ATROPOS_", "PYTHON"))}
        environment = {**keep, "HOME": str(self.folder), "PATH": f"{self.bin}:{os.environ['PATH']}"}
        command = [str(self.bin / "atropos"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.work, env=environment, timeout=300)
        assert done.returncode == code, f"{' '.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr


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


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_wheels_in_an_empty_environment(version: str, dist: Path, tmp_path: Path) -> None:
    here = Installed(interpreter(version), tmp_path, dist)
    (core,) = dist.glob("atropos_cli-*.whl")
    here.install(str(core))
    (here.work / "parity.py").write_text(PARITY, encoding="utf-8")
    scripted = ("--backend", "scripted", "--backend.replies", "odd", "--backend.replies", "even")
    here.atropos("gen", "./parity.py:Parity", *scripted, "--limit", "4", "--output", "runs/parity")
    here.atropos("filter", "runs/parity", "-o", "good.jsonl", "--min-score", "1")
    here.atropos("sft-gen", "runs/parity", "-o", "sft.jsonl")
    assert "pip install atropos-view" in here.atropos("view", "runs/parity", code=4)
    assert "pip install atropos-slurm" in here.atropos("slurm", "list", code=4)
    assert "pip install atropos-textworld" in here.atropos("gen", "textworld", "--backend", "scripted", code=4)

    here.install(*map(str, dist.glob("*.whl")))
    here.atropos("new", "environment", "maze")
    checked = here.atropos("plugins", "check", code=4)
    broken = [line.split(": ", 1)[1] for line in checked.splitlines() if line.startswith("BROKEN")]
    assert sorted(broken) == sorted(NEED_EXTRAS), checked
    assert all(f"pip install '{extra}'" in checked for extra in NEED_EXTRAS.values()), checked
    here.atropos("slurm", "submit", "--dry-run", "--", "gen", "./parity.py:Parity", *scripted, "--output", "runs/p")
    listed = json.loads(here.atropos("plugins", "list", "--json"))
    shown = json.dumps(listed)
    assert all(file.parent.name in shown for file in PROJECTS[1:]), shown
    played = ("--backend", "textworld-admissible-random", "--difficulty", "easy", "--max-steps", "8")
    here.atropos("gen", "textworld", *played, "--limit", "2", "--group-size", "4", "--output", "runs/games")
    here.atropos(
        "gen", "reasoning-gym", "--families", "basic_arithmetic", *scripted, "--limit", "1", "--output", "runs/rg"
    )
    assert "groups" in here.atropos("analyze", "runs/games")
    here.atropos("view", "runs/games", "--export", "page.html")
