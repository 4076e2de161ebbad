"""The rules of a filter, made from its options: each has a name that the report shows, and a test."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from atropos_cli.datasets.filter.expressions import Expression, ExpressionError, searcher
from atropos_cli.datasets.filter.presence import Presence
from atropos_cli.datasets.filter.selection import OPS, all_equal, group_spread
from atropos_cli.domain.finish import finish_of
from atropos_cli.errors import UsageError
from atropos_cli.io.records import Record, StoredRollout
from atropos_cli.text.words import words

Normalize = Literal["none", "group", "env"]
CapBy = Literal["score", "first", "random"]

NO_SCORE = "no score"
NO_SPREAD = "no spread to normalise by"
NO_TOKENS = "token count unknown"
EMPTY = "empty group"
_FINISH = frozenset({"stop", "length", "content_filter", "tool_calls", "context_length", "error", "unknown"})


@dataclass(frozen=True, slots=True)
class FilterSpec:
    """All options of a filter; the defaults keep everything. Bounds without "above"/"below" include their value."""

    min_score: float | None = None
    max_score: float | None = None
    above: float | None = None
    below: float | None = None
    normalize: Normalize = "none"
    drop_failed: bool = False
    drop_truncated: bool = False
    finish_reasons: tuple[str, ...] = ()
    min_chars: int | None = None
    max_chars: int | None = None
    min_words: int | None = None
    max_words: int | None = None
    min_tokens: int | None = None
    max_tokens: int | None = None
    match: tuple[str, ...] = ()
    no_match: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    drop_equal: bool = False
    min_spread: float | None = None
    min_gap: float | None = None
    top_k: int | None = None
    best_of_n: bool = False
    min_group: int | None = None
    dedup: Literal["none", "exact", "near"] = "none"
    dedup_scope: Literal["task", "all"] = "task"
    near_threshold: float = 0.8
    decontaminate: tuple[str, ...] = ()
    ngram: int = 13
    max_per_task: int | None = None
    balance: Literal["none", "env", "task_name", "task"] = "none"
    cap_by: CapBy = "score"
    seed: int = 0

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


Ranges = dict[str, tuple[float, float]]
RolloutTest = Callable[[Record, StoredRollout], str | None]
"""The reason why a rollout is dropped, or None when it stays."""


def group_rules(spec: FilterSpec) -> list[tuple[str, Callable[[Record], bool]]]:
    """(reason, test that is true for groups to keep), on the scores of the group as it was read."""
    rules: list[tuple[str, Callable[[Record], bool]]] = []
    if spec.drop_equal or spec.min_spread is not None:
        rules.append(("group of one: no spread", lambda record: _scored(record) != 1))
    if spec.drop_equal:
        rules.append(("all scores of the group equal", lambda record: not all_equal(record.scores)))
    if spec.min_spread is not None:
        least = spec.min_spread
        rules.append((f"group spread >= {least:g}", lambda record: (group_spread(record.scores) or 0.0) >= least))
    return rules


def _scored(record: Record) -> int:
    return sum(rollout.score is not None for rollout in record.rollouts)


def rollout_rules(
    spec: FilterSpec, ranges: Ranges | None, presence: Presence, on_error: Callable[[Record, str], None]
) -> list[RolloutTest]:
    """Tests of single rollouts, in the order in which they are applied.

    ranges: lowest and highest score by environment, to normalise with. presence: told which names that the options
    ask for a rollout has. on_error: told what an expression could not work with; the rollout is dropped.
    """
    rules: list[RolloutTest] = []
    if spec.drop_failed:
        rules.append(lambda record, rollout: "failed" if rollout.failure is not None else None)
    if spec.drop_truncated:
        rules.append(lambda record, rollout: "truncated" if rollout.truncated else None)
    if spec.finish_reasons:
        rules.append(_finish_rule(spec.finish_reasons, presence))
    rules += _score_rules(spec, ranges or {})
    rules += _length_rules(spec)
    rules += [_regex_rule(pattern, wanted=True) for pattern in spec.match]
    rules += [_regex_rule(pattern, wanted=False) for pattern in spec.no_match]
    rules += [_where_rule(text, presence, on_error) for text in spec.where]
    return rules


def _finish_rule(allowed: tuple[str, ...], presence: Presence) -> RolloutTest:
    wanted = frozenset(finish_of(name) or "unknown" if name != "unknown" else name for name in allowed)
    strange = wanted - _FINISH

    def test(record: Record, rollout: StoredRollout) -> str | None:
        found = rollout.finish_reason or "unknown"
        for name in strange:
            presence.see("--finish-reason", name, there=found == name, known=(found,), note=None)
        return None if found in wanted else f"finish reason {found if found in _FINISH else 'other'}"

    return test


def _score_rules(spec: FilterSpec, ranges: Ranges) -> list[RolloutTest]:
    rules: list[RolloutTest] = []
    if spec.uses_scores:
        rules.append(lambda record, rollout: NO_SCORE if rollout.score is None else None)
    for op, bound in spec.thresholds:
        rules.append(_threshold_rule(op, bound, spec.normalize, ranges))
    if spec.min_gap is not None:
        gap = spec.min_gap

        def above_the_worst(record: Record, rollout: StoredRollout) -> str | None:
            worst = min(score for score in record.scores if score is not None)
            assert rollout.score is not None
            return None if rollout.score - worst > gap else f"score > group's worst + {gap:g}"

        rules.append(above_the_worst)
    return rules


def _threshold_rule(op: str, bound: float, normalize: Normalize, ranges: Ranges) -> RolloutTest:
    test = OPS[op]
    if normalize == "none":
        reason = f"score {op} {bound:g}"
        return lambda record, rollout: None if test(rollout.score or 0.0, bound) else reason
    reason = f"score {op} {bound:g} (of the {normalize}'s range)"

    def run(record: Record, rollout: StoredRollout) -> str | None:
        if normalize == "group":
            known = [score for score in record.scores if score is not None]
            low, high = min(known), max(known)
        else:
            low, high = ranges[record.env or ""]
        if high <= low:
            return NO_SPREAD
        return None if test(((rollout.score or 0.0) - low) / (high - low), bound) else reason

    return run


def _length_rules(spec: FilterSpec) -> list[RolloutTest]:
    rules: list[RolloutTest] = []
    measures: tuple[tuple[str, Callable[[StoredRollout], int | None], int | None, int | None], ...] = (
        ("characters", lambda rollout: len(rollout.completion_text), spec.min_chars, spec.max_chars),
        ("words", lambda rollout: len(words(rollout.completion_text)), spec.min_words, spec.max_words),
        ("tokens", lambda rollout: rollout.completion_tokens, spec.min_tokens, spec.max_tokens),
    )
    for unit, measure, low, high in measures:
        if low is not None or high is not None:
            rules.append(_length_rule(unit, measure, low, high))
    return rules


def _length_rule(
    unit: str, measure: Callable[[StoredRollout], int | None], low: int | None, high: int | None
) -> RolloutTest:
    def test(record: Record, rollout: StoredRollout) -> str | None:
        value = measure(rollout)
        if value is None:
            return NO_TOKENS
        if low is not None and value < low:
            return f"{unit} >= {low}"
        return f"{unit} <= {high}" if high is not None and value > high else None

    return test


def _regex_rule(pattern: str, *, wanted: bool) -> RolloutTest:
    try:
        search = searcher(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(f"{pattern!r} is not a regular expression: {error}") from error
    reason = f"{'match' if wanted else 'no match'} {pattern!r}"
    return lambda record, rollout: None if search(rollout.completion_text) is wanted else reason


def _where_rule(text: str, presence: Presence, on_error: Callable[[Record, str], None]) -> RolloutTest:
    expression = Expression(text)

    def test(record: Record, rollout: StoredRollout) -> str | None:
        expression.look(record, rollout, presence)
        try:
            return None if expression(record, rollout) else f"where {text}"
        except ExpressionError as error:
            on_error(record, str(error))
            return f"where {text}: error"
        except UsageError as error:
            raise UsageError(f"{record.where}: {error.message}", hint=error.hint) from error

    return test
