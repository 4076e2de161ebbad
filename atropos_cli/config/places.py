"""Where configuration is: names of files and variables. Standard library only, read at every start."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from atropos_cli.paths import home

PREFIX = "ATROPOS_"
PROJECT_FILE = "atropos.toml"


def user_file() -> Path:
    """The user's own configuration file, by the platform's custom."""
    base = os.environ.get("XDG_CONFIG_HOME")
    if base:
        return Path(home(base)) / "atropos" / "config.toml"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "atropos" / "config.toml"
    return Path.home() / ".config" / "atropos" / "config.toml"


def explicit_file(flag: Path | None) -> Path | None:
    """The file named by --config, else by ATROPOS_CONFIG."""
    if flag is not None:
        return Path(home(str(flag)))
    variable = os.environ.get(f"{PREFIX}CONFIG")
    return Path(home(variable)) if variable else None
