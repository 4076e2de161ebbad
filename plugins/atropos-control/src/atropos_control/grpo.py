"""GRPO for control: groups of episodes from the same start state, advantages within the group, no critic.

For a start state s with episodes 1..G of returns R, all steps of episode i have the advantage
    A_i = (R_i - mean(R)) / (std(R) + 1e-4)                                   (arXiv 2402.03300, section 4.1.2)
by the estimators that `train grpo` has for language models (--advantage grpo, dr_grpo, rloo), and the loss is
    -mean over all steps t of all episodes of  min(r_t A_i, clip(r_t, 1 - e, 1 + e) A_i)  -  c H
with r_t the ratio of the action's probability now and when it was taken, c --ent-coef and H the policy's entropy. The
mean is over all steps together, as in DAPO (arXiv 2503.14476): a longer episode weighs more. A group whose returns are
equal teaches nothing.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from atropos_cli.sdk.training import advantages, decided
from atropos_control.actor import Actor
from atropos_control.learner import Job, Learner, played_numbers
from atropos_control.making import check_infos, close_vector, vector
from atropos_control.policies import ActorPolicy, Policy


@dataclass
class _Episode:
    """One episode of a group: where it starts, and the numbers of each step."""

    group: int
    seed: int
    seen: list[Any] = field(default_factory=list)
    actions: list[Any] = field(default_factory=list)
    logps: list[Any] = field(default_factory=list)
    reward: float = 0.0
    success: bool | None = None


class GrpoLearner(Learner):
    """See the module."""

    def __init__(self, job: Job) -> None:
        import torch

        torch.manual_seed(job.seed)
        random.seed(job.seed)
        self._job = job
        count = min(job.options["num_envs"], job.groups * job.group_size)
        self._envs = vector(job.recipe, count, processes=job.processes, starts=True)
        try:
            spaces = self._envs.observation_space, self._envs.action_space
            self._actor = Actor(*spaces, job.options["layers"])
        except Exception:
            close_vector(self._envs)
            raise
        self._optimiser = torch.optim.Adam(self._actor.parameters(), lr=job.options["learning_rate"])

    def update(self) -> dict[str, float]:
        import torch

        job = self._job
        first = self.step * job.groups
        episodes = [
            _Episode(group, job.seed * 1_000_003 + first + group)
            for group in range(job.groups)
            for _ in range(job.group_size)
        ]
        self._play(episodes)
        if job.stop():
            return {}
        groups = [[one.reward for one in episodes if one.group == group] for group in range(job.groups)]
        judged = [value or 0.0 for rewards in groups for value in advantages(job.advantage, rewards) or ()]
        by_step = [value for value, one in zip(judged, episodes, strict=True) for _ in one.actions]
        seen = torch.stack([row for one in episodes for row in one.seen])
        actions = torch.stack([row for one in episodes for row in one.actions])
        logps = torch.stack([row for one in episodes for row in one.logps])
        self.env_steps += len(seen)
        learnt = self._learn(seen, actions, logps, torch.tensor(by_step))
        self._actor.learn_scale(seen)  # after the update: the old log-probabilities were of the old scale
        self.step += 1
        successes = [one.success for one in episodes if one.success is not None]
        numbers = played_numbers([one.reward for one in episodes], [len(one.actions) for one in episodes], successes)
        equal = sum(decided(rewards) for rewards in groups) / len(groups)
        return {"env_steps": float(self.env_steps), "frac_reward_zero_std": equal, **numbers, **learnt}

    def _play(self, episodes: Sequence[_Episode]) -> None:
        """Play them all: an environment that ends one begins the next that is waiting."""
        import torch

        envs, waiting = self._envs, list(reversed(episodes))
        count = envs.num_envs
        running: list[_Episode | None] = [waiting.pop() for _ in range(count)]
        following: list[_Episode | None] = [None] * count
        for place, one in enumerate(running):
            assert one is not None
            envs.env_method("next_start", one.seed, indices=[place])
        seen = envs.reset()
        for place in range(count):
            following[place] = self._queue(place, waiting)
        while any(one is not None for one in running) and not self._job.stop():
            with torch.no_grad():
                flat = self._actor.flat(seen, count)
                actions, logps = self._actor.choose(flat, sample=True)
            seen, rewards, dones, infos = envs.step(self._actor.played(actions))
            check_infos(infos)
            for place, one in enumerate(running):
                if one is None:
                    continue
                one.seen.append(flat[place])
                one.actions.append(actions[place])
                one.logps.append(logps[place])
                one.reward += float(rewards[place])
                if dones[place]:
                    success = infos[place].get("is_success", infos[place].get("success"))
                    one.success = None if success is None else bool(success)
                    running[place] = following[place]
                    following[place] = self._queue(place, waiting)

    def _queue(self, place: int, waiting: list[_Episode]) -> _Episode | None:
        """The episode that an environment will play next; it knows its start before it gets there."""
        if not waiting:
            return None
        one = waiting.pop()
        self._envs.env_method("next_start", one.seed, indices=[place])
        return one

    def _learn(self, seen: Any, actions: Any, old: Any, advantages: Any) -> dict[str, float]:
        import torch

        options = self._job.options
        rate = options["learning_rate"]
        if options["anneal"]:
            rate *= max(0.0, 1 - self.step / self._job.steps)
        self._optimiser.param_groups[0]["lr"] = rate
        sums: dict[str, float] = {}
        batches = 0
        for _ in range(options["n_epochs"]):
            for rows in torch.randperm(len(seen)).split(options["batch_size"]):
                found = self._gradient_step(seen[rows], actions[rows], old[rows], advantages[rows])
                batches += 1
                for name, value in found.items():
                    sums[name] = sums.get(name, 0.0) + value
        return {name: value / batches for name, value in sums.items()} | {"learning_rate": rate}

    def _gradient_step(self, seen: Any, actions: Any, old: Any, advantages: Any) -> dict[str, float]:
        import torch

        options = self._job.options
        found = self._actor.distribution(seen)
        difference = found.log_prob(actions) - old
        ratio, bound = difference.exp(), options["clip_range"]
        gained = torch.min(ratio * advantages, ratio.clamp(1 - bound, 1 + bound) * advantages)
        entropy = found.entropy().mean()
        loss = -gained.mean() - options["ent_coef"] * entropy
        self._optimiser.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self._actor.parameters(), options["max_grad_norm"])
        self._optimiser.step()
        return {
            "loss": float(loss.detach()),
            "grad_norm": float(norm),
            "policy_entropy": float(entropy.detach()),
            "approx_kl": float((ratio - 1 - difference).mean().detach()),
            "clip_fraction": float(((ratio - 1).abs() > bound).float().mean()),
        }

    @property
    def policy(self) -> Policy:
        return ActorPolicy(self._actor)

    @property
    def weights(self) -> Any:
        return self._actor.state_dict()

    def begin_from(self, weights: Any) -> None:
        self._actor.load_state_dict(weights)

    def state(self) -> dict[str, Any]:
        return {"optimiser": self._optimiser.state_dict()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._actor.load_state_dict(state["weights"])
        self._optimiser.load_state_dict(state["optimiser"])

    def close(self) -> None:
        close_vector(self._envs)
