"""Flags of the job commands for the plan and the launcher: --env, --sbatch."""

from __future__ import annotations

import re
from collections.abc import Sequence

from atropos_cli.config.pairs import put_once, variable
from atropos_cli.errors import UsageError
from atropos_cli.ports.launcher import Launcher
from atropos_cli.redaction import looks_secret

_SECRET = re.compile(r"key|token|secret|passw|credential", re.IGNORECASE)


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
