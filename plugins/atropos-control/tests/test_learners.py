"""The three methods by themselves: what they learn, what a group is, and what a saved state holds."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from atropos_control.config import ControlConfig, proposed, resolved
from atropos_control.learner import Job, Learner
from atropos_control.making import Recipe

from atropos_cli.sdk import DataError

torch = pytest.importorskip("torch")
pytest.importorskip("stable_baselines3")


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    torch.set_num_threads(1)


def job(method: str, name: str, **options: Any) -> Job:
    sizes = {"groups": options.pop("groups", 1), "group_size": options.pop("group_size", 1)}
    options.setdefault("subprocesses", False)
    _, more = proposed(ControlConfig(**options), method, "", {})
    values = resolved(ControlConfig(**options, **more), method)
    return Job(method, Recipe(name), values, seed=3, steps=30, stop=lambda: False, **sizes)


def learner(wanted: Job) -> Learner:
    from atropos_control.trainer import _learner

    return _learner(wanted)


def test_grpo_learns_which_action_is_right() -> None:
    small = learner(job("grpo", "tiny:Right-v0", groups=8, group_size=8, learning_rate=0.05))
    rewards = [small.update()["reward"] for _ in range(12)]
    small.close()
    assert rewards[0] < 0.6
    assert min(rewards[-2:]) > 0.9


def test_the_episodes_of_a_group_start_alike() -> None:
    from atropos_control.grpo import GrpoLearner, _Episode

    small = GrpoLearner(job("grpo", "CartPole-v1", groups=3, group_size=4, num_envs=5))
    episodes = [_Episode(group, 100 + group) for group in range(3) for _ in range(4)]
    small._play(episodes)
    small.close()
    first = [[one.seen[0] for one in episodes if one.group == group] for group in range(3)]
    assert all(torch.equal(group[0], one) for group in first for one in group)
    assert not torch.equal(first[0][0], first[1][0])
    assert all(one.reward == len(one.actions) > 0 for one in episodes)
    assert len({len(one.actions) for one in episodes}) > 1  # the same start, other actions


def test_a_group_of_equal_returns_teaches_nothing() -> None:
    small = learner(job("grpo", "tiny:Line-v0", groups=2, group_size=4))
    before = {name: value.clone() for name, value in small.weights.items() if "." in name}
    small._play = lambda episodes: _same(episodes)  # type: ignore[attr-defined]
    numbers = small.update()
    assert numbers["frac_reward_zero_std"] == 1.0
    assert all(torch.equal(value, small.weights[name]) for name, value in before.items())
    small.close()


def _same(episodes: Any) -> None:
    for one in episodes:
        one.seen, one.actions, one.logps, one.reward = [torch.zeros(3)], [torch.zeros(1)], [torch.tensor(-1.0)], -5.0


@pytest.mark.parametrize(
    ("method", "name", "options"),
    [
        ("ppo", "CartPole-v1", {"num_envs": 2, "rollout_steps": 16, "batch_size": 16}),
        ("sac", "tiny:Line-v0", {"rollout_steps": 10, "learning_starts": 10, "batch_size": 8, "buffer_size": 100}),
        ("grpo", "CartPole-v1", {"groups": 2, "group_size": 2}),
    ],
)
def test_a_saved_state_is_the_whole_of_it(method: str, name: str, options: dict[str, Any], tmp_path: Path) -> None:
    wanted = job(method, name, **options)
    first = learner(wanted)
    for _ in range(12):
        first.update()
    first.write(tmp_path)
    states = []
    for _ in range(2):
        second = learner(wanted)
        second.read(tmp_path)
        assert (second.step, second.env_steps) == (12, first.env_steps)
        states.append(flat({"weights": second.weights, **second.state()}))
        second.update()
        states.append(flat({"weights": second.weights}))
        second.close()
    kept = flat({"weights": first.weights, **first.state()})
    first.close()
    # What an episode was cut off in the buffer marks is new; all else is as it was.
    differ = [key for key in kept if not same(kept[key], states[0][key])]
    assert {key.split("/")[0] for key in differ} <= {"buffer"}
    assert all(same(states[1][key], states[3][key]) for key in states[1])  # and leads to the same next step
    assert any(not same(states[1][key], kept[key]) for key in states[1])


def test_a_fixed_weight_of_the_entropy_is_kept_and_is_not_taken_for_a_learned_one(tmp_path: Path) -> None:
    sizes = {"rollout_steps": 10, "learning_starts": 10, "batch_size": 8, "buffer_size": 100}
    for number, weight in enumerate(({"ent_coef": 0.25}, {})):
        own = learner(job("sac", "tiny:Line-v0", **sizes, **weight))
        for _ in range(4):
            numbers = own.update()
        assert (numbers["entropy_weight"] == 0.25) == bool(weight)
        (tmp_path / str(number)).mkdir()
        own.write(tmp_path / str(number))
        own.close()
    for number, weight in enumerate(({}, {"ent_coef": 0.25})):
        other = learner(job("sac", "tiny:Line-v0", **sizes, **weight))
        with pytest.raises(DataError, match=("fixed", "learned")[number] + ", and here"):
            other.read(tmp_path / str(number))
        other.close()


def flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {key: one for name, part in value.items() for key, one in flat(part, f"{path}{name}/").items()}
    return {path: value.clone() if isinstance(value, torch.Tensor) else copy.deepcopy(value)}


def same(one: Any, other: Any) -> bool:
    return bool(torch.equal(one, other)) if isinstance(one, torch.Tensor) else bool(one == other)
