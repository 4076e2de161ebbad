"""The report of `atropos analyze` as text: every share with its denominator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atropos_cli.console.dataio import share
from atropos_cli.console.ending import shell
from atropos_cli.console.output import Output

if TYPE_CHECKING:
    from atropos_cli.analysis.analysis import Report
    from atropos_cli.analysis.report import EnvironmentReport


def print_report(report: Report, out: Output) -> None:
    """All environments, one after another."""
    for note in report.notes:
        out.data(f"note: {note}")
    for name, environment in report.environments.items():
        out.data("")
        out.data(f"== {name}")
        _print_environment(environment.as_json(), out)
        _print_tables(environment, out)


def _print_tables(report: EnvironmentReport, out: Output) -> None:
    from atropos_cli.analysis.plugged import cell_texts

    for table in report.tables:
        out.data("")
        out.data(f"-- {table.title}")
        out.table(cell_texts(table), header=table.columns)
        if table.note:
            out.data(table.note)


def analysis_end(report: Report, inputs: Sequence[str]) -> tuple[str, str]:
    """The number that a trainer asks for first, and what to do about it."""
    groups = equal = scored = 0
    total = 0.0
    for environment in report.environments.values():
        data = environment.as_json()
        stats, reward, count = data["group_stats"], data["reward"], data["rollouts"]["scored"]
        groups += stats["groups"]
        equal += round((stats["frac_reward_zero_std"] or 0.0) * stats["groups"])
        scored += count
        total += (reward["mean"] or 0.0) * count
    mean = f"reward {total / scored:.3f}" if scored else "no reward"
    spread = f", groups with spread {groups - equal}/{groups}" if groups else ""
    names = [Path(name) if name.startswith("-") and name != "-" else name for name in inputs]
    if "-" in inputs:
        return mean + spread, "filter them, or make rows: atropos filter, atropos sft-gen"
    if groups and equal and equal < groups:
        return mean + spread, shell("filter", *names, "--min-spread", "0.01", "-o", "kept.jsonl")
    return mean + spread, shell("view", *names[:2])


def _print_environment(data: dict[str, Any], out: Output) -> None:
    from atropos_cli.analysis.summaries import COLUMNS, difference_rows, ranked_tasks, summary_cells, told

    out.details({name: text for name, text in _facts(data).items() if text})
    for difference in data["differences"]:
        header, rows = difference_rows(difference)
        out.data("")
        out.table(rows, header=header)
    found = told(data)
    if found.varying:
        out.data("")
        out.table([[name, *summary_cells(row)] for name, row in found.varying], header=("", *COLUMNS))
    if any("quantiles" in row and not row["quantiles_from"].startswith("all") for _, row in found.varying):
        out.data("quantiles are from a random sample of 10000 values")
    for name, text in found.remarks.items():
        out.data(f"{name}: {text}")
    _print_shares(data, out)
    failed = data["tasks"]["failed"]
    if failed:
        out.data("")
        out.table(
            [(str(task["failed"]), task["task"]) for task in failed],
            header=("failed", f"tasks of which nothing succeeded ({data['tasks']['all_failed']})"),
        )
    for title, tasks in ranked_tasks(data):
        out.data("")
        out.table(
            [(f"{task['reward_mean']:.4g}", f"{task['scored']}", f"{task['failed']}", task["task"]) for task in tasks],
            header=("mean", "scored", "failed", title),
        )


def _facts(data: dict[str, Any]) -> dict[str, str]:
    """The headline first: mean reward, spread, success, failures."""
    from atropos_cli.analysis.summaries import interval

    rollouts, stats, success = data["rollouts"], data["group_stats"], data["success"]
    lost = f"; {data['groups_lost']} more failed as a whole" if data["groups_lost"] else ""
    non_finite = f" ({rollouts['non_finite']} not finite)" if rollouts["non_finite"] else ""
    ci = data["reward"]["ci95_over_tasks"]
    over = f" (95 % interval over {ci['tasks']} tasks)" if ci is not None else ""
    facts = {"mean reward": interval(data) + over if data["reward"]["count"] else ""}
    if stats["groups"]:
        differing = round((1 - stats["frac_reward_zero_std"]) * stats["groups"])
        high, low = _percent(stats["frac_all_max"]), _percent(stats["frac_all_min"])
        extremes = (
            f" (all rewards at the maximum: {high}, at the minimum: {low})" if stats["frac_all_max"] is not None else ""
        )
        facts["with spread"] = f"{differing} of {stats['groups']} groups{extremes}"
    if success["of"]:
        facts["success"] = (
            f"{share(success['count'], success['of'])}, by {success['rule']}; "
            f"failed rollouts: {success['failed_rollouts']}"
        )
    elif data["episodes"]:
        facts["success"] = success["rule"]
    facts["failures"] = _counts(data["failures"])
    facts["rollouts"] = (
        f"{rollouts['scored']} scored, {rollouts['failed']} failed, "
        f"{rollouts['unscored']} without a reward{non_finite}, of {rollouts['total']}"
    )
    facts["groups"] = f"{data['groups']}, of {data['tasks']['count']} tasks{lost}"
    truncated = data["truncated"]
    facts["truncated"] = share(truncated["count"], truncated["of"]) if truncated["count"] else ""
    for name in ("stop_reasons", "finish_reasons", "labels"):
        facts[name.replace("_", " ")] = _counts(data.get(name, {}))
    facts["replies"] = _counts({name.replace("_", " "): n for name, n in data["replies"].items() if n})
    correlation = data["length"]["correlation_with_reward"]
    facts["reward and length"] = f"correlation {correlation:.2f}" if correlation is not None else ""
    if data["episodes"]:
        facts["episodes"] = f"{data['episodes']['count']}, {data['episodes']['turns']['mean']:.1f} turns each"
    return facts


def _print_shares(data: dict[str, Any], out: Output) -> None:
    from atropos_cli.analysis.summaries import no_pass, retention_rows, succeeded_and_failed

    ks = list(data["pass_at_k"])
    best = data["best_of_k"]
    rows = []
    if ks and succeeded_and_failed(data):
        rows = [
            [name, *(_with_error(point) for point in data[key].values())]
            for name, key in (("pass@k (one of k succeeds)", "pass_at_k"), ("pass^k (all k succeed)", "pass_hat_k"))
        ]
    if best and (list(best) == ks or not rows) and len({point["mean"] for point in best.values()}) > 1:
        ks = list(best)
        rows.append(["best reward of k", *(_with_error(point) for point in best.values())])
    if rows:
        out.data("")
        out.table(rows, header=("mean over tasks", *(f"k={k}" for k in ks)))
    if no_pass(data):
        out.data(no_pass(data))
    for note in data["left_out"]:
        out.data(f"left out: {note}")
    kept = retention_rows(data)
    if kept:
        out.data("")
        out.table(
            [
                (f"reward {r['threshold']}", share(r["kept"], r["total"]), share(r["groups_kept"], r["groups"]))
                for r in kept
            ],
            header=("kept by", "rollouts", "groups"),
        )
    by_turn = data["episodes"]["reward_by_turn"] if data["episodes"] else {}
    if by_turn:
        out.data("")
        out.table(
            [(turn, str(row["count"]), f"{row['mean']:.4g}") for turn, row in list(by_turn.items())[:30]],
            header=("turn", "groups", "mean reward"),
        )


def _with_error(point: dict[str, Any]) -> str:
    if point["mean"] is None:
        return "-"
    return f"{point['mean']:.3f}" + (f" ± {point['stderr']:.3f}" if point["stderr"] is not None else "")


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{100 * part:.1f} %"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())
