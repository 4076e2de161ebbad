"""PPO and SAC (with HER) of stable-baselines3, a training step at a time, their state in tensors instead of pickles.

PPO: arXiv 1707.06347. SAC: arXiv 1801.01290. HER: arXiv 1707.01495, reached goals of later steps of the same episode.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from stable_baselines3 import PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.her import HerReplayBuffer

from atropos_cli.sdk import ConfigError, DataError
from atropos_control.learner import Job, Learner, played_numbers
from atropos_control.making import check_infos, close_vector, vector
from atropos_control.policies import Policy, Sb3Policy, sb3_class

_PPO = ("learning_rate", "batch_size", "gamma", "gae_lambda", "clip_range", "ent_coef", "max_grad_norm")
_SAC = ("learning_rate", "batch_size", "gamma", "tau", "buffer_size", "learning_starts")
_GOALS = frozenset({"observation", "achieved_goal", "desired_goal"})


class _Ended(BaseCallback):  # type: ignore[misc]
    """Counts the episodes that end; breaks the playing off when the run is asked to stop."""

    def __init__(self, stop: Callable[[], bool]) -> None:
        super().__init__()
        self._stopping = stop
        self.episodes: list[tuple[float, int, bool | None]] = []

    def _on_step(self) -> bool:
        check_infos(self.locals["infos"])
        for info in self.locals["infos"]:
            if (episode := info.get("episode")) is not None:
                success = info.get("is_success")
                self.episodes.append((episode["r"], int(episode["l"]), None if success is None else bool(success)))
        return not self._stopping()


class Sb3Learner(Learner):
    """A learner of ppo or sac. Raises ConfigError for spaces that it cannot handle."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._envs = vector(job.recipe, job.options["num_envs"], processes=job.processes)
        try:
            self._model = _model(job, self._envs)
        except Exception:
            close_vector(self._envs)
            raise
        self._ended = _Ended(job.stop)
        self._callback: Any = None

    def update(self) -> dict[str, float]:
        model, ended = self._model, self._ended
        if self._callback is None:
            total = self._job.steps * self._job.options["num_envs"] * self._job.options["rollout_steps"]
            done = self.env_steps
            if done:  # new episodes, other ones than those of the start
                self._envs.seed(self._job.seed + done)
                model.action_space.seed(self._job.seed + done)
            _, self._callback = model._setup_learn(total, ended, reset_num_timesteps=True)
            model.num_timesteps = done
        ended.episodes.clear()
        updates = model._n_updates
        if not (self._sac() if isinstance(model, SAC) else self._ppo()):
            return {}
        self.step += 1
        self.env_steps = model.num_timesteps
        returns, lengths, successes = zip(*ended.episodes, strict=True) if ended.episodes else ((), (), ())
        known = [value for value in successes if value is not None]
        numbers = {"env_steps": float(self.env_steps), **played_numbers(returns, lengths, known)}
        learnt = model.logger.name_to_value if model._n_updates > updates else {}
        return numbers | {_NAMES[name]: float(value) for name, value in learnt.items() if name in _NAMES}

    def _ppo(self) -> bool:
        """Play and learn; False: broken off while it played."""
        model = self._model
        if not model.collect_rollouts(model.env, self._callback, model.rollout_buffer, model.n_steps):
            return False
        model._update_current_progress_remaining(model.num_timesteps, model._total_timesteps)
        model.train()
        return True

    def _sac(self) -> bool:
        """See _ppo."""
        model = self._model
        before = model.num_timesteps
        played = model.collect_rollouts(
            model.env,
            train_freq=model.train_freq,
            action_noise=None,
            callback=self._callback,
            learning_starts=model.learning_starts,
            replay_buffer=model.replay_buffer,
        )
        if played.continue_training and model.num_timesteps > model.learning_starts:
            model.train(self._job.options.get("gradient_steps") or model.num_timesteps - before, model.batch_size)
        return bool(played.continue_training)

    @property
    def policy(self) -> Policy:
        return Sb3Policy(self._model.policy)

    @property
    def weights(self) -> Any:
        return self._model.policy.state_dict()

    def begin_from(self, weights: Any) -> None:
        self._model.policy.load_state_dict(weights)

    def state(self) -> dict[str, Any]:
        model = self._model
        names, variables = model._get_torch_save_params()
        found = {name: _attribute(model, name).state_dict() for name in names if name != "policy"}
        found |= {name: _attribute(model, name).detach().clone() for name in variables}
        counts = {"updates": model._n_updates}
        buffer = _buffer_state(model.replay_buffer) if isinstance(model, SAC) else {}
        return {"optimisers": found, "counts": counts, "buffer": buffer}

    def restore(self, state: Mapping[str, Any]) -> None:
        import torch

        model = self._model
        names, variables = model._get_torch_save_params()
        if {*names, *variables} - {"policy"} != set(state["optimisers"]):
            raise DataError(
                "the checkpoint is of a run in which the weight of the entropy was learned, and here it is fixed"
                if "log_ent_coef" in state["optimisers"]
                else "the checkpoint is of a run in which the weight of the entropy was fixed, and here it is learned",
                hint="the release that began the run resumes it: its values for this environment were others",
            )
        model.policy.load_state_dict(state["weights"])
        for name, value in state["optimisers"].items():
            if isinstance(value, torch.Tensor):
                with torch.no_grad():
                    _attribute(model, name).copy_(value)
            else:
                _attribute(model, name).load_state_dict(value)
        model._n_updates = state["counts"]["updates"]
        if isinstance(model, SAC):
            _restore_buffer(model.replay_buffer, state["buffer"])

    def close(self) -> None:
        close_vector(self._envs)


