"""The environments, rewards, backends and writers of the core and the first-party plugins, with their options."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _pages.markdown import page, quoted, table

ROOT = Path(__file__).resolve().parents[2]
INTRO = """\
What the core and the first-party plugins offer. `atropos plugins list` shows what is installed on your machine."""
NAMES = {
    "environment": "Environments",
    "toolset": "Sources of tools",
    "backend": "Backends",
    "trainer": "Trainers",
    "launcher": "Launchers",
}
OPTION = ("option", "type", "default", "meaning")
LISTED = {"reward": "Rewards", "writer": "Writers", "tracker": "Trackers", "template": "Templates of `atropos new`"}


def first_party() -> set[str]:
    """The distributions of this repository."""
    files = [ROOT / "pyproject.toml", *ROOT.glob("plugins/*/pyproject.toml")]
    return {tomllib.loads(file.read_text(encoding="utf-8"))["project"]["name"] for file in files}


def pages() -> Iterator[tuple[str, str]]:
    """reference/components.md."""
    from atropos_cli.plugins.discovery import load_registry
    from atropos_cli.plugins.entrypoints import scan

    registry = load_registry(strict=False)
    ours = first_party()
    missing = ours - {entry.dist for entry in scan()[0]}
    if missing:
        raise SystemExit(f"not installed: {', '.join(sorted(missing))}\nhint: bash .ci/setup")
    parts = []
    for kind, title in NAMES.items():
        found = [item for item in registry.registrations(kind) if item.dist in ours]  # type: ignore[arg-type]
        if found:
            parts.append(f"## {title}")
            parts += [_component(kind, item) for item in found]
    for kind, title in LISTED.items():
        found = [item for item in registry.registrations(kind) if item.dist in ours]  # type: ignore[arg-type]
        rows = [(f"`{item.name}`", item.dist or "", item.summary or "") for item in found]
        if rows:
            parts.append(f"## {title}\n\n{table(('name', 'from', 'what it is'), rows)}")
        if kind == "reward":
            parts += [text for item in found if (text := _options_of_reward(item.load()))]
    yield "components.md", page("Components", INTRO, *parts)


def _options_of_reward(reward: Any) -> str:
    """The options of a reward that has some."""
    from atropos_cli.config.options import options_of

    rows = [_row(f"{reward.name}.", option) for option in options_of(reward.Config)]
    return f"### {reward.name}\n\n{table(OPTION, rows)}" if rows else ""


def _row(prefix: str, option: Any) -> tuple[str, ...]:
    return (
        f"`--{prefix}{option.flag}`" if not option.secret else f"`{option.key}`",
        quoted(option.type_text),
        "required" if option.required else quoted(option.default_text),
        option.description + (f" ({option.range})" if option.range else ""),
    )


def _component(kind: str, item: Any) -> str:
    from atropos_cli.config.options import options_of

    cls = item.load()
    doc = inspect.getdoc(cls) if "__doc__" in vars(cls) else None
    about = [f"### {item.name}", f"From {item.dist}. {item.summary or ''}".strip(), doc or ""]
    if kind == "environment":
        rewards = [reward if isinstance(reward, str) else reward.name for reward in cls.rewards]
        names = ", ".join(f"`{name}`" for name in rewards) or "none"
        about.append(f"Rewards: {names}. Splits: {', '.join(f'`{split}`' for split in cls.splits)}.")
    prefix = {"environment": "env.", "backend": "backend.", "toolset": f"tool.{item.name}."}.get(kind, "")
    about.append(table(OPTION, [_row(prefix, option) for option in options_of(cls.Config)]))
    return "\n\n".join(part for part in about if part)
