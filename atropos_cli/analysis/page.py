"""The report as one HTML page: no scripts, nothing loaded from anywhere, every text escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

from atropos_cli.analysis.analysis import Report
from atropos_cli.analysis.charts import charts_of
from atropos_cli.analysis.plugged import cell_texts
from atropos_cli.analysis.report import EnvironmentReport
from atropos_cli.analysis.summaries import (
    COLUMNS,
    difference_rows,
    interval,
    no_pass,
    ranked_tasks,
    retention_rows,
    succeeded_and_failed,
    summary_cells,
    told,
)
from atropos_cli.ports.analyzer import AnalysisTable
from atropos_cli.stats.charts import Chart
from atropos_cli.stats.svg import escape, figure


def page(report: Report, title: str, read: Sequence[str]) -> str:
    """The whole page. read: lines about what was read."""
    style = files("atropos_cli.analysis").joinpath("page.css").read_text("utf-8")
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
    return (
        f"<section><h2>{_text(name)}</h2>{_headlines(data)}{_differences(data)}{_distributions(data)}{_shares(data)}"
        f'<div class="charts">{"".join(map(figure, charts))}</div>{"".join(map(_plugin_table, report.tables))}'
        f"{_tasks(data)}</section>"
    )


def _plugin_table(table: AnalysisTable) -> str:
    note = f"<p>{_text(table.note)}</p>" if table.note else ""
    return f"<div><h3>{_text(table.title)}</h3>{_table(table.columns, cell_texts(table))}{note}</div>"


def _headlines(data: dict[str, Any]) -> str:
    rollouts, stats, success = data["rollouts"], data["group_stats"], data["success"]
    cards = []
    if data["reward"]["mean"] is not None:
        ci = data["reward"]["ci95_over_tasks"]
        over = f"95 % interval over {ci['tasks']} tasks; " if ci is not None else ""
        scored = "1 scored rollout" if rollouts["scored"] == 1 else f"{rollouts['scored']} scored rollouts"
        cards.append(("mean reward", interval(data), over + scored))
    if stats["groups"]:
        differing = round((1 - stats["frac_reward_zero_std"]) * stats["groups"])
        at = [
            f"{100 * share:.0f} % all at the {end}"
            for end, share in (("maximum", stats["frac_all_max"]), ("minimum", stats["frac_all_min"]))
            if share
        ]
        detail = "; ".join(at) or "rewards that differ within the group"
        cards.append(("groups with spread", f"{differing} of {stats['groups']}", detail))
    if success["of"]:
        detail = f"{success['count']} of {success['of']}; {success['rule']}; failed: {success['failed_rollouts']}"
        cards.append(("success", f"{100 * success['rate']:.1f} %", detail))
    elif data["episodes"]:
        cards.append(("success", "-", success["rule"]))
    cards.append(("rollouts", f"{rollouts['total']}", _rollouts_text(rollouts)))
    if data["failures"]:
        stages = ", ".join(f"{name} {count}" for name, count in list(data["failures"].items())[:4])
        cards.append(("failed rollouts", str(rollouts["failed"]), stages))
    if data["groups_lost"]:
        cards.append(("failed as a whole", str(data["groups_lost"]), "groups that were not written"))
    return (
        '<div class="cards">'
        + "".join(
            f"<div><h3>{_text(a)}</h3><strong>{_text(b)}</strong><span>{_text(c)}</span></div>" for a, b, c in cards
        )
        + "</div>"
    )


def _differences(data: dict[str, Any]) -> str:
    """Tables of where rewards differ, the most telling first."""
    tables = []
    for difference in data["differences"]:
        header, rows = difference_rows(difference)
        share = difference["explained"]
        note = f"explains {100 * share:.0f} % of the variance of rewards" if share is not None else "no difference"
        tables.append(f"<div>{_table(header, rows)}<p>{note}</p></div>")
    return f'<h3>Differences</h3><div class="tables">{"".join(tables)}</div>' if tables else ""


def _rollouts_text(rollouts: dict[str, Any]) -> str:
    parts = [("scored", rollouts["scored"]), ("failed", rollouts["failed"]), ("without a reward", rollouts["unscored"])]
    return ", ".join(f"{count} {name}" for name, count in parts if count) or "none"


def _distributions(data: dict[str, Any]) -> str:
    found = told(data)
    rows = [[name, *summary_cells(row)] for name, row in found.varying]
    lines = "".join(f"<li><b>{name}:</b> {_text(text)}</li>" for name, text in found.remarks.items())
    remarks = f'<ul class="remarks">{lines}</ul>' if lines else ""
    return (_table(("", *COLUMNS), rows) if rows else "") + remarks


def _shares(data: dict[str, Any]) -> str:
    blocks = []
    ks = [
        [name, *(f"{point['mean']:.3f}" + (f" ± {point['stderr']:.3f}" if point["stderr"] else "") for point in points)]
        for name, points in (
            ("pass@k: at least one of k succeeds", data["pass_at_k"].values()),
            ("pass^k: all k succeed", data["pass_hat_k"].values()),
        )
        if points and succeeded_and_failed(data)
    ]
    if ks:
        blocks.append(_table(("", *(f"k = {k}" for k in data["pass_at_k"])), ks))
    kept = [
        [f"reward {row['threshold']}", f"{row['kept']} of {row['total']}", f"{row['groups_kept']} of {row['groups']}"]
        for row in retention_rows(data)
    ]
    if kept:
        blocks.append(_table(("kept by", "rollouts", "groups"), kept))
    facts = [(name.replace("_", " "), count) for name, count in data["replies"].items() if count]
    if data["truncated"]["count"]:
        facts.append(("truncated", data["truncated"]["count"]))
    if facts:
        of = data["truncated"]["of"]
        blocks.append(_table(("replies", f"of {of}"), [[name, str(count)] for name, count in facts]))
    notes = "".join(f"<p>{_text(note)}</p>" for note in [no_pass(data), *data["left_out"]] if note)
    return f'<div class="tables">{"".join(blocks)}</div>{notes}'


def _tasks(data: dict[str, Any]) -> str:
    blocks = []
    failed = [[row["task"], str(row["failed"])] for row in data["tasks"]["failed"]]
    if failed:
        title = f"Tasks of which nothing succeeded ({data['tasks']['all_failed']})"
        blocks.append(f"<div><h3>{title}</h3>{_table(('task', 'failed'), failed)}</div>")
    for title, rows in ranked_tasks(data):
        cells = [[row["task"], f"{row['reward_mean']:.4g}", str(row["scored"]), str(row["failed"])] for row in rows]
        table = _table(("task", "mean reward", "scored", "failed"), cells)
        blocks.append(f"<div><h3>{title.capitalize()}</h3>{table}</div>")
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
