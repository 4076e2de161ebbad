"""Rewards with options: from flags, variables and files into the plan, and from there into the reward."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.domain.plan import Plan
from atropos_cli.domain.refs import ComponentRef, RewardRef
from atropos_cli.domain.rollout import Rollout
from atropos_cli.domain.score import Score
from atropos_cli.domain.task import Task
from atropos_cli.errors import ConfigError
from atropos_cli.ports.reward import Reward, group_reward, reward
from atropos_cli.rollout.scoring import Scorer

LENGTHS = '''
from atropos_cli.sdk import Config, Environment, Field, Reward, Score, SecretStr, Task, user


class LengthConfig(Config):
    most: int = Field(ge=1, description="Longest reply.")
    unit: str = Field(default="characters", description="What is counted.")
    server: str | None = Field(default=None, description="Where it is counted.")
    key: SecretStr | None = Field(default=None, description="A secret.")


class Length(Reward):
    Config = LengthConfig
    access = frozenset({"server"})

    def __init__(self, config=None):
        super().__init__(self.score, name="brief")
        self.config = config
        self.scored = 0

    def configured(self, config):
        return Length(config)

    def score(self, task, rollout):
        """Is the reply short?"""
        self.scored += 1
        length = len(rollout.text.split() if self.config.unit == "words" else rollout.text)
        return Score(float(length <= self.config.most), {"length": float(length)})

    def describe(self):
        return {"most": self.config.most, "secret": self.config.key is not None}

    def counts(self):
        return {"scored": self.scored}


brief = Length()


class Talk(Environment):
    """One task."""
    name = "talk"
    rewards = (brief,)
    def tasks(self, split):
        return [Task(id="t", prompt=(user("speak"),))]
'''


@pytest.fixture
def talk(isolation: Path) -> str:
    (isolation / "talk.py").write_text(LENGTHS)
    return "./talk.py:Talk"


def gen(cli: Any, talk: str, *options: str, code: int = 0) -> Any:
    result = cli("gen", talk, "--backend", "scripted", "--backend.replies", "a b c", "--group-size", "2", *options)
    assert result.code == code, result.stderr
    return result


def test_flag_variable_and_file_in_that_order(cli: Any, talk: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def most() -> int:
        result = gen(cli, talk, "--dry-run", "--json", *flags)
        [ref] = result.json["rewards"]
        assert ref["access"] == {"server": None}
        return int(ref["config"]["most"])

    flags: tuple[str, ...] = ()
    Path("atropos.toml").write_text("[reward.brief]\nmost = 3\n")
    assert most() == 3
    monkeypatch.setenv("ATROPOS_REWARD__BRIEF__MOST", "4")
    assert most() == 4
    flags = ("--brief.most", "5")
    assert most() == 5
    flags = ("--reward.brief.most", "6")
    assert most() == 6


def test_options_reach_the_reward_and_the_summary(
    cli: Any, talk: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATROPOS_REWARD__BRIEF__KEY", "hush")
    run = tmp_path / "run"
    gen(cli, talk, "--brief.most", "3", "--brief.unit", "words", "-o", str(run))
    summary = json.loads((run / "summary.json").read_text())
    assert summary["rewards"] == {"brief": 1.0}
    assert summary["metrics"]["length"] == 3.0
    assert summary["reward_details"] == {"brief": {"most": 3, "secret": True, "scored": 2}}
    assert not [path for path in run.iterdir() if path.is_file() and b"hush" in path.read_bytes()]
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "plan.json").write_bytes((run / "plan.json").read_bytes())
    again = cli("run", str(tmp_path / "again" / "plan.json"))
    assert again.code == 0, again.stderr
    assert json.loads((tmp_path / "again" / "summary.json").read_text())["rewards"] == {"brief": 1.0}


def test_access_may_change_on_resume_and_the_rest_may_not(cli: Any, talk: str, tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    gen(cli, talk, "--brief.most", "3", "-o", run)
    gen(cli, talk, "--brief.most", "3", "--brief.server", "elsewhere", "-o", run, "--resume")
    assert "plan" in gen(cli, talk, "--brief.most", "4", "-o", run, "--resume", code=6).stderr


def test_wrong_options_are_named(cli: Any, talk: str) -> None:
    missing = gen(cli, talk, "--dry-run", code=3)
    assert "reward 'brief': option 'most' is required" in missing.stderr
    assert "--brief.most" in missing.stderr
    assert "[reward.brief]" in missing.stderr
    low = gen(cli, talk, "--dry-run", "--brief.most", "0", code=2)
    assert "--brief.most" in low.stderr
    Path("atropos.toml").write_text("[reward.brief]\nmots = 3\n")
    unknown = gen(cli, talk, "--dry-run", code=3)
    assert "atropos.toml:2" in unknown.stderr
    assert "did you mean 'reward.brief.most'" in unknown.stderr
    Path("atropos.toml").unlink()
    other = gen(cli, talk, "--dry-run", "--brief.most", "1", "--brief.colour", "red", code=2)
    assert "--brief.colour" in other.stderr


def test_options_are_in_the_help_and_in_config_show(cli: Any, talk: str) -> None:
    shown = cli("gen", talk, "--help").stdout
    assert "Options of reward 'brief':" in shown
    assert "--brief.most" in shown
    assert "--reward.brief.most" not in shown
    assert "key" not in [line.split()[0].removeprefix("--brief.") for line in shown.splitlines() if "--brief." in line]
    rows = cli("config", "show", "gen", talk, "--brief.most", "3", "--json").json
    [row] = [row for row in rows if row["key"] == "reward.brief.most"]
    assert (row["value"], row["source"]["name"]) == (3, "--brief.most")


def test_rewards_of_a_file_bring_their_options(cli: Any, talk: str) -> None:
    """`rewards` at the top of a file counts, and so do the options of what stands there."""
    Path("atropos.toml").write_text('rewards = ["./talk.py:brief=2"]\n[reward.brief]\nmost = 9\n')
    [ref] = gen(cli, talk, "--dry-run", "--json").json["rewards"]
    assert (ref["weight"], ref["config"]["most"]) == (2.0, 9)


def test_score_takes_the_options_of_its_rewards(cli: Any, talk: str, tmp_path: Path) -> None:
    run, out = str(tmp_path / "run"), tmp_path / "scored.jsonl"
    gen(cli, talk, "--brief.most", "3", "--brief.unit", "words", "-o", run)
    result = cli("score", run, "-o", str(out), "--reward", "./talk.py:brief", "--brief.most", "4", "--json")
    assert result.code == 0, result.stderr
    assert (result.json["mean"], result.json["metrics"]) == (0.0, {"length": 5.0})
    rollout = json.loads(out.read_text())["rollouts"][0]
    assert rollout["metrics"] == {"length": 5.0}
    assert rollout["info"]["scorer"]["brief"]["details"] == {"most": 4, "secret": False}
    own = cli("score", run, "-o", "-")
    assert own.code == 0, own.stderr
    assert json.loads(own.stdout.splitlines()[0])["rollouts"][0]["rewards"] == {"brief": 1.0}
    assert "--brief.most" in cli("score", run, "--reward", "./talk.py:brief", "--help").stdout
    lacking = cli("score", run, "-o", "-", "--reward", "./talk.py:brief")
    assert lacking.code == 3
    assert "--brief.most" in lacking.stderr


def test_score_finds_the_options_of_an_environments_own_rewards(cli: Any, talk: str, tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    gen(cli, talk, "--brief.most", "3", "-o", run)
    result = cli("score", run, "-o", "-", "--env", talk, "--reward", "brief=2", "--brief.most", "9")
    assert result.code == 0, result.stderr
    assert json.loads(result.stdout.splitlines()[0])["rollouts"][0]["reward"] == 2.0
    unknown = cli("score", run, "-o", "-", "--reward", "breif")
    assert unknown.code == 4
    assert "breif" in unknown.stderr


def test_digests_of_plans_without_options_stay() -> None:
    """Runs from before rewards had options can be resumed."""
    plan = Plan(
        atropos_version="0",
        environment=ComponentRef(name="e"),
        rewards=(RewardRef(name="r", dist="d", version="1"),),
        backend=ComponentRef(name="openai"),
        model="m",
    )
    assert plan.digest == "3765316722c62d573fbf407b3c0ca5b763b4962ce26251c6fb3eeb17f7abe8f7"
    assert "access" not in plan.model_dump_json()
    assert "access" not in plan.identity()["rewards"][0]  # type: ignore[index,operator,call-overload]


# Scores that carry metrics, and rewards that wait ---------------------------------------------------------------------


def rollouts(count: int) -> list[Rollout]:
    return [Rollout(id=str(i), task_id="t", messages=(), metrics={"turns": 1.0}) for i in range(count)]


async def test_metrics_of_a_score_join_the_rollouts_own() -> None:
    @reward
    def one(task: Task, rollout: Rollout) -> float:
        return Score(0.5, {"seen": float(rollout.id), "bad": float("nan")})

    @group_reward
    def rank(task: Task, group: Any) -> list[float]:
        return [Score(1.0, {"place": float(i)}) for i in range(len(group))]

    scored = await Scorer([one, rank]).score(Task(id="t"), rollouts(2))
    assert [item.metrics for item in scored] == [
        {"turns": 1.0, "seen": 0.0, "place": 0.0},
        {"turns": 1.0, "seen": 1.0, "place": 1.0},
    ]
    assert [item.reward for item in scored] == [1.5, 1.5]


async def test_asynchronous_rewards_of_a_group_wait_together() -> None:
    meeting = asyncio.Barrier(3)

    @reward
    async def together(task: Task, rollout: Rollout) -> float:
        await asyncio.wait_for(meeting.wait(), 5)
        if rollout.id == "1":
            raise ValueError("no")
        return float(rollout.id)

    scored = await Scorer([together]).score(Task(id="t"), rollouts(3))
    assert [item.reward for item in scored] == [0.0, None, 2.0]
    assert scored[1].failure is not None
    assert scored[1].failure.message == "reward together: no"


def test_a_renamed_reward_keeps_what_it_is() -> None:
    class Own(Reward):
        pass

    own = Own(lambda task, rollout: 1.0, name="own")
    other = own.named("other", 0.5)
    assert (type(other), other.name, other.weight, own.name, own.weight) == (Own, "other", 0.5, "own", 1.0)


def test_options_for_a_reward_that_has_none_are_refused(cli: Any, talk: str) -> None:
    from atropos_cli.rollout.references import configured

    with pytest.raises(ConfigError, match="has no option 'x'"):
        configured(Reward(lambda task, rollout: 1.0, name="plain"), {"x": 1})
