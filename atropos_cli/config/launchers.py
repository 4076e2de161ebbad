"""Profiles of launchers in the configuration, and which one is used.

[slurm]                      # or [tmux]; or [job], for whatever launcher --on names
profile = "big"
command = "gen textworld --limit 100"        # submitted where no command is given

[slurm.profiles.big]         # options of the launcher
partition = "gpu"
account = "proj1"
setup = ["module load cuda/12"]
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from atropos_cli.config.files import ConfigFile
from atropos_cli.config.problems import Origin
from atropos_cli.config.show import Row
from atropos_cli.config.sources import explicit_file, load_files, variable_origin
from atropos_cli.errors import ConfigError

JOB = "job"
"""The section for every launcher."""
FILE_KEYS = ("command", "profiles")
"""Keys of the section of a launcher, or of [job], that are not flags."""


def profile_variable(launcher: str) -> str:
    """The variable that names a launcher's profile: ATROPOS_SLURM_PROFILE."""
    return f"ATROPOS_{launcher.upper()}_PROFILE"


def launcher_profile(
    launcher: str, wanted: str | None, config: Path | None = None
) -> tuple[str | None, dict[str, Any]]:
    """(name, options) of a profile: the one asked for, else that of the variable, else `profile` in [LAUNCHER].

    A profile of the user's file is completed by one of the same name in the project's, one in [job] by one in
    [LAUNCHER]. Without any, (None, {}). Raises ConfigError for a name that no file has, and for a section of another
    shape.
    """
    default: str | None = None
    profiles: dict[str, dict[str, Any]] = {}
    for section, found in _sections((JOB, launcher), config):
        default = found.get("profile", default) if section == launcher else default
        for name, options in found.get("profiles", {}).items():
            profiles[name] = {**profiles.get(name, {}), **options}
    name = wanted or os.environ.get(profile_variable(launcher)) or default
    if name is None:
        return None, {}
    if name not in profiles:
        close = get_close_matches(name, profiles, n=1)
        known = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(sorted(profiles)) or 'none'}"
        places = f"[{launcher}.profiles.{name}] or [{JOB}.profiles.{name}]"
        raise ConfigError(f"there is no {shown(launcher)} profile {name!r}", hint=f"{known}; a profile is {places}")
    return name, profiles[name]


def shown(launcher: str) -> str:
    """A launcher in messages."""
    return "SLURM" if launcher == "slurm" else launcher


def described_in_files(launcher: str, config: Path | None = None) -> tuple[str, str] | None:
    """(section, command) to submit when no command is given: that of [LAUNCHER], else of [job]."""
    told = {section: found["command"] for section, found in _sections((JOB, launcher), config) if "command" in found}
    return next(((section, told[section]) for section in (launcher, JOB) if section in told), None)


def section_rows(section: str, config: Path | None = None) -> list[Row]:
    """Every key of a section that a file has, the variable for a launcher's profile among them; later files win."""
    found: dict[tuple[str, ...], Row] = {}
    for kind, file in load_files(explicit_file(config)):
        for keys, value in _leaves(_section(file, section)):
            path = (section, *keys)
            found[path] = Row(".".join(path), value, Origin(kind, file.shown, file.line(path)))
    variable = profile_variable(section)
    if os.environ.get(variable):
        key = (section, "profile")
        found[key] = Row(".".join(key), os.environ[variable], variable_origin(variable))
    return list(found.values())


def _leaves(tree: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value


def _sections(names: tuple[str, ...], config: Path | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """The sections of these names, of the files that apply; a later one wins, and a later file."""
    files = [file for _, file in load_files(explicit_file(config))]
    for name in dict.fromkeys(names):
        for file in files:
            yield name, _section(file, name)


def _section(file: ConfigFile, section: str) -> dict[str, Any]:
    found = file.tree.get(section, {})
    if not isinstance(found, dict) or not isinstance(found.get("profiles", {}), dict):
        raise ConfigError(f"{file.shown}: [{section}]: expected keys and the sections [{section}.profiles.NAME]")
    for name, options in found.get("profiles", {}).items():
        if not isinstance(options, dict):
            raise ConfigError(f"{file.shown}: [{section}.profiles.{name}]: expected a section with keys")
    for key in ("command", "profile"):
        if not isinstance(found.get(key, ""), str):
            raise ConfigError(f"{file.shown}: {section}.{key}: expected text")
    return found
