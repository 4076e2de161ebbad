"""One run as a line of a list, from its small files: the groups themselves are not read, whatever their size.

Files are untrusted: they may be torn, of strangers, or of any shape, and make a line that says what is wrong.
"""

from __future__ import annotations

import contextlib
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from pydantic_core import from_json

from atropos_cli.domain.base import Frozen, JsonDict, clean_text, is_finite
from atropos_cli.io.jsonvalue import NotJson, dump, open_file, parse
from atropos_cli.paths import shell, shell_word
from atropos_cli.runs.counting import count_groups, metric_ends
from atropos_cli.runs.find import EVALUATION, PLAN, holds_rollouts, shards
from atropos_cli.runs.state import SETTLED, State, state_of, written_at
from atropos_cli.training.summary import FILE as TRAIN_FILE

Kind = Literal["gen", "eval", "train"]
KINDS: tuple[Kind, ...] = ("gen", "eval", "train")

_WHOLE = 8 << 20
"""Bytes of a file that is read whole. eval.json holds a row per task, behind what is wanted of it."""

_HEAD = 1 << 16
_TEXT = 300
_OPTIONS = 60
_SIGNED = (
    *(PLAN, "summary.json", TRAIN_FILE, EVALUATION, "log.jsonl", "metrics.jsonl", "lock", "exit.json"),
    *("groups.jsonl", "groups.jsonl.zst"),
)


class RunEntry(Frozen):
    """A run in the list of `atropos runs`. Values that are not known are null."""

    run: str = Field(description="The run folder.")
    kind: Kind = Field(description="gen, eval or train.")
    state: State = Field(
        description="running: a process holds its lock. finished. interrupted: by a signal or kill -9; it can be "
        "resumed. stopped: training ended early by a rule. failed. lost: on another machine, and silent for 15 "
        "minutes. planned: not begun. unreadable."
    )
    started: str | None = Field(default=None, description="Time of the first start, UTC.")
    updated: str | None = Field(default=None, description="When something was last written, UTC.")
    env: str | None = Field(default=None, description="The environment; of training that of its rollouts.")
    options: JsonDict = Field(default_factory=dict, description="The environment's options.")
    method: str | None = Field(default=None, description="Of training: grpo, sft, dpo, kto ...")
    trainer: str | None = Field(default=None, description="Of training: the trainer.")
    data: tuple[str, ...] = Field(default=(), description="Of training on stored rows: the files.")
    model: str | None = Field(default=None, description="The model.")
    backend: str | None = Field(default=None, description="The inference backend.")
    done: int | None = Field(default=None, description="Groups that are written; of training optimiser steps.")
    total: int | None = Field(default=None, description="Groups or steps in all, where the plan says.")
    unit: Literal["groups", "steps"] = Field(default="groups", description="What done and total count.")
    rollouts: int | None = Field(default=None, description="Rollouts.")
    rollouts_failed: int | None = Field(default=None, description="Rollouts that failed.")
    zero_std_groups: int | None = Field(default=None, description="Groups of equal rewards.")
    reward: float | None = Field(default=None, description="Mean reward; of training that of the last step.")
    reward_first: float | None = Field(default=None, description="Of training: mean reward of the first step.")
    accuracy: float | None = Field(default=None, description="Accuracy of the evaluation; of training the last one.")
    accuracy_first: float | None = Field(default=None, description="Of training: accuracy before the first step.")
    shards: int | None = Field(default=None, description="Number of shards, of a run in shards.")
    error: str | None = Field(default=None, description="What ended it, or why it cannot be read.")
    plan_digest: str | None = Field(default=None, description="Digest of the plan.")
    next: str | None = Field(default=None, description="A command to look at it, or to go on with it.")


