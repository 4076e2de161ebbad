"""The experiment journal: the trainings and evaluations below a folder, with their dates, commits and results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from atropos_cli.sdk import DataError
from atropos_cli.sdk.analysis import Evaluation, estimate, read_evaluation
from atropos_cli.sdk.data import read_object
from atropos_cli.sdk.launchers import Frozen
from atropos_cli.sdk.outputs import tracker_ids
from atropos_cli.sdk.records import STATE_FILE, run_state
from atropos_cli.sdk.runs import find_runs, state_of
from atropos_tracking.reevaluations import read_reevaluations


class JournalEntry(Frozen):
    """One run. results: main numbers by name. reevaluated: those of stored checkpoints, by checkpoint."""

    kind: Literal["train", "eval"]
    run: str
    started: str | None = None
    state: str | None = None
    what: str = ""
    model: str | None = None
    steps: int | None = None
    plan_digest: str | None = None
    git_commit: str | None = None
    wandb: str | None = None
    results: dict[str, str] = Field(default_factory=dict)
    reevaluated: dict[str, dict[str, float]] = Field(default_factory=dict)
    note: str | None = None


def journal(folder: Path) -> tuple[list[JournalEntry], list[str]]:
    """The runs below a folder in the order they were started, and what could not be read. Raises DataError."""
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder", hint="atropos journal FOLDER, where the run folders are")
    entries: list[JournalEntry] = []
    found = find_runs([folder])
    problems = found.problems
    for run in found.runs:
        training = (run / STATE_FILE).exists()
        if not training and not ((run / "eval.json").exists() and (run / "plan.json").exists()):
            continue
        try:
            entries.append(_training(run, folder) if training else _evaluation(run, folder))
        except (DataError, OSError, ValueError, TypeError, AttributeError, KeyError) as error:
            problems.append(f"{run}: {error}")
    entries.sort(key=lambda entry: (entry.started or "", entry.run))
    return entries, sorted(problems)


def _training(run: Path, root: Path) -> JournalEntry:
    state: dict[str, Any] = read_object(run / STATE_FILE)
    plan = read_object(run / "plan.json") if (run / "plan.json").exists() else {}
    if state.get("state") == "running":  # the state is of the start; the records know how far it got
        state |= run_state(run)
        state["state"] = state_of(run, "running")
    results = {}
    for name, curve in (state.get("curves") or {}).items():
        if name == "reward" or name.endswith("/accuracy"):
            best = "" if curve.get("best") is None else f" (best {curve['best']:.3f} at {curve['best_step']})"
            results[name.removeprefix("eval/")] = f"{curve['first']:.3f} -> {curve['last']:.3f}{best}"
    tracked = (state.get("trackers") or {}).get("wandb") or {}
    source = ((plan.get("rollouts") or {}).get("environment") or {}).get("name") or ", ".join(plan.get("data") or ())
    note = state.get("error") or (f"stopped: {state['stopped']}" if state.get("stopped") else None)
    if changes := _changed_data(run):
        note = "; ".join(filter(None, (f"its rows changed and were accepted, {changes} times", note)))
    return JournalEntry(
        kind="train",
        run=str(run.relative_to(root)),
        started=_first_start(run) or state.get("started"),
        state=state.get("state"),
        what=" ".join(filter(None, (state.get("method"), f"({state.get('trainer')})", source and f"on {source}"))),
        model=state.get("model"),
        steps=state.get("steps"),
        plan_digest=state.get("plan_digest"),
        git_commit=state.get("git_commit"),
        wandb=tracked.get("id"),
        results=results,
        reevaluated=read_reevaluations(run),
        note=note,
    )


def _changed_data(run: Path) -> int:
    """How often the training was resumed with other rows (--accept-changed-data)."""
    path = run / "data.json"
    return len(read_object(path).get("earlier") or ()) if path.exists() else 0


def _evaluation(run: Path, root: Path) -> JournalEntry:
    found: Evaluation = read_evaluation(run)
    results = {"accuracy": estimate(found.accuracy)}
    results |= {f"pass@{k}": estimate(value) for k, value in found.pass_at.items() if k != "1"}
    if found.reward is not None:
        results["reward"] = estimate(found.reward)
    summary = run / "summary.json"
    state = read_object(summary).get("state") if summary.exists() else None
    return JournalEntry(
        kind="eval",
        run=str(run.relative_to(root)),
        started=_first_start(run) or _modified(run / "eval.json"),
        state=state,
        what=f"{found.environment} ({found.split}, {found.tasks} tasks x {found.samples})",
        model=found.model,
        plan_digest=found.plan_digest,
        git_commit=_commit_of(run),
        wandb=(tracker_ids(run).get("wandb") or {}).get("id"),
        results=results,
    )


def _events(run: Path) -> Iterator[dict[str, Any]]:
    """The start events of a run's log."""
    path = run / "log.jsonl"
    if path.exists():
        with path.open("rb") as file:
            for line in file:
                if b'"event": "started"' in line and line.endswith(b"\n"):
                    yield json.loads(line)


def _first_start(run: Path) -> str | None:
    return next((str(event["time"]) for event in _events(run) if "time" in event), None)


def _commit_of(run: Path) -> str | None:
    return next((str(event["git_commit"]) for event in _events(run) if event.get("git_commit")), None)


def _modified(path: Path) -> str:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")


def short_commit(commit: str | None) -> str:
    """Ten digits, and the mark of local changes."""
    return "" if not commit else commit[:10] + ("+" if commit.endswith("+") else "")
