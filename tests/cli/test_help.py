"""Help is quick because it imports nothing heavy: judged by sys.modules, not by a clock (field case H06)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HEAVY = ("torch", "transformers", "datasets", "trl", "wandb", "vllm", "sglang", "textworld", "numpy")
PROBE = """
import json, sys
from atropos_cli.cli import app
sys.stdout = open({out!r}, "w")
code = app.run({args!r})
sys.stdout.flush()
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""


def modules_after(tmp_path: Path, *args: str) -> tuple[int, set[str], str]:
    """(exit code, imported modules, stdout) of a fresh interpreter that ran the command line."""
    out = tmp_path / "out.txt"
    code = PROBE.format(out=str(out), args=list(args))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    exit_code, modules = json.loads(done.stderr.splitlines()[-1])
    return exit_code, set(modules), out.read_text()


@pytest.mark.parametrize("args", [("--help",), ("--version",)])
def test_help_imports_nothing_heavy(tmp_path: Path, install: Callable[..., Any], args: tuple[str, ...]) -> None:
    install("loud-plugin", {"loud_plugin.py": "raise RuntimeError"}, {"atropos": {"loud": "loud_plugin"}})
    code, modules, text = modules_after(tmp_path, *args)
    assert code == 0
    assert text
    light = ("pydantic", "pydantic_core", "pydantic_settings", "httpx", "aiohttp", "rich", "pluggy", "yaml", "asyncio")
    assert not modules & {*HEAVY, *light, "loud_plugin", "atropos_cli.sdk", "atropos_cli.builtin"}
    assert not any(
        name.startswith(("atropos_cli.cli.commands.", "atropos_cli.rollout", "atropos_cli.domain")) for name in modules
    )


@pytest.mark.parametrize("args", [("plugins", "list"), ("env", "list"), ("gen", "--help"), ("config", "show")])
def test_lists_import_no_heavy_library(tmp_path: Path, args: tuple[str, ...]) -> None:
    code, modules, text = modules_after(tmp_path, *args)
    assert code == 0
    assert text
    assert not modules & set(HEAVY)


def test_help_names_every_command_and_each_can_be_loaded(cli: Any) -> None:
    from atropos_cli.cli.app import COMMANDS

    for name, command in COMMANDS.items():
        *group, last = name.split()
        text = cli(*group, "--help").stdout
        assert f"  {last}" in text
        assert command.summary.split(";")[0][:40] in " ".join(text.split())
        got = cli(*name.split(), "--help")
        assert got.code == 0
        assert f"Usage: atropos {name}" in got.stdout
        assert "--debug" in got.stdout
        assert "\x1b" not in got.stdout


def test_version_and_short_help(cli: Any) -> None:
    import atropos_cli

    assert cli("--version").stdout == f"atropos {atropos_cli.__version__}\n"
    assert cli("-h").stdout == cli("--help").stdout


@pytest.mark.parametrize(
    ("args", "message", "hint"),
    [
        (("gne",), "atropos has no command 'gne'", "did you mean"),
        (("plugins", "lsit"), "atropos plugins has no command 'lsit'", "did you mean list?"),
        (("--versoin",), "no such option: --versoin", "did you mean --version?"),
        (("run",), "missing argument 'PLAN'", "atropos run --help"),
        (("plugins", "list", "extra"), "got unexpected extra argument", "atropos plugins list --help"),
    ],
)
def test_usage_errors(cli: Any, args: tuple[str, ...], message: str, hint: str) -> None:
    got = cli(*args)
    assert got.code == 2
    assert got.stdout == ""
    lines = got.stderr.splitlines()
    assert lines[0].startswith(f"error: {message}")
    assert lines[1].startswith(f"hint: {hint}")


@pytest.mark.parametrize("args", [(), ("plugins",), ("gen",), ("env", "check")])
def test_a_group_alone_shows_its_help_on_stderr(cli: Any, args: tuple[str, ...]) -> None:
    got = cli(*args)
    assert got.code == 2
    assert got.stdout == ""
    assert got.stderr.startswith("Usage: atropos")


def test_completion_works(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from atropos_cli.cli.app import main; main()"],
        env={
            "_ATROPOS_COMPLETE": "complete_bash",
            "COMP_WORDS": "atropos ge",
            "COMP_CWORD": "1",
            "HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["gen"]
