"""Fragments of the changelog have the form that `.ci/changelog` assembles."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """What the script needs of the repository, in a folder of its own."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "changelog", tmp_path / ".ci")
    shutil.copy(ROOT / "CHANGELOG.md", tmp_path)
    (tmp_path / "changes").mkdir()
    return tmp_path


def release(copy: Path) -> subprocess.CompletedProcess[str]:
    script = [sys.executable, str(copy / ".ci" / "changelog"), "9.8.7", "2030-01-02"]
    return subprocess.run(script, capture_output=True, text=True)


def test_the_fragments_of_the_repository_make_a_section(copy: Path) -> None:
    before = (copy / "CHANGELOG.md").read_text()
    shutil.copytree(ROOT / "changes", copy / "changes", dirs_exist_ok=True)
    fragments = [path for path in (copy / "changes").iterdir() if path.name != "README.md"]
    done = release(copy)
    assert done.returncode == 0, done.stderr
    new, older = (copy / "CHANGELOG.md").read_text().split("\n## 0.1.0")
    assert new.count("\n- ") == len(fragments)
    assert "\n## 9.8.7 (2030-01-02)\n" in new
    assert before.endswith("\n## 0.1.0" + older)
    assert [path.name for path in (copy / "changes").iterdir()] == ["README.md"]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("new.md", "A thing is new.", "NAME.KIND.md"),
        ("new.feature.md", "A thing is new.", "NAME.KIND.md"),
        ("New Thing.added.md", "A thing is new.", "NAME.KIND.md"),
        ("new.added.md", "", "one sentence"),
        ("new.added.md", "- A thing is new.", "one sentence"),
        ("new.added.md", "A thing is new", "one sentence"),
        ("new.added.md", "A thing is very new. " * 20, "one sentence"),
    ],
)
def test_a_fragment_of_another_form_is_refused(copy: Path, name: str, text: str, problem: str) -> None:
    before = (copy / "CHANGELOG.md").read_text()
    (copy / "changes" / name).write_text(text + "\n")
    done = release(copy)
    assert done.returncode == 1
    assert f"error: {name}" in done.stderr
    assert problem in done.stderr
    assert (copy / "CHANGELOG.md").read_text() == before
