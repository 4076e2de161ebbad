"""How a command ends: one line with the number it was called for, one with the next step.

    reward 0.583 (std 0.449), groups with spread 6/8
    next: atropos view runs/arithmetic-20260101-101500

The number is a message, or data where the command's report is; the next step is always a message, so that no pipe
and no `--json` meets it. Commands that print JSON do not come here: the document says it all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from atropos_cli.paths import shell as shell

if TYPE_CHECKING:
    from atropos_cli.console.output import Output
    from atropos_cli.domain.run import RunSummary

_SWITCHES = frozenset({"--overwrite", "--resume", "--dry-run"})
"""What a command that is given again does not need again."""
EASIER, HARDER = "take easier tasks, or a larger model", "take harder tasks, or a higher --temperature"
"""What makes the rewards of a group differ."""


def end(out: Output, headline: str, following: str | None = None, *, data: bool = False) -> None:
    """Say what came out and what to do with it. data: the headline belongs to the report on standard output."""
    if data:
        out.data(headline)
    out.flush()
    if not data:
        out.essential(headline)
    if following:
        out.following(following)


def command_name(args: Sequence[str]) -> str | None:
    """The command among the words of a command line: switches of the program may stand before it."""
    words = iter(args)
    for word in words:
        if not word.startswith("-"):
            return word
        if word == "--log-level":
            next(words, None)
    return None


def again(args: Sequence[str], folder: Path | None = None) -> str:
    """The same command, to go on with what it left in the folder; without one, the command as it was."""
    words = [word for word in args if word not in _SWITCHES]
    if folder is not None:
        words = [*without_option(words, "--output", "-o")[0], "--resume", "--output", os.fspath(folder)]
    return shell(*words)


def without_option(words: Iterable[str], *names: str) -> tuple[list[str], list[str]]:
    """(the words of a command without an option that takes a value, its values), in any of its spellings."""
    kept: list[str] = []
    values: list[str] = []
    source = iter(words)
    for word in source:
        name, equals, value = word.partition("=")
        short = next((name for name in names if len(name) == 2 and word.startswith(name)), None)
        if word in names:
            values += [value for value in (next(source, None),) if value is not None]
        elif equals and name in names:
            values.append(value)
        elif short is not None:
            values.append(word[len(short) :])
        else:
            kept.append(word)
    return kept, values


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """1 row, 2 rows."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def reward_headline(summary: RunSummary) -> str:
    """What a run of groups came to: the reward, and how many groups a trainer could learn from."""
    if summary.reward_mean is None:
        return f"no reward: {summary.rollouts - summary.rollouts_failed} of {summary.rollouts} rollouts have one"
    text = f"reward {summary.reward_mean:.3f}"
    if summary.reward_std is not None:
        text += f" (std {summary.reward_std:.3f})"
    groups = summary.spread_groups + summary.zero_std_groups
    if groups:
        text += f", groups with spread {summary.spread_groups}/{groups}"
    if summary.rollouts_failed:
        text += f", {summary.rollouts_failed} of {summary.rollouts} rollouts failed"
    return text


def no_spread(summary: RunSummary, *, temperature: float | None) -> str | None:
    """Why a trainer would learn nothing from the run, and what to change; None when there is spread."""
    if summary.spread_groups or not summary.zero_std_groups or summary.reward_mean is None:
        return None
    if temperature == 0:
        change = "sample them (--temperature 1)"
    elif summary.reward_mean <= 0:
        change = EASIER
    else:
        change = HARDER
    return f"all rewards within a group are equal, so a trainer learns nothing from them: {change}"
