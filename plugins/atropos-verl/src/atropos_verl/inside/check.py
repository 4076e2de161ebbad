"""Does the installed verl take these settings? Run under verl's Python: Hydra composes them, verl validates them."""

from __future__ import annotations

import contextlib
import json
import sys
from importlib.metadata import version
from typing import Any


def check(overrides: list[str]) -> dict[str, Any]:
    """The versions, or an error."""
    from hydra import compose, initialize_config_module
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        with initialize_config_module("verl.trainer.config", version_base=None):
            config = compose("ppo_trainer", overrides=overrides)
        OmegaConf.to_container(config, resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        return {"error": f"{error.__cause__ or error}".strip().splitlines()[0], "hint": "see --overrides"}

    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    try:
        validate_config(config, need_reference_policy(config), need_critic(config))
        omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    except (AssertionError, ValueError, TypeError, OmegaConfBaseException) as error:
        return {"error": f"{error}".strip().splitlines()[0] or type(error).__name__}
    return {"verl": version("verl"), "ray": version("ray"), "engine": _engine(config.actor_rollout_ref.rollout.name)}


def _engine(name: str) -> str | None:
    with contextlib.suppress(Exception):
        return version(name)
    return None


if __name__ == "__main__":
    question = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        answer = check(question["overrides"])
    sys.stdout.write("\natropos-answer " + json.dumps(answer) + "\n")
