"""`env add` over an environment that is there: what fails leaves it as it was, and what others use is not deleted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.cli.commands import env_add
from atropos_cli.errors import PluginError
from atropos_cli.foreign import store
from atropos_cli.foreign.family import Family
from atropos_cli.foreign.process import Dialect

Cli = Callable[..., Any]
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
BACKEND = '''
"""A wheel without a module, made without any package."""
import zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    files = {
        "METADATA": "Metadata-Version: 2.1\\nName: %(name)s\\nVersion: %(version)s\\n",
        "WHEEL": "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    with zipfile.ZipFile(f"{folder}/%(name)s-%(version)s-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(f"%(name)s-%(version)s.dist-info/{path}", text)
        records = "".join(f"%(name)s-%(version)s.dist-info/{path},,\\n" for path in (*files, "RECORD"))
        wheel.writestr("%(name)s-%(version)s.dist-info/RECORD", records)
    return "%(name)s-%(version)s-py3-none-any.whl"
'''


@pytest.fixture
def project(tmp_path: Path, atropos_clean: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """project("framework", "1.1") -> a folder to install, of a framework whose environments 1.2 cannot be imported."""

    def folder(name: str, version: str) -> Path:
        made = tmp_path / f"{name}-{version}"
        made.mkdir(exist_ok=True)
        (made / "pyproject.toml").write_text(PROJECT)
        (made / "backend.py").write_text(BACKEND % {"name": name, "version": version})
        return made

    def make(rest: str) -> type[Any]:
        record = store.find("some", rest)
        assert record is not None
        if record.versions["framework"] == "1.2":
            raise PluginError("it cannot be imported")
        return Family

    dialect = Dialect("some", Path(__file__), ("framework",))
    shared = (str(folder("framework", "1.0")),)
    family = Family(dialect, shared, make, str, installs=lambda source: (source,))
    monkeypatch.setattr(env_add, "_family", lambda session, name: family)
    return folder


def test_one_that_cannot_be_used_leaves_the_earlier_one(cli: Cli, project: Callable[..., Path]) -> None:
    first = project("framework", "1.1")
    assert cli("env", "add", "some", "mine", "--from", first).code == 0
    before = store.find("some", "mine")
    assert before is not None
    for name, version, said in (("framework", "1.2", "cannot be imported"), ("else", "1", "lacks framework")):
        for chosen in ("mine", "new"):
            failed = cli("env", "add", "some", chosen, "--from", project(name, version))
            assert (failed.code in (2, 4), said in failed.stderr) == (True, True), failed.stderr
        assert store.find("some", "mine") == before
        site = Path(before.python).parent.parent / "lib"
        assert [path.name for path in site.rglob("framework-*")] == ["framework-1.1.dist-info"]
        assert store.find("some", "new") is None
        assert not store.venv_folder("some", "new").exists()
    assert sorted(item.name for item in (store.folder() / "some" / "mine").iterdir()) == ["record.json", "venv"]


def test_a_python_that_others_run_in_is_not_deleted(cli: Cli, project: Callable[..., Path]) -> None:
    assert cli("env", "add", "some").code == 0
    python = store.venv_folder("some", "default") / "bin" / "python"
    store.save(store.Added(dialect="some", name="mine", source="x", python=str(python)))
    assert cli("env", "add", "some", "own", "--from", project("framework", "1.1")).code == 0
    other = store.venv_folder("some", "own") / "bin" / "python"
    refused = cli("env", "add", "some", "--python", other)
    assert (refused.code, "some:mine run in its Python" in refused.stderr) == (2, True)
    assert python.exists()
    assert cli("env", "add", "some", "--python", python).code == 0, "it names the Python that is there"
    assert python.exists()


def test_the_name_of_the_python_for_all_is_no_name(cli: Cli, project: Callable[..., Path]) -> None:
    refused = cli("env", "add", "some", "default", "--from", sys.executable)
    assert (refused.code, "without a name" in refused.stderr) == (2, True)
