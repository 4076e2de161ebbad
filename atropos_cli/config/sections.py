"""Sections of a configuration file that belong to commands. Standard library only."""

from __future__ import annotations

from importlib import metadata

SHARED = frozenset({"train", "trainer", "trainers", "launch", "launcher", "launchers", "writers", "reward", "serve"})
"""Sections of more than one command."""
COMMANDS = frozenset(
    {"gen", "eval", "run", "runs", "runs-prune", "analyze", "score", "filter", "merge", "sft-gen", "dpo-gen"}
    | {"prompt-gen", "push", "view", "reevaluate", "journal", "job", "slurm", "tmux", "pipeline", "new", "prefetch"}
    | {"env-list", "env-info", "env-check", "env-tasks", "reward-list", "trainer-list", "plugins-list"}
    | {"plugins-check", "doctor"}
)
"""One section for each command that has options; env-check is `atropos env check`."""
_GROUP = "atropos.commands"


def is_section(name: str) -> bool:
    """Does a command have this section, one of ours or of an installed plugin?"""
    if name in COMMANDS or name in SHARED:
        return True
    return any(name == point.name or name.startswith(f"{point.name}-") for point in metadata.entry_points(group=_GROUP))


def variable_prefix(section: str) -> str:
    """How the variables of a section begin, after ATROPOS_."""
    return f"{section.replace('-', '_').upper()}__"


PREFIXES = tuple(variable_prefix(section) for section in sorted(COMMANDS | {"train", "trainer", "launch", "reward"}))
"""Beginnings of the variables, after ATROPOS_, that belong to a section of a command."""
