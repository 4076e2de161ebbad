"""What `--from` may name, what is installed for it, and the module that it stands for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from atropos_verifiers.source import BEFORE_04, FROM_04, check_source, installs, module_of

from atropos_cli.sdk import UsageError

PROJECT = '[project]\nname = "My-Sums"\nversion = "1"\ndependencies = ["verifiers"]\n'


def test_a_package_of_an_index(tmp_path: Path) -> None:
    assert check_source("some-env==1.2") == "some-env==1.2"
    assert installs("some-env==1.2")[0] == "some-env==1.2"
    assert installs("some-env")[1].startswith("verifiers>=0.1.14")
    assert module_of("some-env[extra]>=1") == ("some_env", None)
    assert check_source("some-env>=1:some.inner") == "some-env>=1:some.inner"
    assert installs("some-env>=1:some.inner")[0] == "some-env>=1"
    assert module_of("some-env>=1:some.inner") == ("some.inner", None)


def test_a_folder_with_a_project_is_installed(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "my_sums.py").write_text("import verifiers as vf\ndef load_environment(): ...\n")
    source = check_source(str(tmp_path))
    assert installs(source) == (f"My-Sums @ {tmp_path.as_uri()}", BEFORE_04)
    assert module_of(source) == ("my_sums", None)
    (tmp_path / "my_sums.py").write_text("import verifiers.v1 as vf\n")
    assert installs(source)[1] == FROM_04


def test_a_file_and_a_folder_of_modules_run_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "sums.py").write_text("import verifiers.v1 as vf\n")
    assert installs(check_source(str(tmp_path / "sums.py"))) == (FROM_04,)
    assert module_of(str(tmp_path / "sums.py")) == ("sums", str(tmp_path))
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("from pack.env import load_environment\n")
    assert installs(check_source(str(tmp_path / "pack"))) == (BEFORE_04,)
    assert module_of(str(tmp_path / "pack")) == ("pack", str(tmp_path))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("./nowhere", "there is no"),
        ("two words", "neither a path"),
        ("-e", "neither a path"),
        ("", "neither a path"),
        ("a:1b", "neither a path"),
    ],
)
def test_what_is_no_source_is_named(source: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_source(source)


def test_an_empty_folder_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"neither a pyproject\.toml nor Python files"):
        check_source(str(tmp_path))


def test_the_prefix_alone_and_an_unknown_name(cli: Callable[..., Any]) -> None:
    alone = cli("gen", "verifiers", "--backend", "scripted", "--backend.replies", "x")
    assert (alone.code, "env add verifiers NAME --from SOURCE" in alone.stderr) == (3, True)
    unknown = cli("gen", "verifiers:sums", "--backend", "scripted")
    assert (unknown.code, "env add verifiers sums --from SOURCE" in unknown.stderr) == (3, True)
