"""Switches of the whole program, which a file may set too: offline mode, and where models and data are kept.

    --offline, ATROPOS_OFFLINE=1, offline = true        ATROPOS_CACHE_DIR=DIR, cache_dir = "DIR"

They act through the variables of the libraries, so they are set before any of these is imported, and every
program we start has them as well. Standard library only, unless a configuration file is there.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atropos_cli.config import dotenv
from atropos_cli.config.places import PREFIX, PROJECT_FILE, explicit_file, user_file
from atropos_cli.errors import AtroposError, ConfigError

KEYS = ("offline", "cache_dir")
"""Keys at the top of a configuration file."""
OFFLINE_VARIABLES = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "WANDB_MODE": "offline",
}
CACHE_VARIABLES = {"HF_HUB_CACHE": "hub", "HF_DATASETS_CACHE": "datasets"}
"""Not HF_HOME: the access token lies there, and stays where it is."""


@dataclass(frozen=True, slots=True)
class ProgramSettings:
    """What was said, and where: a source is "--offline", a variable, a file, or "default"."""

    offline: bool = False
    cache_dir: Path | None = None
    offline_source: str = "default"
    cache_source: str = "default"


def program_settings(args: Sequence[str] = ()) -> ProgramSettings:
    """Read flag, variables and files. Raises ConfigError for a value that cannot be one.

    A file that cannot be read says nothing here: the command that needs it reports it.
    """
    words = list(args[: args.index("--")] if "--" in args else args)
    found: dict[str, tuple[Any, str]] = {}
    for name, tree in _files(words):
        found.update({key: (tree[key], name) for key in KEYS if key in tree})
    for key in KEYS:
        variable = f"{PREFIX}{key.upper()}"
        if os.environ.get(variable):
            found[key] = (os.environ[variable], variable)
    if "--offline" in words:
        found["offline"] = (True, "--offline")
    offline, offline_source = found.get("offline", (False, "default"))
    folder, cache_source = found.get("cache_dir", (None, "default"))
    if folder is not None and (not isinstance(folder, str) or not folder):
        raise ConfigError(f"{cache_source}: cache_dir: expected a folder, got {folder!r}")
    return ProgramSettings(
        offline=_truth(offline, offline_source),
        cache_dir=None if folder is None else Path(folder).expanduser().absolute(),
        offline_source=offline_source,
        cache_source=cache_source,
    )


def apply(settings: ProgramSettings, environ: MutableMapping[str, str] | None = None) -> None:
    """Set the libraries' variables. A cache that the user chose by these variables stays."""
    env = os.environ if environ is None else environ
    if settings.cache_dir is not None:
        env[f"{PREFIX}CACHE_DIR"] = str(settings.cache_dir)
        for name, folder in CACHE_VARIABLES.items():
            env.setdefault(name, str(settings.cache_dir / folder))
    if settings.offline:
        env[f"{PREFIX}OFFLINE"] = "1"
        wandb = env.get("WANDB_MODE")
        env.update(OFFLINE_VARIABLES)
        if wandb in ("disabled", "dryrun"):
            env["WANDB_MODE"] = wandb


def _truth(value: Any, source: str) -> bool:
    if isinstance(value, bool):
        return value
    said = dotenv.truth(str(value))
    if said is not None:
        return said
    line = dotenv.from_dotenv(source)
    where = source if line is None else f"{dotenv.FILE}:{line}: {source}"
    raise ConfigError(f"{where}: offline: expected true or false, got {value!r}")


def _files(words: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """(name, content) of the configuration files, in ascending precedence."""
    flag = None
    for position, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == "--config":
            flag = value if equals else words[position + 1] if position + 1 < len(words) else None
    own = explicit_file(Path(flag) if flag else None) or Path(PROJECT_FILE)
    paths = [path for path in (user_file(), own) if path.is_file()]
    if not paths:
        return []
    from atropos_cli.config.files import read_config

    found = []
    for path in paths:
        try:
            file = read_config(path)
        except AtroposError:
            continue
        found.append((file.shown, file.tree))
    return found
