"""[slurm] of the configuration: profiles of clusters, and which one is used.

[slurm]
profile = "big"
command = "gen textworld --limit 100"        # what `atropos slurm submit` alone submits

[slurm.profiles.big]
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

VARIABLE = "ATROPOS_SLURM_PROFILE"


def slurm_profile(wanted: str | None, config: Path | None = None) -> tuple[str | None, dict[str, Any]]:
    """(name, options) of a profile: the one asked for, else ATROPOS_SLURM_PROFILE, else [slurm] profile.

    A profile of the user's file is completed by one of the same name in the project's. Without any, (None, {}).
    Raises ConfigError for a name that no file has, and for a section of another shape.
    """
    default: str | None = None
    profiles: dict[str, dict[str, Any]] = {}
    for _, file in load_files(explicit_file(config)):
        section = _section(file)
        default = section.get("profile", default)
        for name, options in section.get("profiles", {}).items():
            if not isinstance(options, dict):
                raise ConfigError(f"{file.shown}: [slurm.profiles.{name}]: expected a section with keys")
            profiles[name] = {**profiles.get(name, {}), **options}
    name = wanted or os.environ.get(VARIABLE) or default
    if name is None:
        return None, {}
    if name not in profiles:
        close = get_close_matches(name, profiles, n=1)
        known = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(sorted(profiles)) or 'none'}"
        raise ConfigError(f"there is no SLURM profile {name!r}", hint=f"{known}; a profile is [slurm.profiles.{name}]")
    return name, profiles[name]


def slurm_command(config: Path | None = None) -> str | None:
    """[slurm] command: what `atropos slurm submit` submits when it is given nothing. The project's file wins."""
    found: str | None = None
    for _, file in load_files(explicit_file(config)):
        found = _section(file).get("command", found)
    return found


def slurm_rows(config: Path | None = None) -> list[Row]:
    """Every key of [slurm] that a file has, the variable for the profile among them; later files win."""
    found: dict[tuple[str, ...], Row] = {}
    for kind, file in load_files(explicit_file(config)):
        for keys, value in _leaves(_section(file)):
            path = ("slurm", *keys)
            found[path] = Row(".".join(path), value, Origin(kind, file.shown, file.line(path)))
    if os.environ.get(VARIABLE):
        key = ("slurm", "profile")
        found[key] = Row(".".join(key), os.environ[VARIABLE], variable_origin(VARIABLE))
    return list(found.values())


def _leaves(tree: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value


def _section(file: ConfigFile) -> dict[str, Any]:
    found = file.tree.get("slurm", {})
    if not isinstance(found, dict) or not isinstance(found.get("profiles", {}), dict):
        raise ConfigError(f"{file.shown}: [slurm]: expected keys and the sections [slurm.profiles.NAME]")
    unknown = sorted(set(found) - {"command", "profile", "profiles"})
    if unknown:
        raise ConfigError(
            f"{file.shown}: unknown key 'slurm.{unknown[0]}'",
            hint="[slurm] has the keys `profile` and `command`; options of a cluster belong to [slurm.profiles.NAME]",
        )
    for key in ("command", "profile"):
        if not isinstance(found.get(key, ""), str):
            raise ConfigError(f"{file.shown}: slurm.{key}: expected text")
    return found
