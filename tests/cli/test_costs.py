"""Money on the command line: prices, --max-cost, what the summary says, kept replies, and kill -9."""

from __future__ import annotations

import json
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring.mock_server import MockServer

PRICES = 'currency = "EUR"\n["mock-*"]\ninput = 0\noutput = 1000\n'
MANY = """
from atropos_cli.sdk import Config, Environment, Task, reward, user

@reward
def one(task, rollout):
    return 1.0

class Many(Environment):
    name = "many"
    rewards = (one,)
    splits = ("train", "test")
    def tasks(self, split):
        return [Task(id=f"{split}-{i}", prompt=(user(f"question {i}"),)) for i in range(400)]
"""
REPLY = "x" * 9
EACH = 10 * 1000 / 1e6  # nine bytes and the end, at 1000 for a million


@pytest.fixture
def server(isolation: Path) -> Iterator[MockServer]:
    Path("prices.toml").write_text(PRICES)
    Path("many.py").write_text(MANY)
    with MockServer(reply=REPLY) as running:
        yield running


def gen(cli: Any, server: MockServer, *args: str, command: str = "gen", code: int = 0) -> Any:
    common = ("--base-url", server.base_url, "--max-tokens", "20", "--prices", "prices.toml", "--json")
    if command == "gen":
        common += ("--group-size", "2")
    got = cli(command, "many.py:Many", *common, *args)
    assert got.code == code, got.stderr
    return got


def test_the_limit_ends_the_run_and_resume_goes_on(cli: Any, server: MockServer) -> None:
    got = gen(cli, server, "--limit", "40", "--max-cost", "0.3", "-o", "run", code=130)
    summary = got.json
    assert (summary["state"], summary["currency"], summary["max_cost"]) == ("interrupted", "EUR", 0.3)
    assert 0.2 < summary["cost"] <= 0.3
    assert summary["cost"] == pytest.approx(EACH * 2 * len(server.generations))
    assert f"stopped at the cost limit: {summary['cost']:.4f} of 0.3000 EUR" in got.stderr
    assert f"; {summary['groups_done']} of 40 groups are done" in got.stderr
    following = got.stderr.splitlines()[-1]
    assert following.startswith("next: atropos gen many.py:Many")
    assert following.endswith("--resume --output run --max-cost 0.6")
    assert following.count("--max-cost") == 1
    got = gen(cli, server, "--limit", "40", "--max-cost", "0.85", "-o", "run", "--resume")
    assert (got.json["state"], got.json["groups_done"]) == ("finished", 40)
    assert got.json["cost"] == pytest.approx(0.8)
    assert "cost: 0.8000 of 0.8500 EUR" in got.stderr
    assert len(server.generations) == 40


@pytest.mark.parametrize("before", [(), ("-v",), ("--log-level", "error")])
def test_the_next_step_after_a_limit_can_be_typed(cli: Any, server: MockServer, before: tuple[str, ...]) -> None:
    """Also where not one request fitted, and where switches stand before the command."""
    common = ("--base-url", server.base_url, "--max-tokens", "20", "--prices", "prices.toml", "--group-size", "2")
    got = cli(*before, "gen", "many.py:Many", *common, "--limit", "2", "--max-cost", "0.00001", "-o", "run")
    assert (got.code, server.generations) == (130, [])
    typed = shlex.split(got.stderr.splitlines()[-1].removeprefix("next: atropos "))
    assert typed[-5:] == ["--resume", "--output", "run", "--max-cost", "0.08"]
    got = cli(*typed)
    assert got.code == 0, got.stderr
    assert "cost: 0.0400 of 0.0800 EUR" in got.stderr


def test_run_takes_the_limit_from_the_plan(cli: Any, server: MockServer) -> None:
    gen(cli, server, "--limit", "4", "--max-cost", "0.05", "-o", "run", code=130)
    got = cli("run", "run")
    assert got.code == 130
    assert got.stderr.splitlines()[-1] == 'next: write "max_cost": 0.1 into run/plan.json, then atropos run run'
    plan = Path("run/plan.json")
    plan.write_text(plan.read_text().replace('"max_cost": 0.05', '"max_cost": 0.1'))
    got = cli("run", "run")
    assert got.code == 0, got.stderr  # with the last group done there is no next one to pay for
    assert "cost: 0.0800 of 0.1000 EUR" in got.stderr


