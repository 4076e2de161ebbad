"""`atropos eval`: what is counted, how sure it is, what changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring.mock_server import MockServer, RecordedRequest

from atropos_cli.evaluation.evaluation import evaluate as count_run
from atropos_cli.evaluation.evidence import Evidence
from atropos_cli.io.rundir import read_plan

ENVIRONMENT = '''
from atropos_cli.sdk import Config, Environment, Rollout, Task, reward, user
from atropos_cli.sdk.backends import RequestRejected

@reward
def exact(task, rollout) -> float:
    return float(rollout.text == task.answer)

@reward
def tidy(task, rollout) -> float:
    return 0.1

class Sums(Environment):
    """Forty sums; the reply function below knows some."""
    name = "sums"
    rewards = (exact,)
    splits = ("train", "test")
    def tasks(self, split):
        return [Task(id=f"{split}-{i}", prompt=(user(f"{i}+1"),), answer=str(i + 1)) for i in range(40)]

class Tidy(Sums):
    name = "tidy"
    rewards = (exact, tidy)

def half(messages, request):
    number = int(messages[0].text.split("+")[0])
    return str(number + 1) if number % 2 == 0 else "no"

def most(messages, request):
    number = int(messages[0].text.split("+")[0])
    return str(number + 1) if number != 7 else "no"

def broken(messages, request):
    number = int(messages[0].text.split("+")[0])
    if number >= 22:
        raise RequestRejected("400: no")
    return str(number + 1)

def greedy(messages, request):
    return [str(request.sampling.temperature)] * request.n
'''


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    (tmp_path / "sums.py").write_text(ENVIRONMENT)
    return tmp_path


def evaluate(cli: Any, folder: Path, function: str, *options: str, environment: str = "Sums", code: int = 0) -> Any:
    result = cli(
        *("eval", f"{folder}/sums.py:{environment}", "--backend", "scripted"),
        *("--backend.function", f"{folder}/sums.py:{function}", "-o", str(folder / function), "--json", *options),
    )
    assert result.code == code, result.stderr
    return result.json["evaluations"][0]


def test_accuracy_interval_and_the_held_out_split(cli: Any, sums: Path) -> None:
    found = evaluate(cli, sums, "half")
    assert (found["split"], found["tasks"], found["samples"]) == ("test", 40, 1)
    accuracy = found["accuracy"]
    assert accuracy["value"] == 0.5
    assert 0.3 < accuracy["low"] < 0.5 < accuracy["high"] < 0.7
    assert found["sampling"]["temperature"] == 0.0
    assert json.loads((sums / "half" / "eval.json").read_text())["accuracy"]["value"] == 0.5
    report = (sums / "half" / "eval.md").read_text()
    assert "| accuracy | 0.500 [" in report
    assert "| test-1 | 0/1 |" in report


def test_tasks_are_in_their_order_however_they_ended(cli: Any, sums: Path) -> None:
    before = [row["task_id"] for row in evaluate(cli, sums, "half")["per_task"]]
    file = sums / "half" / "groups.jsonl"
    file.write_text("".join(reversed(file.read_text().splitlines(keepends=True))))
    after = count_run(read_plan(sums / "half" / "plan.json"), Evidence.of_run(sums / "half")).per_task
    assert [result.task_id for result in after] == before == [f"test-{index}" for index in range(40)]


def test_a_trajectory_server_in_the_settings_is_for_gen(cli: Any, sums: Path) -> None:
    Path("atropos.toml").write_text('[delivery]\nto = "http://127.0.0.1:9"\n')
    assert evaluate(cli, sums, "half")["tasks"] == 40
    result = cli("eval", f"{sums}/sums.py:Sums", "--backend", "scripted", "--to", "http://127.0.0.1:9")
    assert result.code == 2
    assert "--to is for gen" in result.stderr


def test_samples_are_not_greedy_and_k_beyond_them_is_left_out(cli: Any, sums: Path) -> None:
    found = evaluate(cli, sums, "half", "--samples", "4", "--k", "1", "--k", "4", "--k", "10")
    assert found["sampling"]["temperature"] == 1.0
    assert found["pass_at"]["4"]["value"] == 0.5
    assert found["pass_hat"]["4"]["value"] == 0.5
    assert "10" not in found["pass_at"]
    assert found["left_out"] == {"10": "4 rollouts of a task are fewer than 10"}


def test_errors_are_wrong_or_left_out_and_always_named(cli: Any, sums: Path) -> None:
    wrong = evaluate(cli, sums, "broken", "--workers", "1", code=1)
    assert (wrong["tasks"], wrong["scored"], wrong["errors"]) == (40, 22, 18)
    assert wrong["accuracy"]["value"] == pytest.approx(22 / 40)
    assert wrong["failures"] == {"generate:RequestRejected": 18}
    left_out = evaluate(cli, sums, "broken", "--workers", "1", "--errors", "leave-out", "--overwrite", code=1)
    assert (left_out["accuracy"]["value"], left_out["accuracy"]["tasks"]) == (1.0, 22)
    assert left_out["errors_count_as"] == "leave-out"
    allowed = evaluate(cli, sums, "broken", "--workers", "1", "--max-failure-rate", "0.5", "--overwrite")
    assert allowed["errors"] == 18


def test_j09_the_headline_states_its_denominator(cli: Any, sums: Path, field_cases: Any) -> None:
    """Row J09: 22 of 40 tasks ran, and the rest met a server error."""
    assert field_cases["J09"]["input"] == {"steps": "eval of 40 tasks; tasks 23-40 fail with a server error"}

    def handler(request: RecordedRequest) -> dict[str, Any]:
        number = int(request.json["messages"][0]["content"].split("+")[0])
        if number >= 22:
            return {"status": 500, "json": {"error": {"message": "internal error"}}}
        return {"reply": str(number + 1)}

    with MockServer(handler=handler) as server:

        def evaluate(name: str, *options: str) -> Any:
            base = ("eval", f"{sums}/sums.py:Sums", "--base-url", server.base_url, "--retries", "0")
            return cli(*base, "-o", str(sums / name), *options)

        wrong = evaluate("wrong")
        assert wrong.code == 1
        assert "0.550 [" in wrong.stdout
        assert "over 40 tasks" in wrong.stdout
        assert "22 scored, 18 errors of 40 (errors count as wrong)" in wrong.stdout
        assert "18 of 40 rollouts failed" in wrong.stderr
        report = (sums / "wrong" / "eval.md").read_text()
        assert "| rollouts scored | 22 of 40 |" in report
        assert "count as wrong" in report
        assert "generate:TransientBackendError 18" in report
        left_out = evaluate("left", "--errors", "leave-out")
        assert left_out.code == 1
        assert "1.000 [" in left_out.stdout
        assert "over 22 tasks" in left_out.stdout
        assert "22 scored, 18 errors of 40 (errors count as leave-out)" in left_out.stdout
        assert "they are left out" in (sums / "left" / "eval.md").read_text()
        assert evaluate("allowed", "--max-failure-rate", "0.5").code == 0


def test_a_small_reward_is_no_success(cli: Any, sums: Path) -> None:
    found = evaluate(cli, sums, "half", environment="Tidy")
    assert found["success_rule"] == "reward >= 2"
    assert found["accuracy"]["value"] == 0.0
    lower = evaluate(cli, sums, "half", "--success-at", "1.0", "--overwrite", environment="Tidy")
    assert (lower["success_rule"], lower["accuracy"]["value"]) == ("reward >= 1", 0.5)


def test_a_baseline_is_compared_task_by_task(cli: Any, sums: Path) -> None:
    evaluate(cli, sums, "half")
    found = evaluate(cli, sums, "most", "--baseline", str(sums / "half"))
    change = found["comparison"]
    assert change["tasks"] == 40
    assert change["difference"]["value"] == pytest.approx(19 / 40)
    assert change["difference"]["low"] > 0
    assert (len(change["gained"]), change["lost"]) == (19, [])
    missing = cli("eval", f"{sums}/sums.py:Sums", "--baseline", str(sums / "nowhere"))
    assert missing.code == 6


def test_models_side_by_side(cli: Any, sums: Path) -> None:
    result = cli(
        *("eval", f"{sums}/sums.py:Sums", "--backend", "scripted", "--backend.function", f"{sums}/sums.py:half"),
        *("--models", "org/a:latest", "--models", "b", "-o", str(sums / "both"), "--json"),
    )
    assert result.code == 0, result.stderr
    assert [item["model"] for item in result.json["evaluations"]] == ["org/a:latest", "b"]
    assert "| | org/a:latest | b |" in (sums / "both" / "eval.md").read_text()


def test_bad_numbers_are_usage_errors(cli: Any, sums: Path) -> None:
    for options in (("--samples", "0"), ("--k", "0"), ("--errors", "maybe"), ("--resume",)):
        assert cli("eval", f"{sums}/sums.py:Sums", *options).code == 2
