"""What is known about a run besides its rollouts: when it was made, with which model and options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from atropos_cli.sdk.data import Record
from atropos_cli.sdk.runs import first_start, object_in
from atropos_view.page.runs import Run

_OPTIONS = 200
_BRIEF = 300
_NOT_OPTIONS = frozenset({"digest", "schema_version", "atropos_version", "command", "model", "execution", "writer"})
_NAMED = {"environment": "env", "backend": "backend"}


def about(run: Run) -> dict[str, Any]:
    """{model, env, made, command, state, version, options: [[name, value], ...]}; what is not known is left out."""
    source = next(iter(run.sources), None)
    folder = source.run if source is not None else None
    plan = object_in(folder / "plan.json") if folder is not None else {}
    summary = object_in(folder / "summary.json") if folder is not None else {}
    start = first_start(folder) if folder is not None else None
    facts: dict[str, Any] = {
        "model": plan.get("model") or summary.get("model"),
        "env": summary.get("env") or _name(plan.get("environment")),
        "command": plan.get("command"),
        "state": summary.get("state"),
        "version": plan.get("atropos_version"),
        "made": start.get("time") if start is not None else None,
    }
    if source is not None and source.path is not None and not facts["made"]:
        facts["made"] = _modified(source.path)
    if len(run) and not (facts["model"] and facts["env"]):
        first = run.group(0)
        if isinstance(first, Record):
            facts["model"] = facts["model"] or first.model
            facts["env"] = facts["env"] or first.env or first.task_name
    found = {name: _shown(value) for name, value in facts.items() if value}
    return {**found, "options": list(_options(plan))[:_OPTIONS]}


def heading(names: list[str], facts: list[dict[str, Any]]) -> str:
    """The title of a page: what is shown or compared, and where that tells them apart, by which models."""
    if len(names) == 1:
        known = ", ".join(str(facts[0][key]) for key in ("env", "model") if key in facts[0])
        return f"{names[0]} ({known})" if known else names[0]
    models = [fact.get("model", "") for fact in facts]
    if models[0] != models[1]:
        names = [f"{name} ({model})" if model else name for name, model in zip(names, models, strict=True)]
    return f"{names[0]} compared with {names[1]}"


def _options(plan: Mapping[str, Any]) -> Iterator[list[str]]:
    """[name, value] of each option that shapes a run."""
    for name, value in plan.items():
        if name in _NOT_OPTIONS:
            continue
        if isinstance(value, dict) and "config" in value:  # a component with options of its own
            yield [_NAMED.get(name, name), _shown(value.get("name"))]
            config = value["config"] if isinstance(value["config"], dict) else {}
            yield from ([f"{_NAMED.get(name, name)}.{key}", _shown(one)] for key, one in config.items())
        elif isinstance(value, dict):
            yield from ([f"{name}.{key}", _shown(one)] for key, one in value.items())
        elif isinstance(value, list) and all(isinstance(one, dict) and "name" in one for one in value):
            yield [name, ", ".join(_shown(one["name"]) for one in value)]
        else:
            yield [name, _shown(value)]


def _shown(value: Any) -> str:
    from atropos_view.page.parts import plain

    text = "not set" if value is None else plain(value)
    return text if len(text) <= _BRIEF else text[:_BRIEF] + "…"


def _name(component: Any) -> Any:
    return component.get("name") if isinstance(component, dict) else None


def _modified(path: Path) -> str | None:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
    except OSError:
        return None