def test_what_has_no_price_is_said_to_be_missing(cli: Any, server: MockServer) -> None:
    Path("prices.toml").write_text('["other"]\ninput = 1\noutput = 1\n')
    got = gen(cli, server, "--limit", "1", "-o", "run")
    assert "cost: 0.00 USD" in got.stderr
    assert "not in the cost: 1 request to mock-model, which has no price" in got.stderr
    assert got.json["usage"]["mock-model"]["unpriced"] == 1


def test_the_price_of_one_token_is_doubted(cli: Any, server: MockServer, caplog: pytest.LogCaptureFixture) -> None:
    Path("prices.toml").write_text('["mock-*"]\ninput = 1.5e-7\noutput = 6e-7\n')
    gen(cli, server, "--limit", "1", "-o", "run")
    assert "mock-* costs 6e-07 for a million tokens: is that the price of one token?" in caplog.text


def test_a_run_keeps_its_currency(cli: Any, server: MockServer) -> None:
    gen(cli, server, "--limit", "1", "-o", "run")
    asked = len(server.generations)
    Path("prices.toml").write_text(PRICES.replace("EUR", "USD"))
    got = gen(cli, server, "--limit", "2", "-o", "run", "--resume", code=3)
    assert "paid for in EUR so far" in got.stderr
    assert len(server.generations) == asked
    common = ("--base-url", server.base_url, "--max-tokens", "20", "--group-size", "2", "-o", "run", "--resume")
    got = cli("gen", "many.py:Many", *common, "--limit", "2")
    assert got.code == 0, got.stderr
    assert "cost: 0.0200 EUR" in got.stderr
    assert "not in the cost: 1 request" in got.stderr


def test_eval_keeps_to_the_limit_too(cli: Any, server: MockServer) -> None:
    got = cli(
        *("eval", "many.py:Many", "--base-url", server.base_url, "--max-tokens", "20", "--prices", "prices.toml"),
        *("--max-cost", "0.1", "-o", "run"),
    )
    assert got.code == 130
    assert "stopped at the cost limit" in got.stderr
    assert EACH * len(server.generations) <= 0.1


def test_a_section_of_the_configuration_file_serves_as_well(cli: Any, server: MockServer) -> None:
    Path("atropos.toml").write_text('[prices]\ncurrency = "EUR"\n[prices."mock-*"]\ninput = 0\noutput = 1000\n')
    got = cli("gen", "many.py:Many", "--base-url", server.base_url, "--limit", "2", "--json", "-o", "run")
    assert got.code == 0, got.stderr
    assert got.json["cost"] == pytest.approx(2 * 8 * EACH)
    shown = cli("config", "show").stdout
    assert "mock-*" in shown


WRONG = [
    ("nowhere.toml", None, "there is no file of prices"),
    ("p.toml", "", "no model has a price"),
    ("p.toml", 'currency = "EUR"', "no model has a price"),
    ("p.toml", "[m]\ninput = 1", "m.output: Field required"),
    ("p.toml", "[m]\ninput = -1\noutput = 1", "greater than or equal to 0"),
    ("p.toml", "[m]\ninput = nan\noutput = 1", "m.input"),
    ("p.toml", "[m]\ninput = 1\noutput = 1\ninputs = 3", "there is no such key"),
    ("p.toml", "[gpt-4.1]\ninput = 1\noutput = 1", "needs quotes"),
    ("p.toml", "[m]\ninput = true\noutput = 1", "m.input: Value error, a price is a number"),
    ("p.toml", "[m]\nprompt = 1\ncompletion = 1", "p.toml: m.prompt: there is no such key"),
    ("p.json", '{"m": {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}}', "per million tokens"),
    ("p.toml", "m = 3", "expected a section"),
    ("p.toml", 'currency = "a b"\n[m]\ninput = 1\noutput = 1', "currency"),
    ("p.toml", "[m\n", "not valid TOML"),
    ("p.txt", "x", "suffix"),
    ("7", None, "there is no file of prices 7"),
    ('{"m": 7}', None, "expected a section"),
]


@pytest.mark.parametrize(("name", "text", "said"), WRONG)
def test_wrong_prices_are_explained(cli: Any, server: MockServer, name: str, text: str | None, said: str) -> None:
    if text is not None:
        Path(name).write_text(text)
    got = cli("gen", "many.py:Many", "--base-url", server.base_url, "--prices", name, "-o", "run")
    assert got.code in (2, 3), got.stderr
    assert said in got.stderr
    assert "Traceback" not in got.stderr
    assert not Path("run").exists()


LIMITS = [
    ("--max-cost", "0"),
    ("--max-cost", "-1"),
    ("--max-cost", "nan"),
    ("--max-cost", "inf"),
    ("--max-cost", "much"),
]


