"""Manifest of a plugin with one misspelt hook; the other hook is right."""

from __future__ import annotations

from atropos_cli.sdk import ComponentSpec, Reward, Rollout, Task, hookimpl, reward


@hookimpl
def atropos_register_enviroments() -> list[ComponentSpec]:
    return [ComponentSpec("environment", "lost", "misspelt_plugin.lost:Lost")]


@reward
def politeness(task: Task, rollout: Rollout) -> float:
    """1.0 for a reply that says please."""
    return float("please" in rollout.text)


@hookimpl
def atropos_register_rewards() -> Reward:
    return politeness
