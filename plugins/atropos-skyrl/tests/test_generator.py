"""Our generator without SkyRL: a real process of the engine, and SkyRL's client and two of its modules feigned."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.distributed import chat, host, inside
from atropos_cli.sdk.backends import Sampling
from atropos_cli.sdk.runs import ComponentRef, Plan, RewardRef

GENERATOR = Path(__file__).parents[1] / "src" / "atropos_skyrl" / "inside" / "atropos_skyrl_generator.py"
ENVIRONMENT = """
from atropos_cli.sdk import Environment, Episode, Task, reward, user


@reward
def length(task, rollout):
    return float(sum(len(m.text) for m in rollout.messages if m.role == "assistant"))


class Talk(Episode):
    def __init__(self, task):
        self.kind, self.left = task.id, 2

    def reset(self):
        return [user("begin " + "x" * 50 * (self.kind == "long"))]

    def step(self, reply):
        if "fail" in reply.text:
            raise ValueError("a wall")
        self.left -= 1
        return [user(f"you said {reply.text}")] if self.left else None


class Talks(Environment):
    name = "talks"
    rewards = (length,)

    def tasks(self, split):
        return [Task(id="one")]

    def episode(self, task):
        return Talk(task)
"""


@dataclass
class Name:
    """SkyRL's TrajectoryID."""

    instance_id: str
    repetition_id: int


class Letters:
    """A tokenizer whose ids are code points; 0 ends a reply. newest: its template shows the last message alone."""

    eos_token_id = 0
    chat_template = "letters"

    def __init__(self, newest: bool = False) -> None:
        self._newest = newest

    def apply_chat_template(self, turns: Any, **more: Any) -> str:
        shown = turns[-1:] if self._newest else turns
        return "".join(f"<{turn['role']}>{turn['content']}\\0" for turn in shown).replace("\\0", "\0") + "<assistant>"

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) for letter in text]}

    def decode(self, ids: list[int], skip_special_tokens: bool, clean_up_tokenization_spaces: bool) -> str:
        return "".join(chr(one) for one in ids if one or not skip_special_tokens)


class Servers:
    """Replies by place: of the first request of an episode, of the second."""

    def __init__(self, replies: Callable[[str], str]) -> None:
        self.replies, self.asked, self.ended = replies, list[Any](), list[str]()

    async def generate(self, request: Any, model: str) -> Any:
        self.asked.append(request)
        text = self.replies("".join(map(chr, request["prompt_token_ids"][0])))
        ids = [*map(ord, text), 0][: request["sampling_params"]["max_tokens"]]
        return {"response_ids": [ids], "response_logprobs": [[-1.0] * len(ids)]}

    async def finish_session(self, session: str) -> None:
        self.ended.append(session)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    def metrics(responses: Any, rewards: Any, **more: Any) -> dict[str, float]:
        return {"generate/avg_num_tokens": float(len(responses))}

    parts = {
        "skyrl.train.generators.base": {"GeneratorInterface": object},
        "skyrl.train.generators.utils": {"get_rollout_metrics": metrics},
    }
    for name in ("skyrl", "skyrl.train", "skyrl.train.generators", *parts):
        made = types.ModuleType(name)
        made.__dict__.update(parts.get(name, {}))
        monkeypatch.setitem(sys.modules, name, made)
    monkeypatch.setitem(sys.modules, "atropos_chat", chat)
    monkeypatch.setitem(sys.modules, "atropos_episodes", inside)
    spec = importlib.util.spec_from_file_location("atropos_skyrl_generator", GENERATOR)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "atropos_skyrl_generator", found)
    spec.loader.exec_module(found)
    return found


@pytest.fixture
def folder(atropos_clean: Path, tmp_path: Path) -> Path:
    (tmp_path / "env.py").write_text(ENVIRONMENT)
    for name in (host.PLANS, host.ROLLOUTS):
        (tmp_path / name).mkdir()
    plan = Plan(
        atropos_version="0", environment=ComponentRef(name=f"{tmp_path}/env.py:Talks"), group_size=2,
        backend=ComponentRef(name="scripted"), model="m", sampling=Sampling(max_tokens=9),
        rewards=(RewardRef(name="length"),),
    )  # fmt: skip
    (tmp_path / host.PLANS / "train.json").write_text(plan.model_dump_json())
    spec = {"python": sys.executable, "cwd": str(tmp_path), "pythonpath": None}
    (tmp_path / inside.SPEC).write_text(json.dumps(spec))
    (tmp_path / "atropos.json").write_text('{"env_workers": 2}')
    return tmp_path


def batch(tasks: list[str], *, n: int = 1, phase: str = "train") -> dict[str, Any]:
    rows = [{"plan": "train", "place": place, "task": {"id": task}} for place, task in enumerate(tasks)]
    return {
        "env_extras": [{"atropos": json.dumps(row)} for row in rows for _ in range(n)],
        "trajectory_ids": [Name(str(row["place"]), number) for row in rows for number in range(n)],
        "sampling_params": {"temperature": 0.7, "max_tokens": 500},
        "batch_metadata": types.SimpleNamespace(global_step=3, training_phase=phase),
    }


