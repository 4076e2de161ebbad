"""Launchers by name, with their options: from profiles of configuration files, variables and flags."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from atropos_cli.config.pairs import put_once
from atropos_cli.console.session import Session
from atropos_cli.errors import AtroposError, LaunchError, UsageError
from atropos_cli.jobs.guarded import guarded
from atropos_cli.plugins.errortext import describe_error
from atropos_cli.ports.launcher import Launcher


def make_launcher(
    session: Session, name: str, given: Sequence[str] = (), profile: str | None = None, config: Path | None = None
) -> Launcher:
    """The launcher with options given as KEY=VALUE over those of its profile. Raises UsageError, ConfigError."""
    from atropos_cli.config.launchers import launcher_profile, shown
    from atropos_cli.rollout.planner import make_config

    registration = session.registry.find("launcher", name)
    cls = registration.load()
    found, options = launcher_profile(cls.name, profile, config)
    owner = f"{shown(cls.name)} profile {found!r}" if found else f"launcher {name!r}"
    said: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--on-option {text!r} is not KEY=VALUE")
        put_once(said, key, value, "--on-option")
    made = make_config(cls.Config, {**options, **said}, owner=owner, env_prefix=f"ATROPOS_{cls.name.upper()}__")
    try:
        launcher: Launcher = cls(made)
    except AtroposError:
        raise
    except Exception as error:
        raise LaunchError(
            f"launcher {cls.name!r}: its __init__ raised {describe_error(error)}",
            hint=f"atropos plugins list says where {cls.name!r} comes from",
        ) from error
    if registration.file is not None:
        launcher.source = registration.name
    return guarded(launcher)


def stored_name(session: Session, name: str | None) -> str | None:
    """What the list of jobs calls the launcher of this name: of one in a file, the whole path."""
    from atropos_cli.plugins.files import names_a_file

    if name is None:
        return None
    found = session.registry.find("launcher", name).name
    return found if names_a_file(name) else name
