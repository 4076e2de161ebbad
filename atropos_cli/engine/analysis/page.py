"""The report as one HTML page: no scripts, nothing loaded from anywhere, every text escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

from atropos_cli.domain.charts import Chart
from atropos_cli.engine.analysis.analysis import Report
from atropos_cli.engine.analysis.charts import charts_of
from atropos_cli.engine.analysis.plugged import cell_texts
from atropos_cli.engine.analysis.report import EnvironmentReport
from atropos_cli.engine.analysis.svg import escape, number, svg
from atropos_cli.ports.analyzer import AnalysisTable


def page(report: Report, title: str, read: Sequence[str]) -> str:
    """The whole page. read: lines about what was read."""
    style = files("atropos_cli.engine.analysis").joinpath("page.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    lines = [*read, *report.notes]
    sections = [_environment(name, env, charts_of(env)) for name, env in report.environments.items()]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"<header><h1>{_text(title)}</h1>{''.join(f'<p>{_text(line)}</p>' for line in lines)}</header>\n"
        + "\n".join(sections)
        + "\n</body>\n</html>\n"
    )


def _environment(name: str, report: EnvironmentReport, charts: Iterable[Chart]) -> str:
    data = report.as_json()
    figures = "".join(
        f"<figure><figcaption>{_text(chart.title)}"
        + (f" <small>{_text(chart.note)}</small>" if chart.note else "")
        + f"</figcaption>{svg(chart)}</figure>"
        for chart in charts
    )
    return (
        f"<section><h2>{_text(name)}</h2>{_headlines(data)}{_distributions(data)}{_shares(data)}"
        f'<div class="charts">{figures}</div>{"".join(map(_plugin_table, report.tables))}{_tasks(data)}</section>'
    )


def _plugin_table(table: AnalysisTable) -> str:
    note = f"<p>{_text(table.note)}</p>" if table.note else ""
    return f"<div><h3>{_text(table.title)}</h3>{_table(table.columns, cell_texts(table))}{note}</div>"


def _headlines(data: dict[str, Any]) -> str:
    rollouts, stats, success = data["rollouts"], data["group_stats"], data["success"]
    cards = [
        ("rollouts", f"{rollouts['total']}", _rollouts_text(rollouts)),
        ("groups", f"{data['groups']}", _share_text(stats["frac_reward_zero_std"], "of equal rewards")),
    ]
    if data["reward"]["mean"] is not None:
        cards.append(("mean reward", number(data["reward"]["mean"]), f"over {rollouts['scored']} scored rollouts"))
    if success["of"]:
        detail = f"{success['count']} of {success['of']}; {success['rule']}; failed: {success['failed_attempts']}"
        cards.append(("success", f"{100 * success['rate']:.1f} %", detail))
    elif data["episodes"]:
        cards.append(("success", "-", success["rule"]))
    if data["groups_lost"]:
        cards.append(("failed as a whole", str(data["groups_lost"]), "groups that were not written"))
    return (
        '<div class="cards">'
        + "".join(
            f"<div><h3>{_text(a)}</h3><strong>{_text(b)}</strong><span>{_text(c)}</span></div>" for a, b, c in cards
        )
        + "</div>"
    )


def _rollouts_text(rollouts: dict[str, Any]) -> str:
    return f"{rollouts['scored']} scored, {rollouts['failed']} failed, {rollouts['unscored']} without a reward"


def _share_text(share: float | None, text: str) -> str:
    return "" if share is None else f"{100 * share:.1f} % {text}"


def summaries(data: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """(name, summary) of everything that has a distribution; metrics have no quantiles."""
    rows = [("reward", data["reward"]), *((f"reward {name}", value) for name, value in data["rewards"].items())]
    rows += [(name, data["length"][name]) for name in ("characters", "tokens", "turns") if data["length"][name]]
    rows += [(f"metric {name}", value) for name, value in data["metrics"].items()]
    if data["episodes"]:
        rows += [
            ("turns of an episode", data["episodes"]["turns"]),
            ("reward of an episode", data["episodes"]["reward"]),
        ]
    if len(data["task_names"]) > 1:
        rows += [(f"reward of {name}", value) for name, value in data["task_names"].items()]
    return [(name, row) for name, row in rows if row["count"]]


COLUMNS = ("count", "mean", "std", "min", "5 %", "25 %", "50 %", "75 %", "95 %", "max")


def summary_cells(row: dict[str, Any]) -> list[str]:
    """A summary as texts for COLUMNS."""
    quantiles = row.get("quantiles") or {}
    values = [row["mean"], row["std"], row["min"], *(quantiles.get(q) for q in ("0.05", "0.25", "0.5", "0.75", "0.95"))]
    return [str(row["count"]), *("" if value is None else f"{value:.4g}" for value in [*values, row["max"]])]


def _distributions(data: dict[str, Any]) -> str:
    return _table(("", *COLUMNS), [[name, *summary_cells(row)] for name, row in summaries(data)])


def _shares(data: dict[str, Any]) -> str:
    blocks = []
    ks = [
        [name, *(f"{point['mean']:.3f}" + (f" ± {point['stderr']:.3f}" if point["stderr"] else "") for point in points)]
        for name, points in (
            ("pass@k: at least one of k succeeds", data["pass_at_k"].values()),
            ("pass^k: all k succeed", data["pass_hat_k"].values()),
        )
        if points
    ]
    if ks:
        blocks.append(_table(("", *(f"k = {k}" for k in data["pass_at_k"])), ks))
    kept = [
        [f"reward {row['threshold']}", f"{row['kept']} of {row['total']}", f"{row['groups_kept']} of {row['groups']}"]
        for row in data["retention"]
        if row["total"]
    ]
    if kept:
        blocks.append(_table(("kept by", "rollouts", "groups"), kept))
    facts = [(name.replace("_", " "), count) for name, count in data["replies"].items() if count]
    if data["truncated"]["count"]:
        facts.append(("truncated", data["truncated"]["count"]))
    if facts:
        of = data["truncated"]["of"]
        blocks.append(_table(("replies", f"of {of}"), [[name, str(count)] for name, count in facts]))
    notes = "".join(f"<p>{_text(note)}</p>" for note in data["left_out"])
    return f'<div class="tables">{"".join(blocks)}</div>{notes}'


def _tasks(data: dict[str, Any]) -> str:
    blocks = []
    failed = [[row["task"], str(row["failed"])] for row in data["tasks"]["failed"]]
    if failed:
        title = f"Tasks of which nothing succeeded ({data['tasks']['all_failed']})"
        blocks.append(f"<div><h3>{title}</h3>{_table(('task', 'failed'), failed)}</div>")
    for title, rows in (("Best tasks", data["tasks"]["best"]), ("Worst tasks", data["tasks"]["worst"])):
        if rows:
            cells = [[row["task"], f"{row['reward_mean']:.4g}", str(row["scored"]), str(row["failed"])] for row in rows]
            blocks.append(f"<div><h3>{title}</h3>{_table(('task', 'mean reward', 'scored', 'failed'), cells)}</div>")
    return f'<div class="tables">{"".join(blocks)}</div>'


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{_text(cell)}</th>" for cell in header)
    body = "".join(
        "<tr>" + "".join(f"<{tag}>{_text(cell)}</{tag}>" for tag, cell in _tagged(row)) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _tagged(row: Sequence[str]) -> Iterable[tuple[str, str]]:
    return [("th", row[0]), *(("td", cell) for cell in row[1:])]


def _text(text: str) -> str:
    return f"<bdi>{escape(text)}</bdi>"
