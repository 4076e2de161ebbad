"""Manifest of a plugin that does everything right. Imports its components only when they are used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from atropos_cli.sdk import ComponentSpec, hookimpl

seen: list[str] = []


@hookimpl
def atropos_register_environments() -> list[ComponentSpec]:
    return [ComponentSpec("environment", "letters", "good_plugin.letters:Letters", summary="Count letters in a word.")]


@hookimpl
def atropos_register_rewards() -> Iterator[ComponentSpec]:
    yield ComponentSpec("reward", "shortness", "good_plugin.letters:shortness", summary="Shorter replies earn more.")


@hookimpl
def atropos_run_started(plan: Any) -> None:
    seen.append(f"started {plan}")


@hookimpl
def atropos_doctor() -> list[tuple[str, str, str]]:
    return [("alphabet", "ok", "26 letters")]