class RunReader:
    """Reads runs; one that did not change since it was last read is not read again."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[Any, ...], RunEntry]] = {}

    def read(self, folder: Path) -> RunEntry:
        """The entry of a run folder, whatever is in it."""
        signature = _signature(folder)
        known = self._known.get(folder)
        if known is not None and known[0] == signature and known[1].state in SETTLED and known[1].shards is None:
            return known[1]
        try:
            entry = _entry(folder)
        except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            entry = RunEntry(run=str(folder), kind="gen", state="unreadable", error=_short(error))
        self._known[folder] = (signature, entry)
        return entry


def _signature(folder: Path) -> tuple[Any, ...]:
    found: list[Any] = []
    for name in _SIGNED:
        try:
            status = (folder / name).stat()
        except OSError:
            found.append(None)
        else:
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)


def _entry(folder: Path, *, whole: bool = True) -> RunEntry:
    plan = object_in(folder / PLAN)
    if (folder / TRAIN_FILE).exists() or plan.get("command") == "train":
        return _training(folder, plan)
    parts = shards(folder) if whole else []  # a shard has none of its own, unless links lead in a circle
    if parts and not (folder / "summary.json").exists():
        return _sharded(folder, parts)
    return _rollouts(folder, plan)


def _rollouts(folder: Path, plan: dict[str, Any]) -> RunEntry:
    """A run of gen or eval."""
    summary = object_in(folder / "summary.json")
    begin = first_start(folder)
    done = max(_whole(summary.get("groups_done")) or 0, count_groups(folder, _mtime(folder / "summary.json")))
    total = _whole(summary.get("groups_total"))
    if total is None:
        total = _whole(begin.get("total")) if begin else None
    if total is None:
        total = _whole(plan.get("limit"))
    recorded = summary.get("state")
    state = state_of(
        folder, recorded, complete=total is not None and done >= total, begun=bool(begin) or done > 0 or not plan
    )
    if not plan and not summary and (folder / PLAN).exists():
        return RunEntry(run=str(folder), kind="gen", state="unreadable", error=f"{PLAN} holds no plan")
    found = object_in(folder / EVALUATION, head=True)
    # A run of eval shows itself by its plan until eval.json is there.
    likely = state != "finished" and plan.get("advantage") == "none" and plan.get("logprobs") == "off"
    kind: Kind = "eval" if found or likely else "gen"
    return RunEntry(
        run=str(folder),
        kind=kind,
        state=state,
        env=_text(summary.get("env")) or _name(plan.get("environment")),
        options=_options(plan.get("environment")),
        model=_text(plan.get("model")) or _text(summary.get("model")),
        backend=_name(plan.get("backend")),
        done=done,
        total=total,
        rollouts=_whole(summary.get("rollouts")),
        rollouts_failed=_whole(summary.get("rollouts_failed")),
        zero_std_groups=_whole(summary.get("zero_std_groups")),
        reward=_number(summary.get("reward_mean")),
        accuracy=_number(_part(found, "accuracy").get("value")),
        error=_text(summary.get("error")) if state != "running" else None,
        **_common(folder, plan, begin, state, kind),
    )


def _own_data(plan: dict[str, Any]) -> tuple[str, ...]:
    """The data of a method that reads its own, where its trainer calls them `dataset`."""
    name = _text(_part(_part(plan, "trainer"), "config").get("dataset"))
    return () if name is None else (name,)


def _training(folder: Path, plan: dict[str, Any]) -> RunEntry:
    told = object_in(folder / TRAIN_FILE)
    begin = first_start(folder)
    first, last = metric_ends(folder)
    done = max(_whole(told.get("steps")) or _whole(told.get("step")) or 0, _whole(last.get("step", (0,))[0]) or 0)
    total = _whole(plan.get("steps"))
    complete = total is not None and done >= total
    state = state_of(folder, told.get("state"), complete=complete, begun=bool(begin) or bool(told))
    accuracy = next((name for name in first if name.startswith("eval/") and name.endswith("/accuracy")), "")
    rollouts = _part(plan, "rollouts")
    return RunEntry(
        run=str(folder),
        kind="train",
        state=state,
        env=_name(rollouts.get("environment")),
        options=_options(rollouts.get("environment")),
        method=_text(told.get("method")) or _text(plan.get("method")),
        trainer=_text(told.get("trainer")) or _name(plan.get("trainer")),
        data=_texts(plan.get("data")) or _own_data(plan),
        model=_text(told.get("model")) or _text(plan.get("model")),
        backend=_name(rollouts.get("backend")),
        done=done,
        total=total,
        unit="steps",
        **_from_to("reward", first.get("reward"), last.get("reward")),
        **_from_to("accuracy", first.get(accuracy), last.get(accuracy)),
        error=(_text(told.get("error")) or _text(told.get("stopped"))) if state != "running" else None,
        **_common(folder, plan, begin, state, "train"),
    )


def _from_to(name: str, first: tuple[Any, Any] | None, last: tuple[Any, Any] | None) -> dict[str, Any]:
    """The last value, and the first one where that is of another step."""
    if last is None or first is None:
        return {}
    return {name: _number(last[0]), f"{name}_first": _number(first[0]) if first[1] != last[1] else None}


def _sharded(folder: Path, parts: list[Path]) -> RunEntry:
    """A run whose shards are not joined yet: together what they are one by one."""
    entries = [_entry(part, whole=False) for part in parts]
    states = {entry.state for entry in entries}
    order: tuple[State, ...] = ("running", "failed", "lost", "unreadable", "interrupted", "planned", "finished")
    state = next((state for state in order if state in states), "interrupted")
    if state == "planned" and "finished" in states:
        state = "interrupted"
    sums = {
        name: sum(values) if (values := [v for e in entries if (v := getattr(e, name)) is not None]) else None
        for name in ("done", "total", "rollouts", "rollouts_failed", "zero_std_groups")
    }
    scored = [(entry.reward, entry.rollouts or 0) for entry in entries if entry.reward is not None]
    weight = sum(count for _, count in scored)
    joined: RunEntry = entries[0].replace(
        run=str(folder),
        state=state,
        shards=len(parts),
        reward=sum(reward * count for reward, count in scored) / weight if weight else None,
        started=min((entry.started for entry in entries if entry.started), default=None),
        updated=max((entry.updated for entry in entries if entry.updated), default=None),
        error=next((f"shard {i}: {entry.error}" for i, entry in enumerate(entries) if entry.error), None),
        next=None,
        **sums,
    )
    return joined


def _common(
    folder: Path, plan: dict[str, Any], begin: dict[str, Any] | None, state: State, kind: Kind
) -> dict[str, Any]:
    return {
        "started": _utc(begin.get("time") if begin else None) or _iso(_mtime(folder / PLAN) or _mtime(folder)),
        "updated": _iso(written_at(folder)),
        "plan_digest": _text(plan.get("digest")),
        "next": next_step(folder, state, kind),
    }


def next_step(folder: Path, state: State, kind: Kind) -> str | None:
    """What to type next. An evaluation is gone on with by its own command, which counts it in the end."""
    if state in ("interrupted", "lost", "planned"):
        again = f"the atropos eval command again, with --resume --output {shell_word(folder)}"
        return again if kind == "eval" else shell("run", folder)
    return None if state == "unreadable" or not holds_rollouts(folder) else shell("view", folder)


def first_start(folder: Path) -> dict[str, Any] | None:
    """The first start event of the log."""
    with contextlib.suppress(OSError), open_file(folder / "log.jsonl") as file:
        for line in file.read(_HEAD).splitlines():
            if b'"started"' in line:
                with contextlib.suppress(NotJson):
                    value, _ = parse(line)
                    if isinstance(value, dict) and value.get("event") == "started":
                        return value
    return None


def object_in(path: Path, *, head: bool = False) -> dict[str, Any]:
    """The JSON object in a file; empty when there is none. head: of a large one as much as its beginning holds."""
    try:
        with open_file(path) as file:
            if os.fstat(file.fileno()).st_size > _WHOLE:
                value = from_json(file.read(_HEAD), allow_partial=True) if head else {}
            else:
                value, _ = parse(file.read(_WHOLE))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _mtime(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _iso(seconds: float | None) -> str | None:
    """None for a time that no calendar has: file systems keep any number."""
    with contextlib.suppress(ValueError, OverflowError, OSError):
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    return None


def _utc(text: object) -> str | None:
    """A time in any zone and notation as we write it; None for what is none."""
    with contextlib.suppress(ValueError, OverflowError, TypeError):
        found = datetime.fromisoformat(text)  # type: ignore[arg-type]
        found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
        return found.isoformat(timespec="seconds")
    return None


def _part(value: dict[str, Any], name: str) -> dict[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _name(component: object) -> str | None:
    return _text(component.get("name")) if isinstance(component, dict) else None


def _options(component: object) -> JsonDict:
    config = component.get("config") if isinstance(component, dict) else None
    if not isinstance(config, dict):
        return {}
    options, _ = parse(dump(dict(list(config.items())[:_OPTIONS])))  # without values that are not finite
    return dict(options)


def _text(value: object) -> str | None:
    return clean_text(value)[:_TEXT] if isinstance(value, str) and value else None


def _texts(value: object) -> tuple[str, ...]:
    return tuple(clean_text(str(item))[:_TEXT] for item in value[:20]) if isinstance(value, list) else ()


def _whole(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 62 else None


def _number(value: object) -> float | None:
    return float(value) if is_finite(value) else None


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:_TEXT]
