"""Which version of the user's code a run was made with."""

from __future__ import annotations

import subprocess
from pathlib import Path

_TIMEOUT = 3.0
"""Seconds; on a large repository over a network the answer is not worth more."""


def git_commit(folder: Path | None = None) -> str | None:
    """The commit that is checked out in a folder (default: the working directory), "+" behind it for local changes.

    None when it is not a git repository or git is not there.
    """
    command = ["git", "-C", str(folder or Path.cwd())]
    try:
        head = subprocess.run([*command, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=_TIMEOUT)  # noqa: S603
        if head.returncode != 0:
            return None
        status = [*command, "status", "--porcelain", "--untracked-files=no"]
        changed = subprocess.run(status, capture_output=True, text=True, timeout=_TIMEOUT)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")
