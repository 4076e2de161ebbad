"""What a report shows of its numbers: those that vary in a table, those that never do in a line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Row = tuple[str, dict[str, Any]]
"""A name, and the summary of its values."""

COLUMNS = ("count", "mean", "std", "min", "5 %", "25 %", "50 %", "75 %", "95 %", "max")


@dataclass(frozen=True, slots=True)
class Told:
    """varying: for the table. constant: "name value". twins: names of numbers that are those of another."""

    varying: list[Row]
    constant: list[str]
    twins: list[str]

    @property
    def remarks(self) -> dict[str, str]:
        """Lines that stand beside the table."""
        lines = {"constant": ", ".join(self.constant), "the same": ", ".join(self.twins)}
        return {name: text for name, text in lines.items() if text}


def told(data: dict[str, Any]) -> Told:
    """The summaries of an environment's report, parted. The reward is always in the table."""
    found = Told([], [], [])
    seen: dict[tuple[Any, ...], str] = {}
    for name, row in _all(data):
        if row["min"] == row["max"] and name != "reward":
            found.constant.append(f"{name} {row['min']:.4g}")
            continue
        key = (row["count"], row["mean"], row["std"], row["min"], row["max"], *row.get("quantiles", {}).values())
        twin = seen.setdefault(key, name)
        if twin == name:
            found.varying.append((name, row))
        else:
            found.twins.append(f"{name} = {twin}")
    return found


def _all(data: dict[str, Any]) -> list[Row]:
    """(name, summary) of everything that has a distribution."""
    rows = [("reward", data["reward"]), *((f"reward {name}", value) for name, value in data["rewards"].items())]
    rows += [(name, data["length"][name]) for name in ("characters", "tokens", "turns") if data["length"][name]]
    rows += [(f"metric {name}", value) for name, value in data["metrics"].items()]
    if data["episodes"]:
        rows += [
            ("turns of an episode", data["episodes"]["turns"]),
            ("reward of an episode", data["episodes"]["reward"]),
        ]
    return [(name, row) for name, row in rows if row["count"]]


def summary_cells(row: dict[str, Any]) -> list[str]:
    """A summary as texts for COLUMNS."""
    quantiles = row.get("quantiles") or {}
    values = [row["mean"], row["std"], row["min"], *(quantiles.get(q) for q in ("0.05", "0.25", "0.5", "0.75", "0.95"))]
    return [str(row["count"]), *("" if value is None else f"{value:.4g}" for value in [*values, row["max"]])]


def succeeded_and_failed(data: dict[str, Any]) -> bool:
    """Only then pass@k says more than that."""
    success = data["success"]
    return bool(0 < success["count"] < success["of"])


def no_pass(data: dict[str, Any]) -> str:
    """Why there is no pass@k; empty where there is, or where there is no rule of success."""
    success = data["success"]
    if not success["of"] or succeeded_and_failed(data):
        return ""
    which = f"{'all' if success['count'] else 'none'} of {success['of']} rollouts succeeded"
    if success["of"] == 1:
        which = f"the only rollout {'succeeded' if success['count'] else 'failed'}"
    return f"pass@k: {which}, by {success['rule']}"


def interval(data: dict[str, Any]) -> str:
    """The mean reward and its 95 % interval over tasks, which are what was sampled."""
    reward, ci = data["reward"], data["reward"]["ci95_over_tasks"]
    if reward["mean"] is None:
        return "-"
    return f"{reward['mean']:.3f}" + (f" ± {ci['half']:.3f}" if ci is not None else "")


def difference_rows(difference: dict[str, Any]) -> tuple[tuple[str, ...], list[list[str]]]:
    """(header, rows) of one table of differences."""
    failed = any(part["failed"] for part in difference["parts"])
    header = (difference["by"], "mean reward", "groups", "with spread", *(("failed rollouts",) if failed else ()))
    rows = []
    for part in difference["parts"]:
        mean, error = part["reward_mean"], part["reward_stderr"]
        text = "-" if mean is None else f"{mean:.3f}" + (f" ± {error:.3f}" if error else "")
        spread = f"{part['groups_with_spread']} of {part['groups_compared']}" if part["groups_compared"] else "-"
        cells = [part["value"], text, str(part["groups"]), spread]
        rows.append([*cells, *((f"{part['failed']} of {part['rollouts']}",) if failed else ())])
    return header, rows


def retention_rows(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Thresholds with what they keep; those that keep the same in one row."""
    rows: list[dict[str, Any]] = []
    for row in data["retention"]:
        if not row["total"]:
            continue
        if rows and (rows[-1]["kept"], rows[-1]["groups_kept"]) == (row["kept"], row["groups_kept"]):
            rows[-1] = rows[-1] | {"threshold": f"{rows[-1]['threshold']}, {row['threshold']}"}
        else:
            rows.append(row)
    return rows


def ranked_tasks(data: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    """(title, tasks): best and worst, or all of them where the two would be the same; none that are all alike."""
    best, worst = data["tasks"]["best"], data["tasks"]["worst"]
    if len({task["reward_mean"] for task in (*best, *worst)}) < 2:
        return []
    if len(best) == data["tasks"]["count"] - data["tasks"]["all_failed"]:
        return [("tasks", best)]
    return [("best tasks", best), ("worst tasks", worst)]
