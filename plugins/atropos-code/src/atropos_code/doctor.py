"""Checks for `atropos doctor`: a program is run at the best level of isolation there is."""

from __future__ import annotations

from atropos_cli.sdk import AtroposError
from atropos_code.errors import SandboxError
from atropos_code.isolation import detect

Check = tuple[str, str, str]
NAME = "code sandbox"


def checks() -> list[Check]:
    """One line for the level, and one that names what is missing when it is not a strong one."""
    try:
        isolation = detect()
    except (SandboxError, OSError) as error:
        hint = f": {error.hint}" if isinstance(error, AtroposError) and error.hint else ""
        return [(NAME, "fail", f"{error}{hint}")]
    found: list[Check] = [(NAME, "ok" if isolation.strong else "warn", f"{isolation.level}: {isolation.describe()}")]
    if not isolation.strong:
        more = "" if isolation.can_limit_processes else "; programs cannot start processes, because root has no limit"
        found.append((f"{NAME}: missing", "warn", f"{'; '.join(isolation.tried)}{more}: apt-get install bubblewrap"))
    if "seccomp" not in isolation.features:
        found.append((f"{NAME}: network", "warn", "no system call filter for this machine's processor"))
    return found
