"""Launchers by name, with their options: from profiles of configuration files, variables and flags."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from atropos_cli.config.pairs import put_once
from atropos_cli.console.session import Session
from atropos_cli.errors import UsageError
from atropos_cli.ports.launcher import Launcher


def make_launcher(
    session: Session, name: str, given: Sequence[str] = (), profile: str | None = None, config: Path | None = None
) -> Launcher:
    """The launcher with options given as KEY=VALUE over those of its profile. Raises UsageError, ConfigError."""
    from atropos_cli.config.slurm import slurm_profile
    from atropos_cli.rollout.planner import make_config

    cls = session.registry.find("launcher", name).load()
    owner, options = f"launcher {name!r}", dict[str, Any]()
    if name == "slurm":
        found, profiled = slurm_profile(profile, config)
        options |= profiled
        owner = f"SLURM profile {found!r}" if found else owner
    elif profile is not None:
        raise UsageError(f"launcher {name!r} has no profiles", hint="drop --profile")
    said: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--on-option {text!r} is not KEY=VALUE")
        put_once(said, key, value, "--on-option")
    made = make_config(cls.Config, {**options, **said}, owner=owner, env_prefix=f"ATROPOS_{name.upper()}__")
    launcher: Launcher = cls(made)
    return launcher
