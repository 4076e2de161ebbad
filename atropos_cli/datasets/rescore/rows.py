"""Write new scores into rows of any format; the old ones stay beside them, with the scorer that gave them.

    native        rollout.rewards, reward, failure; info.score_history, info.scorer
    atropos       scores, score_errors; score_history: [{scores, scorer}], scorer
    dump          of each rollout: one row each
    one rollout   score (or the field it had: reward); score_error; score_history: [{score, scorer}], scorer
    pairs         score_chosen, score_rejected
    solutions     the list of scores it had, else `score`; NAME.score for one object a solver

`scorer` maps each reward to its weight, version and a digest of its code, and to what it says of itself (`details`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from atropos_cli.io.formats.solutions import score_field, solvers
from atropos_cli.io.records import Record, Row, StoredRollout
from atropos_cli.rollout.advantages import advantages
from atropos_cli.rollout.workers import Verdict

Scorer = dict[str, dict[str, Any]]


def scorer_of(described: Sequence[dict[str, Any]]) -> Scorer:
    """The stored description of the rewards: {name: {weight, version, code}}, and details where they say some."""
    found: Scorer = {}
    for info in described:
        dist, version = info.get("dist"), info.get("version")
        told = " ".join(part for part in (dist, version) if part)
        found[info["name"]] = {"weight": info["weight"], "version": told or None, "code": info.get("code")}
        if info.get("details"):
            found[info["name"]]["details"] = info["details"]
    return found


def scored_rows(record: Record, verdicts: Sequence[Verdict], scorer: Scorer, advantage: str) -> list[Row]:
    """The record's rows with the verdicts, one for each rollout. advantage: kind to recompute in native groups."""
    return _WRITERS.get(record.format, _single)(record, verdicts, scorer, advantage)


def is_kept(rollout: StoredRollout) -> bool:
    """A rollout that failed before it was scored stays as it is."""
    return rollout.failure is not None and rollout.failure.get("stage") != "score"


def _error(verdict: Verdict) -> Row | None:
    if verdict.failure is None:
        return None
    return {key: verdict.failure[key] for key in ("type", "message")}


def _native(record: Record, verdicts: Sequence[Verdict], scorer: Scorer, advantage: str) -> list[Row]:
    raw = dict(record.raw)
    rows = []
    for rollout, verdict in zip(record.rollouts, verdicts, strict=True):
        if is_kept(rollout):
            rows.append(rollout.raw)
            continue
        row = {key: value for key, value in rollout.raw.items() if key not in ("reward", "failure")}
        info = dict(row.get("info") or {})
        old = {"reward": rollout.score, "rewards": rollout.rewards, "scorer": info.get("scorer")}
        info["score_history"] = [*(info.get("score_history") or []), old]
        info["scorer"] = scorer
        row |= {"info": info, "rewards": verdict.rewards}
        if verdict.metrics:
            row["metrics"] = {**(row.get("metrics") or {}), **verdict.metrics}
        if verdict.failure is not None:
            row["failure"] = verdict.failure
        else:
            row["reward"] = verdict.reward
        rows.append(row)
    raw["rollouts"] = rows
    if raw.get("advantages") is not None:
        found = advantages(advantage, [row.get("reward") for row in rows])
        raw["advantages"] = list(found) if found is not None else None
    return [raw]


def _parallel(record: Record, verdicts: Sequence[Verdict], scorer: Scorer, advantage: str) -> list[Row]:
    raw = _with_history(record.raw, {"scores": record.scores}, scorer)
    raw["scores"] = [verdict.reward for verdict in verdicts]
    _set_errors(raw, verdicts)
    if raw.get("advantages") is not None:
        raw["advantages"] = None  # they came from the old scores
    return [raw]


def _set_errors(raw: Row, verdicts: Sequence[Verdict]) -> None:
    raw.pop("score_errors", None)
    if any(verdict.failure is not None for verdict in verdicts):
        raw["score_errors"] = [_error(verdict) for verdict in verdicts]


def _with_history(source: Row, old: Row, scorer: Scorer) -> Row:
    raw = dict(source)
    raw["score_history"] = [*(raw.get("score_history") or []), {**old, "scorer": raw.get("scorer")}]
    raw["scorer"] = scorer
    return raw


def _single(record: Record, verdicts: Sequence[Verdict], scorer: Scorer, advantage: str) -> list[Row]:
    if len(record.rollouts) == 2 and record.rollouts[0].label is not None:
        return _pair(record, verdicts, scorer)
    return [_one(rollout, verdict, scorer) for rollout, verdict in zip(record.rollouts, verdicts, strict=True)]


def _one(rollout: StoredRollout, verdict: Verdict, scorer: Scorer) -> Row:
    raw = _with_history(rollout.raw, {"score": rollout.score}, scorer)
    raw["reward" if "reward" in raw and "score" not in raw else "score"] = verdict.reward
    raw.pop("score_error", None)
    if verdict.failure is not None:
        raw["score_error"] = _error(verdict)
    return raw


def _dump(record: Record, verdicts: Sequence[Verdict], scorer: Scorer, advantage: str) -> list[Row]:
    pairs = zip(record.rollouts, verdicts, strict=True)
    return [{**record.raw, "rollouts": [_one(rollout, verdict, scorer) for rollout, verdict in pairs]}]


def _pair(record: Record, verdicts: Sequence[Verdict], scorer: Scorer) -> list[Row]:
    raw = _with_history(record.raw, {"scores": record.scores}, scorer)
    raw["score_chosen"], raw["score_rejected"] = (verdict.reward for verdict in verdicts)
    _set_errors(raw, verdicts)
    return [raw]


def _solutions(record: Record, verdicts: Sequence[Verdict], scorer: Scorer, advantage: str) -> list[Row]:
    raw = _with_history(record.raw, {"scores": record.scores}, scorer)
    names = solvers(raw)
    if names:
        for name, verdict in zip(names, verdicts, strict=True):
            raw[name] = {**raw[name], "score": verdict.reward}
    else:
        raw[score_field(raw) or ("scores" if "score" in raw else "score")] = [verdict.reward for verdict in verdicts]
    _set_errors(raw, verdicts)
    return [raw]


_WRITERS: dict[str, Callable[[Record, Sequence[Verdict], Scorer, str], list[Row]]] = {
    "native": _native,
    "atropos": _parallel,
    "dump": _dump,
    "solutions": _solutions,
}
