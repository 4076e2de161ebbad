"""Every --help ends with examples, and each of them is a command line that the program takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_parse import parse

from atropos_cli.cli.app import COMMANDS, root_group
from atropos_cli.cli.examples import EXAMPLES, examples_of
from atropos_cli.console.session import Session
from atropos_cli.errors import AtroposError


@pytest.fixture(autouse=True)
def files(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("my_env.py").write_text("from atropos_authoring.digits import Digits as MyEnv\n")
    Path("my_reward.py").write_text(
        "from atropos_cli.sdk import reward\n@reward\ndef mine(task, rollout):\n    return 1.0\n"
    )
    Path("cluster.toml").write_text('[slurm]\nprofile = "a"\n[slurm.profiles.a]\npartition = "p"\n')
    monkeypatch.setenv("ATROPOS_BASE_URL", "http://127.0.0.1:9/v1")  # nothing is looked for


@pytest.mark.parametrize("path", EXAMPLES)
def test_the_parser_takes_each_example(path: str) -> None:
    for line in EXAMPLES[path]:
        try:
            parse(line.replace("{env}", "arithmetic"))
        except AtroposError as error:  # for the name of the line
            raise AssertionError(f"{line}: {error}") from error


def groups(command: Any, context: Any, path: str) -> list[str]:
    """The paths of a command and of those in it that are known without an environment."""
    found = [path]
    context = type(context)(command, parent=context, info_name=path.split()[-1])
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        if hasattr(command, "action") and path != "atropos train":
            return found  # one for each environment
        inner = command.get_command(context, name)
        found += groups(inner, context, f"{path} {name}")
    return found


def test_every_command_has_two_to_four_examples() -> None:
    root = root_group()
    context = root.make_context("atropos", ["doctor"], obj=Session())
    paths = [
        path
        for name in COMMANDS
        if " " not in name  # found in its group
        for path in groups(root.get_command(context, name), context, f"atropos {name}")
        if path != "atropos pipeline step"  # jobs call it, people do not
    ]
    assert len(paths) > 45
    for path in [*paths, "atropos", "atropos gen arithmetic", "atropos env check arithmetic"]:
        assert 2 <= len(examples_of(path)) <= 4, path


def test_help_shows_them(cli: Any) -> None:
    text = cli("gen", "arithmetic", "--help").stdout
    for line in examples_of("atropos gen arithmetic"):
        assert f"  {line}\n" in text
    assert "Examples:\n" in cli("slurm", "logs", "--help").stdout
