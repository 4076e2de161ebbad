"""Sections of a configuration file that belong to commands. Standard library only."""

from __future__ import annotations

from importlib import metadata

SHARED = frozenset(
    {"train", "trainer", "trainers", "launcher", "launchers", "writers", "reward", "role", "tool", "serve"}
)
"""Sections of more than one command."""
COMMANDS = frozenset(
    {"gen", "eval", "run", "runs", "runs-prune", "analyze", "score", "filter", "merge", "sft-gen", "dpo-gen"}
    | {
        "prompt-gen",
        "export-verifiers",
        "push",
        "view",
        "reevaluate",
        "journal",
        "job",
        "slurm",
        "tmux",
        "pipeline",
        "new",
        "prefetch",
    }
    | {"env-add", "env-list", "env-info", "env-check", "env-tasks", "reward-list", "trainer-list", "plugins-list"}
    | {"plugins-check", "doctor", "launch", "serve", "serve-env", "skyrl"}
)
"""One section for each command that has options; env-check is `atropos env check`."""
_GROUP = "atropos.commands"
_TOGETHER = frozenset({"launch-sglang", "launch-skyrl", "launch-vllm"})
"""Commands without sections of their names: theirs are [launch] and [skyrl]."""


def is_section(name: str) -> bool:
    """Does a command have this section, one of ours or of an installed plugin?"""
    return name in COMMANDS or name in SHARED or _of_a_plugin(name)


def _of_a_plugin(name: str) -> bool:
    points = {point.name.replace(".", "-") for point in metadata.entry_points(group=_GROUP)} - _TOGETHER
    return any(name == point or name.startswith(f"{point}-") for point in points)


def variable_prefix(section: str) -> str:
    """How the variables of a section begin, after ATROPOS_."""
    return f"{section.replace('-', '_').upper()}__"


PREFIXES = tuple(
    variable_prefix(section) for section in sorted(COMMANDS | {"train", "trainer", "reward", "role", "tool"})
)


def is_variable(name: str) -> bool:
    """Does a variable, after ATROPOS_, belong to a section of a command, one of ours or of an installed plugin?"""
    section, separator, _ = name.partition("__")
    return name.startswith(PREFIXES) or (separator != "" and _of_a_plugin(section.replace("_", "-").lower()))