async def test_sequences_and_their_masks(module: Any, folder: Path) -> None:
    servers = Servers(lambda prompt: "first" if prompt.count("<user>") == 1 else "2nd")
    made = module.AtroposGenerator(folder, Letters(), servers, "policy", module.Lengths(40, 100))
    found = await made.generate(batch(["one", "one"]))
    assert len(found["response_ids"]) == 2
    prompt = "".join(map(chr, found["prompt_token_ids"][0]))
    response = "".join(map(chr, found["response_ids"][0]))
    assert prompt == "<user>begin \0<assistant>"
    assert response == "first\0<user>you said first\0<assistant>2nd\0"
    middle = len("<user>you said first\0<assistant>")
    assert found["loss_masks"][0] == [1] * 6 + [0] * middle + [1] * 4
    assert found["rollout_logprobs"][0] == [-1.0] * 6 + [0.0] * middle + [-1.0] * 4
    assert (found["rewards"], found["stop_reasons"]) == ([8.0, 8.0], ["stop", "stop"])
    assert found["is_last_step"] == [True, True]
    assert found["rollout_metrics"]["generate/avg_num_turns"] == 2.0
    # Each request has room for what is left of the lengths, --max-tokens at most; each session was ended.
    assert {request["sampling_params"]["max_tokens"] for request in servers.asked} == {9}
    assert {request["sampling_params"]["temperature"] for request in servers.asked} == {0.7}
    sessions = [request["session_ids"][0] for request in servers.asked]
    assert sorted(servers.ended) == sorted(set(sessions))
    assert all(sessions.count(session) == 2 for session in servers.ended)


async def test_a_rewritten_request_is_another_step_of_the_trajectory(module: Any, folder: Path) -> None:
    made = module.AtroposGenerator(
        folder, Letters(newest=True), Servers(lambda prompt: "yes"), "policy", module.Lengths(60, 100)
    )
    found = await made.generate(batch(["one"], n=2))
    assert [name.repetition_id for name in found["trajectory_ids"]] == [0, 0, 1, 1]
    assert found["is_last_step"] == [False, True, False, True]
    assert found["rewards"] == [6.0] * 4
    assert ["".join(map(chr, ids)) for ids in found["response_ids"]] == ["yes\0"] * 4
    assert "".join(map(chr, found["prompt_token_ids"][1])) == "<user>you said yes\0<assistant>"


async def test_a_group_with_a_failed_rollout_is_masked(module: Any, folder: Path) -> None:
    servers = Servers(lambda prompt: "fail" if "xxx" in prompt else "ok")
    made = module.AtroposGenerator(folder, Letters(), servers, "policy", module.Lengths(200, 300))
    given = batch(["one", "one", "long"])
    given["trajectory_ids"] = [Name("0", 0), Name("1", 0), Name("1", 1)]
    found = await made.generate(given)
    assert found["stop_reasons"] == ["stop", "stop", "error"]
    assert found["rollout_metrics"]["generate/failed"] == 1
    assert [sum(mask) > 0 for mask in found["loss_masks"]] == [True, False, False]
    for mask, ids, values in zip(found["loss_masks"], found["response_ids"], found["rollout_logprobs"], strict=True):
        assert len(mask) == len(ids) == len(values) > 0
    assert len(servers.ended) == 2 + inside.TRIES


async def test_no_whole_group_ends_the_training_but_no_evaluation(module: Any, folder: Path) -> None:
    made = module.AtroposGenerator(folder, Letters(), Servers(lambda prompt: "fail"), "policy", module.Lengths(99, 99))
    with pytest.raises(inside.EpisodeFailed, match=r"no group of step 3 is whole: .*a wall"):
        await made.generate(batch(["one"]))
    found = await made.generate(batch(["one"], phase="eval"))
    assert (found["rewards"], found["stop_reasons"]) == ([0.0], ["error"])


async def test_lengths_end_an_episode(module: Any, folder: Path) -> None:
    """Of the response: the second request leaves no room. Of the prompt: the first one is too long for any reply."""
    made = module.AtroposGenerator(
        folder, Letters(), Servers(lambda prompt: "abcdefghijk"), "p", module.Lengths(40, 20)
    )
    found = await made.generate(batch(["one"]))
    assert found["stop_reasons"] == ["length"]
    assert sum(found["loss_masks"][0]) == 9
    assert found["rollout_metrics"]["generate/avg_cut"] == 1.0
    with pytest.raises(inside.EpisodeFailed, match="context is full"):
        await made.generate(batch(["long"]))


async def test_a_template_that_refuses_ends_the_run_with_its_reason(module: Any, folder: Path) -> None:
    class Mute(Letters):
        def apply_chat_template(self, turns: Any, **more: Any) -> str:
            raise ValueError("only system messages")

    made = module.AtroposGenerator(folder, Mute(), Servers(str), "policy", module.Lengths(40, 20))
    with pytest.raises(inside.Fatal, match="only system messages"):
        await made.generate(batch(["one"]))
    assert "only system messages" in json.loads((folder / inside.FATAL).read_text())["message"]
