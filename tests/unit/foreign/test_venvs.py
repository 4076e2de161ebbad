"""Virtual environments of foreign environments: their scripts run, and their sources are looked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from atropos_cli.foreign import venvs
from atropos_cli.foreign.store import Added, path_of

PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "greeter"
version = "1.2"
"""
BACKEND = '''
"""A wheel with one console script, made without any package."""
import zipfile

FILES = {
    "greeter.py": "import sys\\n\\ndef main():\\n    print('hello from', sys.prefix)\\n",
    "greeter-1.2.dist-info/METADATA": "Metadata-Version: 2.1\\nName: greeter\\nVersion: 1.2\\n",
    "greeter-1.2.dist-info/WHEEL": "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    "greeter-1.2.dist-info/entry_points.txt": "[console_scripts]\\ngreet = greeter:main\\n",
}

def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "greeter-1.2-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        for path, text in FILES.items():
            wheel.writestr(path, text)
        wheel.writestr("greeter-1.2.dist-info/RECORD", "".join(f"{path},,\\n" for path in FILES))
    return name
'''


def test_scripts_run_where_the_environment_is_in_the_end(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(PROJECT)
    (project / "backend.py").write_text(BACKEND)
    python = venvs.make(tmp_path / "venv", [str(project)], python=None, say=lambda text: None)
    assert python == str(tmp_path / "venv" / "bin" / "python")
    done = subprocess.run([tmp_path / "venv" / "bin" / "greet"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"hello from {tmp_path / 'venv'}\n")
    assert venvs.versions(python, ["greeter"])["greeter"] == "1.2"
    assert not (tmp_path / "venv.new").exists()


def test_what_cannot_be_installed_leaves_nothing(tmp_path: Path) -> None:
    from atropos_cli.errors import AtroposError

    with pytest.raises(AtroposError):
        venvs.make(tmp_path / "venv", [str(tmp_path / "nowhere")], python=None, say=lambda text: None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("/a/quiz.py:QuizEnv", "/a/quiz.py"),
        ("/a/quiz.py@mine", "/a/quiz.py"),
        ("/a/environment", "/a/environment"),
        ("package/task", None),
    ],
)
def test_the_file_of_a_source(source: str, path: str | None) -> None:
    assert path_of(source) == (None if path is None else Path(path))
    if path is not None:
        assert Added(dialect="x", name="y", python="/bin/sh", source=source).health == f"no file {path}"


def test_an_interpreter_is_not_a_virtual_environment(tmp_path: Path) -> None:
    made = venvs.make(tmp_path / "venv", (), python=sys.base_prefix + "/bin/python3", say=print)
    assert venvs.is_virtual(made)
    assert not venvs.is_virtual(sys.base_prefix + "/bin/python3")
