"""A data card beside each output: its inputs, options, and the rows left out.

write_card(output, card)    out.jsonl -> out.jsonl.card.json and out.jsonl.card.md
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import atropos_cli
from atropos_cli.errors import DataError
from atropos_cli.io.append import atomic_write
from atropos_cli.io.jsonvalue import read_object
from atropos_cli.io.readers import ReadLog
from atropos_cli.io.rundir import now
from atropos_cli.io.sources import Source
from atropos_cli.io.writers_out import DataOutput

CARD_VERSION = 1


def file_digest(path: Path) -> str:
    """sha256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe_source(source: Source) -> dict[str, Any]:
    """Name, size and sha256; of a run also its plan's digest, environment, model and rewards."""
    found: dict[str, Any] = {"name": source.name}
    if source.path is not None:
        found |= {"bytes": source.path.stat().st_size, "sha256": file_digest(source.path)}
    plan = source.run / "plan.json" if source.run is not None else None
    if plan is not None and plan.exists():
        found["run"] = _describe_plan(plan)
    return found


def _describe_plan(path: Path) -> dict[str, Any]:
    try:
        stored = read_object(path)
        plan = stored.get("rollouts") or stored  # a training run's groups are those of its rollouts
        return {
            "plan_digest": stored.get("digest"),
            "environment": plan["environment"]["name"],
            "model": plan.get("model"),
            "atropos_version": stored.get("atropos_version"),
            "rewards": {reward["name"]: reward.get("weight", 1.0) for reward in plan.get("rewards", ())},
            "seed": plan.get("seed"),
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is not a plan: {type(error).__name__}: {error}") from error


@dataclass(slots=True)
class Card:
    """What a card says. steps: the filters or policies in order, as {"step": ..., "dropped": ...} or the like.

    options: the settings that differ from their defaults; never put a secret in. shape: of the rows, where one of
    ours was made (`messages`, `preference`, `verl`, ...): those who load them ask for it.
    """

    command: str
    options: Mapping[str, Any] = field(default_factory=dict)
    sources: Sequence[Mapping[str, Any]] = ()
    read: Mapping[str, Any] = field(default_factory=dict)
    steps: Sequence[Mapping[str, Any]] = ()
    counts: Mapping[str, Any] = field(default_factory=dict)
    lineage: str = ""
    shape: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, command: str, sources: Sequence[Source], log: ReadLog, **fields: Any) -> Card:
        """A card with its sources described and its reading counts filled in."""
        return cls(
            command=command, sources=[describe_source(source) for source in sources], read=log.as_json(), **fields
        )


def card_data(output: DataOutput, card: Card) -> dict[str, Any]:
    """What the card says, as it is stored."""
    return {
        "card_version": CARD_VERSION,
        "atropos_version": atropos_cli.__version__,
        "created": now(),
        "command": card.command,
        "options": dict(card.options),
        "sources": list(card.sources),
        "read": dict(card.read),
        "steps": list(card.steps),
        "counts": dict(card.counts),
        "lineage": card.lineage,
        "shape": card.shape,
        "scores": output.scores.as_json(),
        **card.extra,
        "outputs": [_describe_output(path) for path in output.files],
        "rows": dict(output.rows),
        "notes": output.notes,
    }


def card_path(base: Path) -> Path:
    """Where the card of an output lies."""
    return base.with_name(f"{base.name}.card.json")


def write_card(output: DataOutput, data: Mapping[str, Any]) -> list[Path]:
    """Write the card beside the output (JSON and Markdown); nothing for standard output."""
    if output.path is None:
        return []
    base = output.path
    paths = [card_path(base), base.with_name(f"{base.name}.card.md")]
    atomic_write(
        paths[0], json.dumps(data, indent=2, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n"
    )
    atomic_write(paths[1], as_markdown(data, base.name).encode("utf-8", "replace"))
    output.send(paths)
    return paths


def _describe_output(path: Path) -> dict[str, Any]:
    """Name and size. No digest: the sources have one, and hashing would cost a tenth of a filter's time."""
    if path.is_dir():
        return {"name": path.name, "bytes": sum(file.stat().st_size for file in path.rglob("*") if file.is_file())}
    return {"name": path.name, "bytes": path.stat().st_size}


def as_markdown(data: Mapping[str, Any], name: str) -> str:
    """The card for people."""
    lines = [
        f"# {name}",
        "",
        f"Made by `atropos {data['command']}` {data['atropos_version']} on {data['created']}.",
        "",
    ]
    lines += ["## From", ""]
    for source in data["sources"]:
        run = source.get("run")
        told = f", sha256 {source['sha256'][:16]}, {source['bytes']} bytes" if "sha256" in source else ""
        made = f"; a run of {_run(run)}" if run else ""
        lines.append(f"- {_plain(source['name'])}{told}{_plain(made)}")
    for title, key in (("Options", "options"), ("Read", "read"), ("Counts", "counts"), ("Scores", "scores")):
        if data.get(key):
            lines += ["", f"## {title}", "", *_listed(data[key])]
    if data["steps"]:
        lines += ["", "## Steps", ""]
        lines += [f"- {', '.join(f'{key}: {_plain(value)}' for key, value in step.items())}" for step in data["steps"]]
    lines += ["", "## Files", ""]
    lines += [f"- {_plain(item['name'])}: {item['bytes']} bytes" for item in data["outputs"]]
    lines += [f"- rows, {split}: {count}" for split, count in data["rows"].items()]
    if data["lineage"]:
        lines += ["", f"Lineage: {_plain(data['lineage'])}"]
    lines += [f"\nNote: {_plain(note)}" for note in data["notes"]]
    return "\n".join(lines) + "\n"


def _run(run: Mapping[str, Any]) -> str:
    rewards = run.get("rewards") or {}
    scored = f", rewards {', '.join(f'{name}={weight}' for name, weight in rewards.items())}" if rewards else ""
    version = f", atropos {run['atropos_version']}" if run.get("atropos_version") else ""
    return (
        f"{run['environment']} with {run['model']}, plan {str(run['plan_digest'])[:16]}, seed {run.get('seed')}"
        f"{scored}{version}"
    )


def _listed(values: Mapping[str, Any]) -> list[str]:
    return [f"- {key}: {_plain(json.dumps(value, ensure_ascii=False, default=str))}" for key, value in values.items()]


def _plain(value: Any) -> str:
    """Text from strangers on one line, without Markdown or HTML of its own."""
    text = " ".join(str(value).split())
    return text.replace("<", "&lt;").replace("`", "'").replace("|", "/")
