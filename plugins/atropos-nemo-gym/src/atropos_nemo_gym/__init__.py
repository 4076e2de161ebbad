"""Resource servers of NeMo Gym as environments: `atropos gen nemo-gym:URL --env.data FILE.jsonl`.

It speaks their HTTP protocol and needs no package of theirs. This module is the plugin's manifest. It imports nothing
heavy.
"""

from __future__ import annotations

from collections.abc import Iterable

from atropos_cli.sdk import ComponentSpec, hookimpl


@hookimpl
def atropos_register_environments() -> Iterable[ComponentSpec]:
    """nemo-gym:URL."""
    yield ComponentSpec(
        "environment",
        "nemo-gym",
        "atropos_nemo_gym.environment:family",
        "A resource server of NeMo Gym, with the tasks of a JSONL file: nemo-gym:URL.",
        family=True,
    )


@hookimpl
def atropos_register_rewards() -> Iterable[ComponentSpec]:
    """What a server's verify said."""
    yield ComponentSpec(
        "reward",
        "nemo_gym_reward",
        "atropos_nemo_gym.rewards:nemo_gym_reward",
        "The reward that a resource server of NeMo Gym gave to the rollout.",
    )
