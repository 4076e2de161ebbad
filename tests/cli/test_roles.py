"""Models by role, from the command line: options, requests, records, costs, resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring.mock_server import MockServer

ENVIRONMENT = """
from atropos_cli.sdk import Environment, Episode, Task, reward, user


@reward
def happy(task, rollout):
    return float("thanks" in rollout.messages[-2].text)


class Talk(Episode):
    def __init__(self, task):
        self.task = task
        self.turns = 0

    async def reset(self):
        return [await self.said("begin " + self.task.id)]

    async def step(self, reply):
        self.turns += 1
        return None if self.turns == 2 else [await self.said(reply.text)]

    async def said(self, text):
        return user((await self.models["user"].reply([user(text)])).text)


class Support(Environment):
    name = "support"
    rewards = (happy,)
    roles = ("user",)

    def tasks(self, split):
        return [Task(id=str(i)) for i in range(3)]

    def episode(self, task):
        return Talk(task)
"""
POLICY = ("--backend", "scripted", "--backend.replies", "how can I help?", "--backend.token-ids", "--group-size", "2")


def customer(body: dict[str, Any], index: int) -> str:
    return "my lamp is broken" if body["messages"][-1]["content"].startswith("begin") else "thanks"


@pytest.fixture
def support(isolation: Path) -> str:
    Path("support.py").write_text(ENVIRONMENT)
    return "./support.py:Support"


def summary(run: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(Path(run, "summary.json").read_text())
    return data


def test_another_model_plays_the_user(cli: Any, support: str) -> None:
    with MockServer(reply=customer) as server:
        flags = (
            "--role.user.base-url",
            server.base_url,
            "--role.user.temperature",
            "0.3",
            "--role.user.max-tokens",
            "9",
        )
        assert cli("gen", support, *POLICY, *flags, "-o", "r").code == 0
        bodies = [request.json for request in server.generations]
    told = summary("r")
    assert told["rewards"] == {"happy": 1.0}
    assert len(bodies) == 12
    assert {(body["temperature"], body["max_tokens"]) for body in bodies} == {(0.3, 9)}
    assert not any("logprobs" in body or "return_token_ids" in body for body in bodies)
    assert len({body["seed"] for body in bodies}) == 12
    assert told["roles"]["user"]["model"] == "mock-model"
    assert told["usage"]["mock-model (user)"]["requests"] == 12
    assert told["usage"]["scripted"]["requests"] == told["requests"]
    group = json.loads(Path("r/groups.jsonl").read_text().splitlines()[0])
    masks = [message["tokens"]["mask"] for message in group["rollouts"][0]["messages"]]
    assert masks == [False, True, False, True]


def test_the_policy_plays_a_role_without_a_model(cli: Any, support: str) -> None:
    policy = ("--backend", "scripted", "--backend.replies", "thanks", "--group-size", "1")
    assert cli("gen", support, *policy, "--role.user.max-tokens", "9", "-o", "r").code == 0
    told = summary("r")
    assert told["roles"] == {"user": {"model": "scripted", "policy": True}}
    assert told["usage"]["scripted (user)"]["requests"] == 6
    assert told["usage"]["scripted"]["requests"] == 6
    plan = json.loads(Path("r/plan.json").read_text())
    assert plan["roles"]["user"]["sampling"]["max_tokens"] == 9
    assert plan["sampling"]["max_tokens"] == 1024


def test_options_come_from_files_and_variables(cli: Any, support: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("atropos.toml").write_text(
        'roles = ["judge-2"]\n[role.user]\nbackend = "scripted"\nbackend_options = { replies = ["thanks"] }\n'
        '[role.judge-2]\nbackend = "scripted"\nbackend_options = { replies = ["7"] }\ntemperature = 0\n'
    )
    monkeypatch.setenv("ATROPOS_ROLE__USER__TEMPERATURE", "0.5")
    monkeypatch.setenv("ATROPOS_ROLE__JUDGE_2__WORKERS", "3")
    plan = cli("gen", support, *POLICY, "--role.user.top-p", "0.9", "--dry-run", "--json").json
    assert plan["roles"]["user"]["sampling"]["temperature"] == 0.5
    assert plan["roles"]["user"]["sampling"]["top_p"] == 0.9
    assert plan["roles"]["user"]["backend"]["config"]["replies"] == ["thanks"]
    assert plan["roles"]["judge-2"]["sampling"]["temperature"] == 0
    assert plan["roles"]["judge-2"]["workers"] == 3


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--role.user.temprature", "1"), "--role.user.temperature"),
        (("--role.usr.model", "m"), "the environment has no role 'usr'"),
        (("--role.User.model", "m"), "small letters"),
        (("--role", "No Name"), "cannot be the name of a role"),
        (("--role.user.api-key-env", "KEY"), "played by the policy"),
        (("--role.user.temperature", "-1"), "expected at least 0"),
        (("--role.user.backend", "none-such"), "none-such"),
    ],
)
def test_wrong_options_are_told(cli: Any, support: str, flags: tuple[str, ...], words: str) -> None:
    result = cli("gen", support, *POLICY, *flags, "--dry-run")
    assert result.code != 0
    assert words in result.stderr


def digest(cli: Any, support: str, *flags: str) -> str:
    told: str = cli("gen", support, *POLICY, *flags, "--dry-run", "--json").json["digest"]
    return told


def test_the_digest_covers_what_a_role_says_and_not_where_it_is(cli: Any, support: str) -> None:
    here = ("--role.user.model", "m", "--role.user.base-url", "http://127.0.0.1:8001/v1")
    there = ("--role.user.model", "m", "--role.user.base-url", "http://127.0.0.1:8002/v1", "--role.user.workers", "3")
    assert digest(cli, support, *here) == digest(cli, support, *there)
    assert digest(cli, support, *here) != digest(cli, support, *here, "--role.user.temperature", "0.1")
    assert digest(cli, support, *here) != digest(cli, support, "--role.user.model", "other", *here[2:])


def test_a_run_with_roles_is_resumed(cli: Any, support: str) -> None:
    with MockServer(reply=customer) as server:
        flags = ("--role.user.base-url", server.base_url, "-o", "r")
        assert cli("gen", support, *POLICY, *flags, "--limit", "1").code == 0
        assert cli("gen", support, *POLICY, *flags, "--resume").code == 0
        assert len(server.generations) == 12
    assert summary("r")["usage"]["mock-model (user)"]["requests"] == 12
    assert len(Path("r/groups.jsonl").read_text().splitlines()) == 3


def test_a_role_has_retries_of_its_own(cli: Any, support: str) -> None:
    script = [{"status": 500, "text": "busy", "times": 2}, {"reply": "thanks"}]
    with MockServer(script) as server:
        flags = ("--role.user.base-url", server.base_url, "--role.user.retries", "4", "--retries", "0")
        assert cli("gen", support, *POLICY, *flags, "-o", "r", "--workers", "1").code == 0
    assert summary("r")["roles"]["user"]["retries"] == 2
    assert summary("r")["retries"] == 0


def test_a_role_without_a_server_ends_the_run(cli: Any, support: str) -> None:
    flags = ("--role.user.base-url", "http://127.0.0.1:9/v1", "--max-wait", "0")
    result = cli("gen", support, *POLICY, *flags, "-o", "r")
    assert result.code != 0
    assert "role user: no server listens at 127.0.0.1:9" in result.stderr
    assert "--role.user.base-url" in result.stderr


def test_errors_of_a_roles_server_name_the_role(cli: Any, support: str) -> None:
    refused: dict[str, Any] = {"status": 400, "json": {"error": {"message": "not like this"}}}
    with MockServer(handler=lambda request: refused if "completions" in request.path else None) as server:
        flags = ("--role.user.base-url", server.base_url, "--limit", "1", "-o", "r")
        assert cli("gen", support, *POLICY, *flags).code != 0
    (failed, *_) = map(json.loads, Path("r/failures.jsonl").read_text().splitlines())
    assert "role user: " in failed["message"]
    denied: dict[str, Any] = {"status": 401, "json": {"error": {"message": "no key"}}}
    with MockServer(handler=lambda request: denied if "completions" in request.path else None) as server:
        flags = ("--role.user.base-url", server.base_url, "--limit", "1", "-o", "r2")
        result = cli("gen", support, *POLICY, *flags)
    assert result.code == 5
    assert "error: role user: " in result.stderr
    assert "--role.user.api-key-env" in result.stderr


def test_a_named_role_may_look_like_another(cli: Any, support: str) -> None:
    plan = cli("gen", support, *POLICY, "--role", "user-2", "--role.user-2.model", "m", "--dry-run", "--json").json
    assert plan["roles"]["user-2"]["model"] == "m"


def test_the_cost_of_a_role_counts(cli: Any, support: str) -> None:
    free, dear = "input = 0.0\noutput = 0.0\n", "input = 1.0\noutput = 1000.0\n"
    Path("prices.toml").write_text(f'["mock-model"]\n{dear}["scripted"]\n{free}')
    with MockServer(reply=customer) as server:
        flags = ("--role.user.base-url", server.base_url, "--prices", "prices.toml", "-o", "r")
        assert cli("gen", support, *POLICY, *flags).code == 0
    told = summary("r")
    line = told["usage"]["mock-model (user)"]
    assert line["cost"] == pytest.approx(line["prompt_tokens"] / 1e6 + line["completion_tokens"] / 1e3)
    assert told["cost"] == pytest.approx(line["cost"])


def test_plans_without_roles_are_as_before(cli: Any, support: str) -> None:
    Path("plain.py").write_text(ENVIRONMENT.replace('roles = ("user",)', ""))
    plan = cli("gen", "./plain.py:Support", *POLICY, "--dry-run", "--json").json
    assert "roles" not in plan


def test_an_environment_with_roles_is_checked_without_a_model(cli: Any, support: str) -> None:
    result = cli("env", "check", support)
    assert result.code == 0, result.stdout


def test_a_misspelt_section_is_a_misspelt_role(cli: Any, support: str) -> None:
    Path("atropos.toml").write_text('[role.usr]\nmodel = "m"\n')
    result = cli("gen", support, *POLICY, "--dry-run")
    assert result.code == 3
    assert "[role.usr]: this command has no role 'usr'" in result.stderr
    assert "did you mean 'user'" in result.stderr
    assert "installed" not in result.stderr


def test_a_copy_of_the_policy_is_for_train_and_has_no_model(cli: Any, support: str) -> None:
    gen = cli("gen", support, *POLICY, "--role.user.refresh", "2", "-o", "r")
    assert gen.code == 3
    assert "is for train" in gen.stderr
    both = cli("gen", support, *POLICY, "--role.user.refresh", "2", "--role.user.model", "m", "--dry-run")
    assert both.code == 2
    assert "has a model of its own" in both.stderr
