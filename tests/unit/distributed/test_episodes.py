"""Episodes of another trainer: a real process of the engine, and the client that is copied beside a run."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.distributed import host, inside
from atropos_cli.distributed.readback import Lines, Played, prune, publish, raise_fatal
from atropos_cli.domain.plan import Plan, Sampling
from atropos_cli.domain.refs import ComponentRef, RewardRef
from atropos_cli.domain.training import TrainPlan
from atropos_cli.errors import TrainerError

ENVIRONMENT = """
import os
from atropos_cli.sdk import Environment, Episode, Task, reward, user


@reward
def length(task, rollout):
    return float(sum(len(m.text) for m in rollout.messages if m.role == "assistant"))


class Twice(Episode):
    def __init__(self, task):
        self.left = 2

    def reset(self):
        print("this is no message of the protocol")
        return [user("begin")]

    def step(self, reply):
        if reply.text == "die":
            os._exit(3)
        if reply.text == "fail":
            raise ValueError("a wall")
        self.left -= 1
        return [user(f"you said {reply.text}")] if self.left else None


class Pairs(Environment):
    name = "pairs"
    rewards = (length,)

    def tasks(self, split):
        return [Task(id="one")]

    def episode(self, task):
        return Twice(task)
"""
ITEM = {"plan": "train", "place": 4, "task": {"id": "one"}}


def plan_of(path: Path) -> Plan:
    return Plan(
        atropos_version="0", environment=ComponentRef(name=f"{path}:Pairs"), rewards=(RewardRef(name="length"),),
        backend=ComponentRef(name="scripted"), model="m", sampling=Sampling(max_tokens=7), group_size=2,
    )  # fmt: skip


@pytest.fixture
def folder(atropos_clean: Path, tmp_path: Path) -> Path:
    (tmp_path / "env.py").write_text(ENVIRONMENT)
    for name in (host.PLANS, host.ROLLOUTS):
        (tmp_path / name).mkdir()
    (tmp_path / host.PLANS / "train.json").write_text(plan_of(tmp_path / "env.py").model_dump_json())
    spec = {"python": sys.executable, "cwd": str(tmp_path), "pythonpath": os.environ.get("PYTHONPATH")}
    (tmp_path / inside.SPEC).write_text(json.dumps(spec))
    return tmp_path


@pytest.fixture
def engine(folder: Path) -> Iterator[inside.Engine]:
    made = inside.Engine(folder)
    yield made
    made.close()


def said(episode: inside.Episode) -> dict[str, Any]:
    return episode.next.result(120)


def test_episodes_at_once_and_after_each_kind_of_end(engine: inside.Engine, folder: Path) -> None:
    """One process for all of it but the death: a start takes seconds."""
    plan = TrainPlan(
        atropos_version="0", method="grpo", learns="groups", trainer=ComponentRef(name="x"), model="m",
        rollouts=plan_of(folder / "env.py"),
    )  # fmt: skip
    played = Played(folder, plan)
    first, second = engine.begin(ITEM, step=3), engine.begin(ITEM, step=3)
    for episode in (first, second):
        asked = said(episode)["ask"]
        assert asked["messages"] == [{"role": "user", "content": "begin"}]
        assert asked["sampling"]["max_tokens"] == 7
    second.reply(text="bb", ids=[5, 6], logprobs=[-0.5, -0.25], prompt_ids=[1, 2])
    first.reply(text="a")
    assert said(first)["ask"]["messages"][-1]["content"] == "you said a"
    assert said(second)["ask"]["messages"][1] == {"role": "assistant", "content": "bb"}
    second.reply(text="cc", ids=[8], logprobs=[-1.0], prompt_ids=[1, 2, 5, 6, 7])
    assert said(second)["done"]["reward"] == 4.0
    first.reply(overflow=True)
    done = said(first)["done"]
    assert done["truncated"]
    assert done["turns"] == 1

    failing = engine.begin(ITEM, step=3)
    said(failing)
    failing.reply(text="fail")
    assert "ValueError: a wall" in inside.failed(said(failing))
    given_up = engine.begin(ITEM, step=3)
    said(given_up)
    given_up.cancel()

    dying = engine.begin(ITEM, step=3)
    said(dying)
    dying.reply(text="die")
    with pytest.raises(inside.EngineLost, match=r"ended \(3\)"):
        said(dying)
    again = engine.begin(ITEM, step=4)  # by a new process
    assert "ask" in said(again)

    played.look()
    (group,) = played.trained(3)[4]
    assert [rollout.reward for rollout in group.rollouts] == [4.0, 1.0]
    assert [rollout.id[-4:] for rollout in group.rollouts] == ["-4/0", "-4/1"]
    assert group.advantages is not None
    tokens = [message.tokens for message in group.rollouts[0].messages if message.role == "assistant"]
    assert [token.logprobs for token in tokens if token is not None][-1] is not None
    assert played.trained(3) == {}


def test_large_messages_of_many_episodes_hold_up_nobody(engine: inside.Engine) -> None:
    """Each message fills a pipe several times over."""
    episodes = [engine.begin(ITEM, step=1) for _ in range(6)]
    text = "x" * 400_000
    for episode in episodes:
        said(episode)
    threads = [threading.Thread(target=episode.reply, kwargs={"text": text}) for episode in episodes]
    for thread in threads:
        thread.start()
    for episode, thread in zip(episodes, threads, strict=True):
        thread.join(120)
        assert said(episode)["ask"]["messages"][1]["content"] == text
        episode.cancel()


def test_what_can_never_work_is_fatal(engine: inside.Engine, folder: Path) -> None:
    (folder / host.PLANS / "train.json").write_text(plan_of(folder / "none.py").model_dump_json())
    text = said(engine.begin(ITEM, step=1))["fatal"]
    assert "none.py" in text
    with pytest.raises(TrainerError, match=r"no episode can be played: .*none\.py"):
        raise_fatal(folder)


def test_a_killed_process_loses_its_episodes_only(engine: inside.Engine) -> None:
    episode = engine.begin(ITEM, step=1)
    said(episode)
    assert engine._process is not None
    os.kill(engine._process._popen.pid, signal.SIGKILL)
    with pytest.raises(inside.EngineLost):
        episode.reply(text="x").result(60)


def test_lines_are_read_when_they_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    lines = Lines(path)
    assert list(lines.new()) == []
    path.write_bytes(b'{"step": 1}\nnot json\n[1]\n{"step":')
    assert list(lines.new()) == [{"step": 1}]
    with path.open("ab") as file:
        file.write(b" 2}\n")
    assert list(lines.new()) == [{"step": 2}]


def test_checkpoints_come_whole_and_old_ones_go(tmp_path: Path) -> None:
    source = tmp_path / "theirs"
    (source / "sub").mkdir(parents=True)
    with pytest.raises(TrainerError, match="no weights"):
        publish(source, tmp_path / "model")
    (source / "model.safetensors").write_bytes(b"1")
    (source / "sub" / "x").write_bytes(b"2")
    for step in (1, 2, 3):
        publish(source, tmp_path / "checkpoints" / f"step-{step}")
    publish(source, tmp_path / "checkpoints" / "step-3")
    (source / "model.safetensors").unlink()
    prune(tmp_path, 1, best=1)
    left = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert left == ["step-1", "step-3"]
    assert (tmp_path / "checkpoints" / "step-3" / "model.safetensors").read_bytes() == b"1"