@pytest.mark.parametrize("wrong", [*LIMITS, ("--cache-size", "0")])
def test_wrong_limits_are_refused(cli: Any, server: MockServer, wrong: tuple[str, str]) -> None:
    got = cli("gen", "many.py:Many", "--base-url", server.base_url, *wrong, "-o", "run")
    assert got.code in (2, 3)
    assert not server.generations


def test_a_limit_without_a_price_is_an_error_before_the_run(cli: Any, server: MockServer) -> None:
    got = cli("gen", "many.py:Many", "--base-url", server.base_url, "--max-cost", "1", "-o", "run")
    assert got.code == 3
    assert "needs a price for the model 'mock-model'" in got.stderr
    assert '["mock-model"]' in got.stderr
    assert not server.generations


def test_training_takes_neither(cli: Any, server: MockServer) -> None:
    for flags, said in (
        (("--cache",), "no cached replies"),
        (("--cache-dir", "c"), "no cached"),
        (("--max-cost", "1"), "--steps"),
    ):
        got = cli("train", "grpo", "--env", "many.py:Many", "--model", "smollm2", *flags, "-o", "run")
        assert got.code == 2
        assert said in got.stderr


def test_kept_replies_cost_nothing(cli: Any, server: MockServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATROPOS_CACHE_DIR", str(Path("kept").absolute()))
    first = gen(cli, server, "--limit", "5", "--cache", "-o", "one")
    assert "told apart by the model's name and the server's address" in first.stderr
    asked = len(server.generations)
    again = gen(cli, server, "--limit", "5", "--cache", "--max-cost", "0.001", "-o", "two")
    assert (again.json["cost"], again.json["usage"]) == (0.0, {"mock-model": {"cache_hits": 10}})
    assert "cache: 10 replies were there already and cost nothing" in again.stderr
    assert len(server.generations) == asked
    assert Path("kept/replies/replies.sqlite").exists()
    evaluated = [gen(cli, server, "--limit", "5", "--cache", "-o", name, command="eval") for name in ("three", "four")]
    assert len(server.generations) == asked + 5
    assert "cache: 5 replies" in evaluated[1].stderr


def test_other_weights_are_another_key(cli: Any, server: MockServer) -> None:
    """SGLang names the version of its weights; then the address does not matter, and the version does."""
    info = {"path": "get_model_info", "times": -1}
    with MockServer(reply=REPLY, flavor="sglang") as other:
        for version, asks in (("v1", 3), ("v1", 0), ("v2", 3)):
            other.script([{**info, "json": {"model_path": "m", "weight_version": version}}, {"reply": REPLY}])
            before = len(other.generations)
            got = gen(cli, other, "--limit", "3", "--cache-dir", "c", "-o", f"{version}-{asks}")
            assert "told apart by the weights' version" in got.stderr
            assert len(other.generations) - before == asks


@pytest.mark.slow
def test_kill_9_loses_no_money(server: MockServer) -> None:
    """Killed again and again: what is counted is never less than what the server billed, nor more than the limit."""
    rng = random.Random(random.SystemRandom().randrange(10**6))
    server.delay = 0.02
    command = [
        *(sys.executable, "-m", "atropos_cli", "gen", "many.py:Many", "--base-url", server.base_url, "-o", "run"),
        *("--group-size", "2", "--max-tokens", "20", "--prices", "prices.toml", "--resume"),
    ]
    killed = 0
    for _ in range(12):
        child = subprocess.Popen([*command, "--max-cost", "5"], stderr=subprocess.PIPE)
        began = time.monotonic()
        before = len(server.generations)
        while len(server.generations) < before + 3 and time.monotonic() < began + 30 and child.poll() is None:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.15))
        child.send_signal(signal.SIGKILL)
        child.communicate()
        killed += child.returncode == -signal.SIGKILL
        counted = json.loads(Path("run/costs.json").read_bytes())["state"]
        spent = (
            sum(one.get("cost", 0) + one.get("unsure", 0) for one in counted["usage"].values()) + counted["in_flight"]
        )
        billed = EACH * 2 * len(server.generations)
        assert billed <= spent + 1e-9
        assert spent <= 5 + 1e-9
    assert killed >= 5
    done = subprocess.run([*command, "--max-cost", "100", "--json"], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    summary = json.loads(done.stdout)
    billed = EACH * 2 * len(server.generations)
    assert summary["groups_done"] == 400
    assert billed <= summary["cost"] <= billed + killed * 8 * 2 * 20 * 1000 / 1e6
    assert summary["cost_unsure"] == pytest.approx(summary["usage"]["(killed)"]["unsure"])
