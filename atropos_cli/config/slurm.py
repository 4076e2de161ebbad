"""[slurm] of the configuration: profiles of clusters, and which one is used.

[slurm]
profile = "big"

[slurm.profiles.big]
partition = "gpu"
account = "proj1"
setup = ["module load cuda/12"]
"""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from atropos_cli.config.files import ConfigFile
from atropos_cli.config.sources import explicit_file, load_files
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


def _section(file: ConfigFile) -> dict[str, Any]:
    found = file.tree.get("slurm", {})
    if not isinstance(found, dict) or not isinstance(found.get("profiles", {}), dict):
        raise ConfigError(f"{file.shown}: [slurm]: expected `profile` and the sections [slurm.profiles.NAME]")
    unknown = sorted(set(found) - {"profile", "profiles"})
    if unknown:
        raise ConfigError(
            f"{file.shown}: unknown key 'slurm.{unknown[0]}'",
            hint="options of a cluster stand in [slurm.profiles.NAME]; [slurm] has `profile` only",
        )
    if not isinstance(found.get("profile", ""), str):
        raise ConfigError(f"{file.shown}: slurm.profile: expected a name")
    return found
