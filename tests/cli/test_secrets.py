"""No secret leaves the program: not in messages, not in files, however it came in and whoever repeats it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring.mock_server import MockServer

from atropos_cli import redaction

SHAPED = "sk-" + "a" * 24  # in the form of a key

ENVIRONMENT = """
import os, sys
from atropos_cli.sdk import Config, Environment, SecretStr, Task, reward, user

class LeakyConfig(Config):
    password: SecretStr | None = None

@reward
def leaky(task, rollout):
    raise ValueError(f"score {os.environ.get('DB_PASSWORD')} {os.environ.get('MY_KEY')}")

class Leaky(Environment):
    "Tells what it should not."
    name = "leaky"
    Config = LeakyConfig
    rewards = (leaky,)

    def tasks(self, split):
        secret = self.config.password.get_secret_value() if self.config.password else ""
        print("task", secret, file=sys.stderr)
        yield Task(id="a", prompt=(user("1+1"),), answer="2")
"""


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    redaction.begin({})


def everything(folder: Path) -> str:
    return "\n".join(path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())


SECRETS = {
    "MY_KEY": "q7-Key/with+odd=chars&9",
    "TENANT": "ténant-größe-42",
    "DB_PASSWORD": "hunter2",
    "ATROPOS_ENV__PASSWORD": "a b\"c\\d'e-f",
}


def test_what_servers_rewards_and_plugins_repeat_is_hidden_everywhere(
    cli: Any, isolation: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (isolation / "leaky.py").write_text(ENVIRONMENT)
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    message = f"no: {SECRETS['MY_KEY']} / {SECRETS['TENANT']} / http://me:pass-word@proxy:8080/x"
    refusal = {"status": 400, "json": {"error": {"message": message}}}
    said = {"reply": f"the key is {SECRETS['MY_KEY']}"}
    with MockServer([said, refusal, refusal, refusal]) as server:
        got = cli(
            *("gen", "./leaky.py:Leaky", "--base-url", server.base_url, "--api-key-env", "MY_KEY", "--group-size", "2"),
            *("--backend.headers", json.dumps({"X-Tenant": "${TENANT}", "X-Title": "plain"}), "-o", "run", "--json"),
        )
    text = got.stdout + got.stderr + everything(isolation / "run")
    for value in (*SECRETS.values(), "pass-word"):
        for form in (value, json.dumps(value)[1:-1], repr(value)[1:-1]):
            assert form not in text
    assert redaction.MARK in everything(isolation / "run")
    assert "${TENANT}" in (isolation / "run/plan.json").read_text()
    assert any(row["stage"] == "score" for row in map(json.loads, (isolation / "run/failures.jsonl").open()))


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Tenant": "acme-4711"},
        {"X-Auth": "abc"},
        {"Ocp-Apim-Subscription-Key": "0123456789"},
        {"Authorization": "Bearer abc123${MY_KEY}"},
        {"Cookie": "session=abc123; user=${MY_KEY}"},
        {"X-Goog-Iam": "${MY_KEY}x9y8z7"},
        {"User-Agent": SHAPED},
        {"Referer": "https://me:word@example.org"},
        {"X-Request-Id": "Basic bWU6d29yZA=="},
    ],
)
def test_a_literal_that_may_be_a_secret_in_a_header_is_refused(cli: Any, headers: dict[str, str]) -> None:
    got = cli("gen", "arithmetic", "--backend", "openai", "--backend.headers", json.dumps(headers), "-o", "run")
    assert got.code == 3
    assert "${NAME}" in got.stderr
    (value,) = headers.values()
    assert value not in got.stderr
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("body", "key"),
    [
        ({"api_token": "abc123"}, "api_token"),
        ({"x_custom": {"deep": [{"er": "hunter2"}]}}, "er"),
        ({"tools": [{"type": "mcp", "headers": {"Authorization": "Bearer abc"}}]}, "tools"),
        ({"chat_template_kwargs": {"api_key": "abc"}}, "api_key"),
        ({"stop": [SHAPED]}, "stop"),
        ({"lora_path": "s3://id:word@bucket/x"}, "lora_path"),
    ],
)
def test_a_literal_that_may_be_a_secret_in_extra_body_is_refused(cli: Any, body: dict[str, Any], key: str) -> None:
    got = cli("gen", "arithmetic", "--backend", "openai", "--backend.extra-body", json.dumps(body), "-o", "run")
    assert got.code == 3
    assert "may be a secret" in got.stderr
    assert not Path("run").exists()


def test_plain_headers_and_fields_and_variables_are_sent(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROUTE", "blue-42-route")
    headers = {"X-Title": "a title", "user-agent": "mine/1.0", "Authorization": "Token token=${ROUTE}"}
    body = {
        "top_k": 7,
        "chat_template_kwargs": {"enable_thinking": False, "mode": "short"},
        "response_format": {"type": "json_schema", "json_schema": {"properties": {"password": {"type": "string"}}}},
        "my_router": {"route": "${ROUTE}", "weight": 0.5, "on": True},
    }
    with MockServer([{"reply": "2"}] * 3) as server:
        got = cli(
            *("gen", "arithmetic", "--base-url", server.base_url, "--limit", "1", "--group-size", "1", "-o", "run"),
            *("--backend.headers", json.dumps(headers), "--backend.extra-body", json.dumps(body)),
        )
        assert got.code == 0, got.stderr
        sent = server.requests[-1]
    assert sent.json["my_router"] == {"route": "blue-42-route", "weight": 0.5, "on": True}
    assert sent.json["top_k"] == 7
    assert sent.headers["authorization"] == "Token token=blue-42-route"
    assert "blue-42-route" not in everything(Path("run")) + got.stderr
    assert cli("gen", "arithmetic", "--base-url", "h:1", "--backend.extra-body", '{"a": "${UNSET}"}').code == 3


@pytest.mark.parametrize(
    "secret", ["hunter2", "pa/ss word%20", "Ünïcödé-key", 'quo"te\\back', "x" * 40, "1234567890123456"]
)
@pytest.mark.parametrize(
    "form",
    [
        str,
        repr,
        json.dumps,
        lambda text: json.dumps(json.dumps({"key": text}))[1:-1].partition(": ")[2][:-1],
        lambda text: base64.b64encode(text.encode()).decode(),
        lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
        lambda text: f"<{text}>",
        lambda text: text.encode(),
    ],
)
def test_a_learnt_secret_is_hidden_in_every_way_of_writing_it(secret: str, form: Any) -> None:
    redaction.begin({})
    redaction.learn(secret)
    written = form(secret)
    if isinstance(written, bytes):
        assert secret not in redaction.redacted_bytes(b"\x89\xff " + written + b" \x00").decode("latin1")
        assert redaction.redacted_bytes(b"\x89\xff " + written + b" \x00").startswith(b"\x89\xff ")
    else:
        assert written not in redaction.redacted(f"before {written} after")
        assert redaction.redacted(f"before {written} after").startswith("before ")


@pytest.mark.parametrize("dummy", ["EMPTY", "none", "dummy", "lm-studio", "true", "12345", "stop", "reward"])
def test_what_stands_in_place_of_a_key_is_a_word_like_any_other(dummy: str) -> None:
    redaction.begin({"OPENAI_API_KEY": dummy})
    assert redaction.redacted(f"{dummy} reward 12345 stop") == f"{dummy} reward 12345 stop"


@pytest.mark.parametrize("place", ["flag", "variable", "file"])
@pytest.mark.parametrize("userinfo", ["joe:hunTer-77x", "joe:h%40nTer-77x", "joe:a@hunTer-77x", "tok-3n-9981"])
def test_the_password_of_a_url_in_any_setting_stays_in_the_process(
    cli: Any, monkeypatch: pytest.MonkeyPatch, place: str, userinfo: str
) -> None:
    url = f"https://{userinfo}@hub.example/model"
    command = ["gen", "arithmetic", "--backend", "scripted", "--backend.replies", "Answer: 1", "--limit", "1"]
    if place == "flag":
        command += ["--model", url]
    elif place == "variable":
        monkeypatch.setenv("ATROPOS_MODEL", url)
    else:
        Path("atropos.toml").write_text(f'model = "{url}"\n')
    got = cli(*command, "-o", "run", "--debug")
    assert got.code == 0, got.stderr
    shown = cli("config", "show", *command[:2], "--json", *command[8:])
    text = everything(Path("run")) + got.stdout + got.stderr + shown.stdout + shown.stderr
    secret = userinfo.rpartition(":")[2]
    assert "hub.example" in text
    assert secret not in text
    assert secret.rpartition("@")[2] not in text


def test_secrets_of_this_user_are_known_from_the_start(isolation: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = isolation.parent / "home"
    (home / ".cache/huggingface").mkdir(parents=True)
    (home / ".cache/huggingface/token").write_text("hub-token-0001\n")
    (home / ".netrc").write_text("machine api.wandb.ai\n  login user\n  password wandb-key-0002\n")
    env = {"HOME": str(home), "HF_TOKEN": "hub-token-0003", "WANDB_API_KEY": "wandb-key-0004"}
    env |= {"AWS_SECRET_ACCESS_KEY": "aws-key-0005", "https_proxy": "http://me:proxy-word@proxy:3128"}
    env |= {"SORT_KEY": "reward_mean", "ROUTE_AUTH": "basic-auth", "DEPLOY_KEY": "a1b2c3d4e5f6a7b8c9"}
    env |= {"TOKENIZERS_PARALLELISM": "false-value-06", "SSH_KEY": "/home/me/.ssh/id-07", "MAX_TOKENS": "4096-0008"}
    redaction.begin(env)
    basic = base64.b64encode(b"me:proxy-word").decode()
    text = (
        "hub-token-0001 wandb-key-0002 hub-token-0003 wandb-key-0004 aws-key-0005 proxy-word a1b2c3d4e5f6a7b8c9 "
        + basic
    )
    assert redaction.redacted(text).split() == [redaction.MARK] * 8
    plain = "reward_mean basic-auth false-value-06 /home/me/.ssh/id-07 4096-0008 proxy me@example.org http://example.org/@user"
    assert redaction.redacted(plain) == plain


def test_a_run_whose_plan_held_a_secret_is_resumed(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROUTE_TOKEN", "path-part-4711")
    words = ("gen", "arithmetic", "--backend", "scripted", "--backend.replies", "path-part-4711", "-o", "run")
    assert cli(*words, "--limit", "1", "--group-size", "1").code == 0
    plan = Path("run/plan.json").read_text()
    assert redaction.MARK in plan
    assert "path-part-4711" not in plan
    assert cli(*words, "--limit", "1", "--group-size", "1", "--resume").code == 0
    assert "was started with another plan" in cli(*words, "--limit", "1", "--group-size", "2", "--resume").stderr
    got = cli("run", "run")  # what is not written cannot be carried out from there: it is told, not guessed
    assert got.code == 6
    assert "without a secret" in got.stderr


@pytest.mark.parametrize(("name", "value"), [("SOME_TOKEN", "abc"), ("PLAIN", SHAPED), ("PLAIN", "known-key-4711")])
def test_what_a_job_would_write_down_is_refused(
    cli: Any, isolation: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv("MY_API_KEY", "known-key-4711")
    step = 'command = ["gen", "arithmetic", "--limit", "1"]'
    (isolation / "p.toml").write_text(f'[steps.a]\n{step}\n[steps.a.env]\n{name} = "{value}"\n')
    (isolation / "q.toml").write_text(f'[env]\n{name} = "{value}"\n[steps.a]\n{step}\n')
    (isolation / "atropos.toml").write_text(f'[slurm.profiles.x.env]\n{name} = "{value}"\n')
    slurm = ("slurm", "submit", "--no-check", "--folder", "job")
    for words in (
        ("pipeline", "run", "p.toml", "-o", "job"),
        ("pipeline", "run", "q.toml", "-o", "job"),
        (*slurm, "--env", f"{name}={value}", "--", "gen", "arithmetic"),
        (*slurm, "--profile", "x", "--", "gen", "arithmetic"),
    ):
        got = cli(*words)
        assert got.code in (2, 3), (words, got)
        assert "secret" in got.stderr
        assert value == "abc" or value not in got.stderr
        assert not (isolation / "job").exists()
    if value == "known-key-4711":
        got = cli(*slurm, "--", "gen", "arithmetic", "--base-url", f"http://h/{value}/v1", "--model", "m")
        assert got.code in (3, 7), got
        assert value not in got.stdout + got.stderr
