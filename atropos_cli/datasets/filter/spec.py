"""The rules a filter can be given, as the options of its command."""

from __future__ import annotations

from typing import Literal

from atropos_cli.config.commands import CommandOptions, option

SCORES, ROLLOUTS, GROUPS, DATA = "Scores", "Single rollouts", "Groups", "Over all data"
Normalize = Literal["none", "group", "env"]


class FilterSpec(CommandOptions):
    """The defaults keep everything. Bounds without "above"/"below" include their value."""

    min_score: float | None = option(None, "Keep score >= this.", panel=SCORES)
    above: float | None = option(None, "Keep score > this.", panel=SCORES)
    max_score: float | None = option(None, "Keep score <= this.", panel=SCORES)
    below: float | None = option(None, "Keep score < this.", panel=SCORES)
    normalize: Normalize = option(
        "none", "Compare scores scaled to 0..1 over their group or environment.", panel=SCORES
    )
    min_gap: float | None = option(None, "Keep score > the group's worst + this.", panel=SCORES)
    drop_failed: bool = option(False, "Leave out failed rollouts.", panel=ROLLOUTS)
    drop_truncated: bool = option(False, "Leave out rollouts that were cut off.", panel=ROLLOUTS)
    finish_reasons: tuple[str, ...] = option(
        (), 'Keep these; "unknown" is none.', panel=ROLLOUTS, flag="finish-reason", metavar="NAME"
    )
    min_chars: int | None = option(None, "Of the completion.", panel=ROLLOUTS, ge=0)
    max_chars: int | None = option(None, "Of the completion.", panel=ROLLOUTS, ge=0)
    min_words: int | None = option(None, "Of the completion.", panel=ROLLOUTS, ge=0)
    max_words: int | None = option(None, "Of the completion.", panel=ROLLOUTS, ge=0)
    min_tokens: int | None = option(None, "Sampled tokens, as stored.", panel=ROLLOUTS, ge=0)
    max_tokens: int | None = option(None, "Sampled tokens, as stored.", panel=ROLLOUTS, ge=0)
    match: tuple[str, ...] = option((), "Regular expression that the completion holds.", panel=ROLLOUTS)
    no_match: tuple[str, ...] = option((), "Regular expression that it does not hold.", panel=ROLLOUTS)
    where: tuple[str, ...] = option(
        (), "score >= 0.5 and env == 'math' and len(text) < 2000; see --fields.", panel=ROLLOUTS, metavar="EXPR"
    )
    drop_equal: bool = option(False, "Leave out groups whose scores do not differ.", panel=GROUPS)
    min_spread: float | None = option(None, "Keep groups with best - worst >= this.", panel=GROUPS)
    top_k: int | None = option(None, "Best k of each group; ties: the first.", panel=GROUPS, ge=1)
    best_of_n: bool = option(False, "Best of each group; ties: the shorter, then the first.", panel=GROUPS)
    min_group: int | None = option(None, "Keep groups with so many rollouts left.", panel=GROUPS, ge=1)
    dedup: Literal["none", "exact", "near"] = option("none", "Leave out duplicates; the first stays.", panel=DATA)
    dedup_scope: Literal["task", "all"] = option("task", "Compare within a task or all.", panel=DATA)
    near_threshold: float = option(0.8, "Jaccard similarity.", panel=DATA, ge=0.1, le=1.0)
    decontaminate: tuple[str, ...] = option(
        (), "Leave out what overlaps this evaluation file.", panel=DATA, metavar="FILE"
    )
    ngram: int = option(13, "Words that must overlap.", panel=DATA, ge=3)
    max_per_task: int | None = option(None, "Rollouts of a task, over all groups.", panel=DATA, ge=1)
    balance: Literal["none", "env", "task_name", "task"] = option("none", "Equal numbers of each kind.", panel=DATA)
    cap_by: Literal["score", "first", "random"] = option("score", "What the two options above keep.", panel=DATA)
    seed: int = option(0, "Seed of a random choice.", panel=DATA)

    @property
    def uses_scores(self) -> bool:
        """Does a rule need scores? (Caps by score take rollouts without one last.)"""
        numbers = (self.min_score, self.max_score, self.above, self.below, self.min_spread, self.min_gap, self.top_k)
        return any(number is not None for number in numbers) or self.best_of_n or self.drop_equal

    @property
    def thresholds(self) -> list[tuple[str, float]]:
        """(operator, value) of each bound on the score."""
        pairs = ((">=", self.min_score), (">", self.above), ("<=", self.max_score), ("<", self.below))
        return [(op, value) for op, value in pairs if value is not None]
