"""Each template that ships is made, installed by pip, and passes its own tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from atropos_authoring.manifest import shipped_templates
from atropos_authoring.scaffold import instantiate

NAMES = {"environment": "my-sums", "launcher": "plain-shell", "reward": "word-share", "trainer": "imitate-best"}


def test_every_template_has_a_case_here():
    assert {path.name for path in shipped_templates().iterdir() if path.is_dir()} == set(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(NAMES))
def test_a_template_installs_and_passes_its_own_tests(kind, tmp_path):
    project = tmp_path / "project"
    files = instantiate(shipped_templates() / kind, project, NAMES[kind])
    assert any(path.name == "py.typed" for path in files)
    for path in files:
        assert "emplate" not in f"{path.relative_to(project)} {path.read_text()}"
    target = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(target), str(project)], check=True, capture_output=True, timeout=300)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "-W", "error"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(target), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=900,  # the trainer's tests start torch seven times
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
    assert "failed" not in done.stdout


@pytest.mark.parametrize("kind", sorted(NAMES))
def test_a_template_is_valid_as_it_stands(kind):
    """Its own names are placeholders, so editors, linters and type checkers work on it."""
    for path in sorted((shipped_templates() / kind).rglob("*.py")):
        compile(path.read_text(), str(path), "exec")
    assert not list(Path(shipped_templates() / kind).rglob("*.orig"))
