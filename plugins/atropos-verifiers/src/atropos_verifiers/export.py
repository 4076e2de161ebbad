"""`atropos export verifiers ENV`: a small package with which verifiers' own runner plays an environment of ours."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

from atropos_cli.sdk import GameEnvironment, UsageError
from atropos_cli.sdk.commands import ChosenEnvironment, CommandOptions, EnvironmentCommands, end, option, shell
from atropos_cli.sdk.tools import ToolEnvironment
from atropos_verifiers.source import FROM_04

_PROJECT = """[project]
name = {name}
version = "0.1.0"
description = {description}
requires-python = ">=3.11"
dependencies = {dependencies}

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
packages = [{module}]
"""
_MODULE = '''"""The environment {name} of atropos as a taskset of verifiers."""

from atropos_verifiers.exported import exported

AtroposTaskset, AtroposEnv = exported({name!r}, {options}, split={split!r}, seed={seed})

__all__ = ["AtroposEnv", "AtroposTaskset"]
'''


class ExportOptions(CommandOptions):
    """What the package is called, and which tasks are in it."""

    output: Path | None = option(None, "Folder of the package.  [default: its name]", short="o", metavar="FOLDER")
    package: str | None = option(
        None, "Name of the package, which verifiers loads it by.  [default: ENV-atropos]", metavar="NAME"
    )
    split: str | None = option(None, "Split of the tasks; default: the first one.")
    seed: int = option(0, "Seed given to open().")


def export(chosen: ChosenEnvironment, *, options: ExportOptions) -> None:
    """Write the package."""
    cls, registration = chosen.environment, chosen.registration
    if issubclass(cls, GameEnvironment | ToolEnvironment):
        kind = "a game" if issubclass(cls, GameEnvironment) else "an environment with tools"
        raise UsageError(f"{registration.name} is {kind}: only conversations can be exported to verifiers")
    if registration.dist is None:
        raise UsageError(
            f"{chosen.given_name} is in a file: a package needs one to install",
            hint=shell("new", "environment", "NAME"),
        )
    split = options.split or cls.splits[0]
    if split not in cls.splits:
        raise UsageError(f"{registration.name} has no split {split!r}", hint=f"splits: {', '.join(cls.splits)}")
    name = options.package or f"{registration.name.replace('_', '-')}-atropos"
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise UsageError(f"{name!r} cannot be the name of a package", hint="small letters, digits and -")
    module = name.replace("-", "_")
    folder = options.output or Path(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists already", hint="-o FOLDER names another one")
    needed = [FROM_04, *dict.fromkeys(("atropos-cli", "atropos-verifiers", registration.dist))]
    project = _PROJECT.format(
        name=json.dumps(name),
        description=json.dumps(f"The environment {registration.name} of atropos as a taskset of verifiers."),
        dependencies=json.dumps(needed),
        module=json.dumps(module),
    )
    code = _MODULE.format(name=registration.name, options=_literal(chosen.options), split=split, seed=options.seed)
    (folder / module).mkdir(parents=True)
    (folder / "pyproject.toml").write_text(project)
    (folder / module / "__init__.py").write_text(code)
    following = f"cd {shlex.quote(str(folder))} && pip install . && vf-eval {name} --env.agent.harness.id null"
    end(chosen.session.out, f"wrote {folder}", following)


def _literal(options: dict[str, Any]) -> str:
    """Options as Python code. They are JSON, with other words for three values."""
    return repr(json.loads(json.dumps(options, default=str)))


command = EnvironmentCommands(
    "export-verifiers", ExportOptions, export, "Write an environment as a package that verifiers' own runner plays."
)
