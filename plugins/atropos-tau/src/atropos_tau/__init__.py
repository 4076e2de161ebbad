"""tau-bench (tau2): conversations with a simulated user, tools and a policy. This module is the plugin's manifest."""

from __future__ import annotations

from collections.abc import Iterable

from atropos_cli.sdk import ComponentSpec, hookimpl

_REWARDS = {
    "tau_reward": "tau2's reward of the conversation: 1 or 0.",
    "tau_db": "1 when the database is as the ground-truth actions leave it, else 0.",
    "tau_env_assertions": "The share of the assertions about the state that hold.",
    "tau_actions": "The share of the ground-truth actions that were called.",
    "tau_communicate": "The share of the facts that the agent gave to the user.",
    "tau_nl_assertions": "The share of the assertions in words that the judge found met.",
}


@hookimpl
def atropos_register_environments() -> Iterable[ComponentSpec]:
    """The environment `tau`."""
    yield ComponentSpec(
        "environment",
        "tau",
        "atropos_tau.environment:family",
        "tau-bench (tau2): an agent with tools serves a simulated user; airline, retail, telecom, mock.",
        family=True,
    )


@hookimpl
def atropos_register_rewards() -> Iterable[ComponentSpec]:
    """Its reward and the parts of it, also by name."""
    for name, summary in _REWARDS.items():
        yield ComponentSpec("reward", name, f"atropos_tau.rewards:{name}", summary)
