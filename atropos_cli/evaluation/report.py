"""An evaluation as Markdown: the headline with its denominator, models side by side, what changed, every task."""

from __future__ import annotations

from collections.abc import Sequence

from atropos_cli.domain.base import JsonDict
from atropos_cli.evaluation.evaluation import Comparison, Estimate, Evaluation

_MOST_TASKS = 500


def report(evaluations: Sequence[Evaluation], comparisons: Sequence[Comparison | None]) -> str:
    """The whole report. One comparison (or None) belongs to each evaluation."""
    first = evaluations[0]
    lines = [
        f"# Evaluation of {cell(first.environment)}",
        "",
        (
            f"Split `{cell(first.split)}`, {first.tasks} tasks, {first.samples} rollout{'s' * (first.samples != 1)} "
            f"each, seed {first.seed}. Success: {cell(first.success_rule)}. Rollouts that ended in an error count as "
            f"{'wrong' if first.errors_count_as == 'wrong' else 'nothing: they are left out'}. "
            "Intervals are 95%, bootstrapped over tasks."
        ),
        "",
        *_table(evaluations),
    ]
    for evaluation in evaluations:
        for k, reason in evaluation.left_out.items():
            lines += ["", f"pass@{k} of {cell(evaluation.model or '?')} is left out: {reason}."]
    for evaluation, comparison in zip(evaluations, comparisons, strict=True):
        if comparison is not None:
            lines += ["", *_comparison(evaluation, comparison)]
    return "\n".join([*lines, "", *_tasks(evaluations)]) + "\n"


def _table(evaluations: Sequence[Evaluation]) -> list[str]:
    rows: list[tuple[str, list[str]]] = [
        ("accuracy", [estimate(e.accuracy) for e in evaluations]),
        ("mean reward", [estimate(e.reward) for e in evaluations]),
    ]
    for k in sorted({k for e in evaluations for k in e.pass_at}, key=int):
        rows.append((f"pass@{k} (one of {k})", [estimate(e.pass_at.get(k)) for e in evaluations]))
        rows.append((f"pass^{k} (all of {k})", [estimate(e.pass_hat.get(k)) for e in evaluations]))
    for name in sorted({name for e in evaluations for name in e.rewards}):
        rows.append((f"reward {name}", [_number(e.rewards.get(name)) for e in evaluations]))
    for name in sorted({name for e in evaluations for name in e.metrics}):
        rows.append((f"metric {name}", [_number(e.metrics.get(name)) for e in evaluations]))
    rows += [
        (f"reward {name} by", [details(e.reward_details.get(name)) for e in evaluations])
        for name in sorted({name for e in evaluations for name in e.reward_details})
    ]
    rows += [
        ("rollouts scored", [f"{e.scored} of {e.rollouts}" for e in evaluations]),
        ("errors", [_counts(e.failures) or "0" for e in evaluations]),
        ("ended by", [_counts(e.stop_reasons) for e in evaluations]),
        ("sampling", [", ".join(f"{k}={v}" for k, v in e.sampling.items() if v != []) for e in evaluations]),
    ]
    head = [
        "| | " + " | ".join(cell(e.model or "?") for e in evaluations) + " |",
        "|---" * (len(evaluations) + 1) + "|",
    ]
    return head + [f"| {cell(name)} | " + " | ".join(map(cell, values)) + " |" for name, values in rows]


def _comparison(evaluation: Evaluation, comparison: Comparison) -> list[str]:
    lines = [
        f"## {cell(evaluation.model or '?')} against {cell(comparison.baseline_model or 'the baseline')}",
        "",
        (
            f"Accuracy changed by {estimate(comparison.difference)} on {comparison.tasks} common tasks "
            f"({comparison.only_new} only here, {comparison.only_baseline} only in the baseline)."
        ),
        "",
        f"Gained {len(comparison.gained)}: {_names(comparison.gained)}",
        "",
        f"Lost {len(comparison.lost)}: {_names(comparison.lost)}",
    ]
    return lines


def _tasks(evaluations: Sequence[Evaluation]) -> list[str]:
    ids = list(dict.fromkeys(result.task_id for e in evaluations for result in e.per_task))
    found = [{result.task_id: result for result in e.per_task} for e in evaluations]
    lines = ["## Tasks", "", "| task | " + " | ".join(cell(e.model or "?") for e in evaluations) + " |"]
    lines.append("|---" * (len(evaluations) + 1) + "|")
    for task_id in ids[:_MOST_TASKS]:
        shown = []
        for results in found:
            result = results.get(task_id)
            errors = f", {result.errors} errors" if result is not None and result.errors else ""
            shown.append("" if result is None else f"{result.successes}/{result.rollouts}{errors}")
        lines.append(f"| {cell(task_id)} | " + " | ".join(shown) + " |")
    if len(ids) > _MOST_TASKS:
        lines += ["", f"{len(ids) - _MOST_TASKS} more tasks are in eval.json."]
    return lines


def estimate(value: Estimate | None) -> str:
    """0.512 [0.430, 0.591]."""
    if value is None:
        return "-"
    interval = "" if value.low is None or value.high is None else f" [{value.low:.3f}, {value.high:.3f}]"
    return f"{value.value:.3f}{interval}"


def details(told: JsonDict | None) -> str:
    """What a reward says of itself: model m, temperature 0."""
    pairs = (told or {}).items()
    return ", ".join(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in pairs)


def cell(text: str) -> str:
    """Text that cannot break out of a Markdown table or become HTML."""
    flat = " ".join(str(text).split())
    return flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("|", "\\|")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(cell(name) for name in names[:20])
    return (shown or "none") + (" ..." if len(names) > 20 else "")
