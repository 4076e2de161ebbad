"""Launchers by name, with their options: from profiles of configuration files, variables and flags."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from atropos_cli.config.pairs import put_once, variable
from atropos_cli.console.session import Session
from atropos_cli.errors import AtroposError, LaunchError, UsageError
from atropos_cli.jobs.guarded import guarded
from atropos_cli.plugins.errortext import describe_error
from atropos_cli.ports.launcher import Launcher
from atropos_cli.redaction import looks_secret

_SECRET = re.compile(r"key|token|secret|passw|credential", re.IGNORECASE)


def make_launcher(
    session: Session, name: str, given: Sequence[str] = (), profile: str | None = None, config: Path | None = None
) -> Launcher:
    """The launcher with options given as KEY=VALUE over those of its profile. Raises UsageError, ConfigError."""
    from atropos_cli.config.launchers import launcher_profile, shown
    from atropos_cli.rollout.references import make_config

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


def variables(given: Sequence[str]) -> dict[str, str]:
    """--env NAME=VALUE for the plan. NAME alone must be set here; it reaches the job by inheritance, unwritten."""
    found: dict[str, str] = {}
    for text in given:
        name, value = variable(text)
        if value and (_SECRET.search(name) or looks_secret(value)):
            raise UsageError(
                f"--env {name}=...: this looks like a secret, and would be written into the job's plan",
                hint=f"export {name} in your shell and give --env {name}",
            )
        if value is not None:
            put_once(found, name, value, "--env")
    return found


def native_options(launcher: Launcher, given: Sequence[str]) -> dict[str, str]:
    """--sbatch KEY=VALUE, or KEY for a switch: options in the launcher's own terms. Raises UsageError."""
    found: dict[str, str] = {}
    for text in given:
        key, _, value = text.lstrip("-").partition("=")
        try:
            launcher.check_option(key)
        except ValueError as error:
            raise UsageError(f"--sbatch {text}: {error}") from error
        put_once(found, key, value, "--sbatch")
    return found
