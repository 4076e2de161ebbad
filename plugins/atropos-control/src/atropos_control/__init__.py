"""Environments of Gymnasium: for language models in words, and for policies that the trainer `control` trains.

    atropos gen gymnasium:FrozenLake-v1             atropos train ppo --env gymnasium:CartPole-v1
    atropos eval gymnasium:FetchReach-v4 --policy RUN/model

This module is the plugin's manifest. It imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

from atropos_cli.sdk import METHODS, ComponentSpec, Method, hookimpl

PPO = Method("ppo", "Train a policy for control by PPO: --env gymnasium:ID.", "steps")
SAC = Method("sac", "Train a policy for control by SAC, from reached goals too (HER): --env gymnasium:ID.", "steps")
_TRAINING = ("torch", "stable-baselines3")


@hookimpl
def atropos_register_environments() -> Iterable[ComponentSpec]:
    """gymnasium:ID, for every id that Gymnasium knows here."""
    yield ComponentSpec(
        "environment",
        "gymnasium",
        "atropos_control.environment:environment_class",
        "An environment of Gymnasium, described in words: gymnasium:FrozenLake-v1.",
        family=True,
    )


@hookimpl
def atropos_register_rewards() -> Iterable[ComponentSpec]:
    """The return of an episode."""
    yield ComponentSpec(
        "reward",
        "gymnasium_return",
        "atropos_control.rewards:gymnasium_return",
        "The sum of the rewards that the environment gave in the episode.",
    )


@hookimpl
def atropos_register_backends() -> Iterable[ComponentSpec]:
    """What plans name where a policy plays."""
    yield ComponentSpec(
        "backend", "policy", "atropos_control.backend:PolicyBackend", "No model: a policy plays by itself."
    )


@hookimpl
def atropos_register_trainers() -> Iterable[ComponentSpec]:
    """The trainer of policies."""
    yield ComponentSpec(
        "trainer",
        "control",
        "atropos_control.trainer:ControlTrainer",
        "Policies for environments of Gymnasium, by PPO, SAC with HER, or GRPO.",
        requires=_TRAINING,
        extra="train",
        methods=(PPO, SAC, METHODS["grpo"]),
    )


@hookimpl
def atropos_doctor() -> Iterable[tuple[str, str, str]]:
    """What training needs, and how MuJoCo renders here; reads metadata and looks for libraries."""
    from atropos_control.making import renderer

    for name, extra in (("stable-baselines3", "train"), ("gymnasium-robotics", "robotics"), ("mujoco", "robotics")):
        try:
            found = version(name)
        except PackageNotFoundError:
            yield (f"control: {name}", "warn", f"not installed: pip install 'atropos-control[{extra}]'")
            continue
        late = name == "mujoco" and tuple(int(part) for part in found.split(".")[:2]) > (3, 3)
        shown = f"{found}: Fetch and Hand environments fail with it; pip install 'mujoco==3.3.7'" if late else found
        yield (f"control: {name}", "warn" if late else "ok", shown)
    found = renderer() or ""
    missing = "neither EGL nor OSMesa: no videos without a screen (apt-get install libegl1 libosmesa6)"
    yield ("control: videos", "ok" if found else "warn", f"MUJOCO_GL={found}" if found else missing)
