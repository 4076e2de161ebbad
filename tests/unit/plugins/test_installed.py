"""With the real pip: what is installed shows up, what is uninstalled is gone."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

FIXTURES = Path(__file__).parents[2] / "plugins_fixture"

LIST = """
import json
from atropos_cli.plugins.discovery import command_entry_points, load_registry
registry = load_registry()
print(json.dumps({
    "environments": [item.qualified for item in registry.registrations("environment")],
    "commands": sorted(command_entry_points()),
    "failures": [failure.message + " | " + str(failure.hint) for failure in registry.failures],
}))
"""


@pytest.fixture
def python(tmp_path):
    """The python of a new virtual environment that also sees what is installed here."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    inner = venv / "bin" / "python"
    where = subprocess.run(
        [inner, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    # addsitedir, so that editable installations are seen too.
    here = sysconfig.get_path("purelib")
    (Path(where.stdout.strip()) / "outer.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    return inner


def listing(python: Path) -> dict[str, list[str]]:
    done = subprocess.run([python, "-c", LIST], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.slow
def test_install_and_uninstall(python):
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", str(python)]
    install = [*pip, "install", "--no-deps", "--no-build-isolation", "--no-index"]
    assert "atropos-fixture-good/letters" not in listing(python)["environments"]

    subprocess.run([*install, str(FIXTURES / "good"), str(FIXTURES / "ghost")], check=True, timeout=300)
    found = listing(python)
    assert "atropos-fixture-good/letters" in found["environments"]
    assert "good-hello" in found["commands"]
    (ghost,) = [failure for failure in found["failures"] if "atropos-fixture-ghost" in failure]
    assert "ghost_pkg" in ghost
    assert "pip uninstall atropos-fixture-ghost" in ghost
    assert str(python.parents[1]) in ghost

    names = ["atropos-fixture-good", "atropos-fixture-ghost"]
    subprocess.run([*pip, "uninstall", "--yes", *names], check=True, timeout=300)
    found = listing(python)
    assert "atropos-fixture-good/letters" not in found["environments"]
    assert not any("ghost" in failure for failure in found["failures"])
