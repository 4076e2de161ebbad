"""`atropos export verifiers`: the package that is written, and the environments that cannot be exported."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_a_package_names_the_environment_and_its_options(cli: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / "sums"
    ended = cli("export", "verifiers", "arithmetic", "--difficulty", "hard", "--package", "hard-sums", "-o", folder)
    assert ended.code == 0, ended.stderr
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["name"] == "hard-sums"
    assert {"atropos-arithmetic", "atropos-verifiers", "verifiers>=0.4,<0.5"} <= {*project["dependencies"]}
    code = (folder / "hard_sums" / "__init__.py").read_text()
    assert {"arithmetic", "hard", "AtroposTaskset"} <= {
        node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant)
    }
    again = cli("export", "verifiers", "arithmetic", "-o", folder)
    assert (again.code, "exists already" in again.stderr) == (2, True)


def test_environments_with_tools_are_refused(cli: Callable[..., Any], tmp_path: Path) -> None:
    ended = cli("export", "verifiers", "tools-demo", "-o", tmp_path / "x")
    assert (ended.code, "an environment with tools" in ended.stderr) == (2, True)
    odd = cli("export", "verifiers", "arithmetic", "--package", "Not A Name", "-o", tmp_path / "x")
    assert (odd.code, "cannot be the name of a package" in odd.stderr) == (2, True)