_NAMES = {
    "train/loss": "loss",
    "train/policy_gradient_loss": "policy_loss",
    "train/value_loss": "value_loss",
    "train/entropy_loss": "entropy_loss",
    "train/approx_kl": "approx_kl",
    "train/clip_fraction": "clip_fraction",
    "train/explained_variance": "explained_variance",
    "train/learning_rate": "learning_rate",
    "train/actor_loss": "actor_loss",
    "train/critic_loss": "loss",
    "train/ent_coef": "entropy_weight",
}


def _model(job: Job, envs: Any) -> Any:
    options = job.options
    name, _ = sb3_class(job.method, envs.observation_space)
    layers = {"net_arch": list(options["layers"])}
    try:
        if job.method == "ppo":
            given: dict[str, Any] = {key: options[key] for key in _PPO}
            if options["anneal"]:
                given |= {key: _falling(given[key]) for key in ("learning_rate", "clip_range")}
            sizes = {"n_steps": options["rollout_steps"], "n_epochs": options["n_epochs"]}
            model: Any = PPO(name, envs, seed=job.seed, device="cpu", policy_kwargs=layers, **sizes, **given)
        else:
            given = {key: options[key] for key in _SAC} | {"train_freq": options["rollout_steps"]}
            given["ent_coef"] = options.get("ent_coef", "auto")
            goals = set(getattr(envs.observation_space, "spaces", ())) >= _GOALS
            her = goals if options.get("her") is None else options["her"]
            if her and not goals:
                raise ConfigError(f"{job.recipe.id} has no goals to learn from by HER", hint="--no-her")
            if her:
                given |= {"replay_buffer_class": HerReplayBuffer}
                given |= {"replay_buffer_kwargs": {"n_sampled_goal": options["her_goals"]}}
            model = SAC(name, envs, seed=job.seed, device="cpu", policy_kwargs=layers, **given)
    except (AssertionError, ValueError, NotImplementedError, RuntimeError) as error:  # the last: pictures too small
        raise ConfigError(f"{job.method} cannot train on {job.recipe.id}: {error}", hint=_other(job.method)) from error
    model.set_logger(Logger(folder=None, output_formats=[]))
    return model


def _other(method: str) -> str:
    return "train ppo has more kinds of actions" if method == "sac" else "--env.wrappers NAME changes the spaces"


def _falling(value: float) -> Any:
    return lambda remaining: remaining * value


def _attribute(model: Any, path: str) -> Any:
    found = model
    for name in path.split("."):
        found = getattr(found, name)
    return found


def _buffer_state(buffer: Any) -> dict[str, Any]:
    """The filled part of a replay buffer, by attribute: its arrays as tensors, and its place."""
    import numpy as np
    import torch

    filled = buffer.buffer_size if buffer.full else buffer.pos
    found: dict[str, Any] = {"pos": int(buffer.pos), "full": bool(buffer.full), "arrays": {}}
    for name, value in vars(buffer).items():
        parts = value if isinstance(value, dict) else {"": value}
        for key, array in parts.items():
            if isinstance(array, np.ndarray) and array.dtype != object:
                kept = array[:filled] if len(array) == buffer.buffer_size else array
                found["arrays"][f"{name}/{key}"] = torch.from_numpy(kept.copy())
    return found


def _restore_buffer(buffer: Any, state: Mapping[str, Any]) -> None:
    """Undo _buffer_state. The episode at hand is lost with its environment: what there is of it counts as cut off."""
    for path, tensor in state["arrays"].items():
        name, _, key = path.partition("/")
        array = getattr(buffer, name)
        array = array[key] if key else array
        array[: len(tensor)] = tensor.numpy()
    buffer.pos, buffer.full = state["pos"], state["full"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if hasattr(buffer, "truncate_last_trajectory"):
            buffer.truncate_last_trajectory()
        elif buffer.pos or buffer.full:
            buffer.dones[buffer.pos - 1] = True
            buffer.timeouts[buffer.pos - 1] = True
