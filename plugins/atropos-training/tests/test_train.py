"""`atropos train` around a trainer that optimises nothing: plans, live rollouts, suites, records, signals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring import tiny_model
from atropos_authoring.mock_server import MockServer

STUB = f"{Path(__file__).with_name('stub_trainer.py')}:Stub"

SIZES = ("--steps", "2", "--prompts-per-step", "3", "--group-size", "2", "--max-tokens", "4")


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a small random model with a byte tokenizer."""
    return str(tiny_model(tmp_path_factory.mktemp("model")))


@pytest.fixture
def train(cli: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """train(method, *arguments) with the stub trainer, into `run` below the test's folder."""

    def call(method: str, *arguments: str, run: str = "run") -> Any:
        return cli("train", method, "--trainer", STUB, "-o", str(tmp_path / run), *arguments)

    return call


def live(model: str, *more: str) -> tuple[str, ...]:
    plain = ("--backend.chat-template", "plain", "--env.prompt-style", "plain", "--env.kind", "add")
    return ("--env", "arithmetic", "--model", model, *plain, *SIZES, *more)


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_live_rollouts_are_recorded_with_their_tokens_and_judged(
    train: Callable[..., Any], model: str, tmp_path: Path
) -> None:
    suite = "arithmetic:prompt_style=plain,split=test,limit=5"
    result = train("grpo", *live(model, "--eval", suite, "--eval-every", "1"))
    assert result.code == 0, result.stderr
    run = tmp_path / "run"
    groups = records(run / "groups.jsonl")
    assert len(groups) == 6
    for group in groups:
        assert len(group["rollouts"]) == 2
        spans = [message["tokens"] for message in group["rollouts"][0]["messages"] if message["role"] == "assistant"]
        assert spans[0]["ids"]
        assert len(spans[0]["logprobs"]) == len(spans[0]["ids"])
    rows = records(run / "metrics.jsonl")
    assert [row["step"] for row in rows if row["kind"] == "train"] == [1, 2]
    assert rows[-1]["kind"] == "eval"
    assert 0 <= rows[-1]["eval/arithmetic/accuracy"] <= 1
    assert next(row for row in rows if row["kind"] == "train")["nan"] is None
    state = json.loads((run / "train.json").read_text())
    assert state["state"] == "finished"
    assert state["best_step"] in (0, 1, 2)
    kept = {path.name for path in (run / "evals").iterdir()}
    assert kept == {f"arithmetic-step-{step}.json" for step in (0, 1, 2)}


def test_the_same_seed_gives_the_same_tasks_and_another_epoch_another_order(
    train: Callable[..., Any], model: str, tmp_path: Path
) -> None:
    arguments = live(model, "--limit", "3")
    assert train("grpo", *arguments).code == 0
    assert train("grpo", *arguments, run="again").code == 0
    first = json.loads((tmp_path / "run" / "seen.json").read_text())
    assert first == json.loads((tmp_path / "again" / "seen.json").read_text())
    assert sorted(map(str, first[0])) == sorted(map(str, first[1]))


def test_tasks_of_a_suite_are_not_trained_on(train: Callable[..., Any], model: str, tmp_path: Path) -> None:
    suite = "arithmetic:prompt_style=plain,kind=add,split=train,limit=4"
    result = train("grpo", *live(model, "--eval", suite, "--limit", "8"))
    assert result.code == 0, result.stderr
    assert "also tasks of an evaluation" in result.stderr
    held_out = json.loads((tmp_path / "run" / "evals" / "arithmetic-step-0.json").read_text())
    trained = {group["task"]["id"] for group in records(tmp_path / "run" / "groups.jsonl")}
    assert trained.isdisjoint(task["task_id"] for task in held_out["per_task"])


def test_sigterm_leaves_a_state_to_go_on_from_and_nothing_is_doubled(
    train: Callable[..., Any], model: str, tmp_path: Path
) -> None:
    result = train("grpo", *live(model, "--trainer.stop-at", "1"))
    assert result.code == 130
    assert "--resume" in result.stderr
    assert json.loads((tmp_path / "run" / "train.json").read_text())["state"] == "interrupted"
    again = train("grpo", *live(model), "--resume")
    assert again.code == 6  # another trainer config is another plan
    assert "trainer.config" in again.stderr
    resumed = train("grpo", *live(model, "--trainer.stop-at", "1"), "--resume")
    assert resumed.code == 130
    ids = [group["group_id"] for group in records(tmp_path / "run" / "groups.jsonl")]
    assert len(ids) == len(set(ids)) == 6


def test_records_go_on_where_a_resumed_run_does(train: Callable[..., Any], model: str, tmp_path: Path) -> None:
    """Whatever the trainer calls first after a resume, no line is lost and none is doubled."""
    suite = ("--eval", "arithmetic:prompt_style=plain,split=test,limit=3", "--eval-every", "1")
    arguments = live(model, "--trainer.begin-file", str(tmp_path / "begin"), *suite)
    assert train("grpo", *arguments).code == 0
    whole = [(row["step"], row["kind"]) for row in records(tmp_path / "run" / "metrics.jsonl")]
    assert whole == [(0, "eval"), (1, "train"), (1, "eval"), (2, "train"), (2, "eval")]
    shown = [(row["step"], row.get("suite")) for row in records(tmp_path / "run" / "samples.jsonl")]
    for first in ("1", "1 evaluate"):
        (tmp_path / "begin").write_text(first)
        resumed = train("grpo", *arguments, "--resume")
        assert resumed.code == 0, resumed.stderr
        assert "resumed from step 1" in resumed.stderr
        assert [(row["step"], row["kind"]) for row in records(tmp_path / "run" / "metrics.jsonl")] == whole
        assert [(row["step"], row.get("suite")) for row in records(tmp_path / "run" / "samples.jsonl")] == shown
    assert "</svg>" in (tmp_path / "run" / "curves.html").read_text()


def test_a_trainer_that_breaks_is_named_and_the_records_are_whole(
    train: Callable[..., Any], model: str, tmp_path: Path
) -> None:
    result = train("grpo", *live(model, "--trainer.fail-at", "1"))
    assert result.code == 8
    assert "ZeroDivisionError" in result.stderr
    state = json.loads((tmp_path / "run" / "train.json").read_text())
    assert (state["state"], state["step"]) == ("failed", 1)
    assert len(records(tmp_path / "run" / "groups.jsonl")) == 6


def test_what_cannot_work_is_said_before_anything_is_written(train: Callable[..., Any], tmp_path: Path) -> None:
    refused = train("grpo", "--env", "arithmetic", "--model", "m", "--trainer.forbidden")
    assert refused.code == 3
    assert "--prompts-per-step 8" in refused.stderr
    assert not (tmp_path / "run").exists()
    for arguments, words in (
        (("grpo", "--model", "m"), "an environment or data"),
        (("grpo", "--env", "arithmetic"), "no model to train"),
        (("grpo", "--env", "arithmetic", "--model", "m", "--group-size", "1"), "group of one"),
        (("sft", "--model", "m"), "needs data"),
        (("grpo", "--env", "arithmetic", "--data", "x", "--model", "m"), "exclude each other"),
        (("grpo", "--env", "arithmetic", "--model", "m", "--eval", "arithmetic:limit"), "not option=value"),
        (("grpo", "--env", "arithmetic", "--model", "m", "--eval", "arithmetic:few=2"), "few_shot"),
    ):
        result = train(*arguments)
        assert result.code in (2, 3), result.stderr
        assert words in result.stderr


def test_dry_run_shows_the_plan_and_what_the_trainer_derives(train: Callable[..., Any], tmp_path: Path) -> None:
    result = train("grpo", "--env", "arithmetic", "--model", "m", "--dry-run", "--json", "--eval", "arithmetic")
    assert result.code == 0, result.stderr
    plan = json.loads(result.stdout)
    assert plan["derived"] == {"rows_per_step": 8}
    assert plan["rollouts"]["backend"]["config"]["logprobs"] == "tempered"
    assert plan["suites"][0]["plan"]["sampling"]["temperature"] == 0
    assert not (tmp_path / "run").exists()


def test_files_and_variables_reach_every_part_of_the_plan(
    train: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("atropos.toml").write_text(
        'model = "m"\n[train]\nenv = "arithmetic"\nsteps = 7\n[env]\nfew_shot = 2\n[trainer]\nbegin_at = 3\n'
    )
    monkeypatch.setenv("ATROPOS_TRAIN__PROMPTS_PER_STEP", "5")
    plan = json.loads(train("grpo", "--dry-run", "--json").stdout)
    assert (plan["steps"], plan["prompts_per_step"]) == (7, 5)
    assert plan["rollouts"]["environment"]["config"]["few_shot"] == 2
    assert plan["trainer"]["config"]["begin_at"] == 3


def test_runs_and_rows_become_rows_of_sft_and_dpo(
    train: Callable[..., Any], cli: Callable[..., Any], tmp_path: Path
) -> None:
    guesses = [word for number in range(19) for word in ("--backend.replies", f"Answer: {number}")]
    sums = ("gen", "arithmetic", "--kind", "add", "--limit", "2", "--group-size", "19", "-o", str(tmp_path / "gen"))
    made = cli(*sums, "--backend", "scripted", *guesses)
    assert made.code == 0, made.stderr
    assert train("sft", "--model", "m", "--data", str(tmp_path / "gen")).code == 0
    rows = json.loads((tmp_path / "run" / "rows.json").read_text())
    assert rows
    assert rows[0]["messages"][-1]["role"] == "assistant"
    own = tmp_path / "own.jsonl"
    own.write_text(json.dumps({"prompt": "1+1=", "completion": "2"}) + "\n")
    assert train("sft", "--model", "m", "--data", str(own), run="own").code == 0
    assert json.loads((tmp_path / "own" / "rows.json").read_text()) == [{"prompt": "1+1=", "completion": "2"}]


def test_stored_prompts_are_scored_by_installed_rewards(train: Callable[..., Any], tmp_path: Path) -> None:
    data = tmp_path / "prompts.jsonl"
    data.write_text(json.dumps({"prompt": "What is 1+1?", "answer": 2}) + "\n")
    result = train("grpo", "--model", "m", "--data", str(data), "--reward", "arithmetic_exact")
    assert result.code == 0, result.stderr
    assert json.loads((tmp_path / "run" / "rewards.json").read_text()) == [1.0]


def test_a_cluster_job_carries_out_the_same_plan(
    train: Callable[..., Any], cli: Callable[..., Any], model: str, tmp_path: Path
) -> None:
    plan = json.loads(train("grpo", *live(model), "--dry-run", "--json").stdout)
    plan.pop("derived")
    job = tmp_path / "job"
    job.mkdir()
    (job / "plan.json").write_text(json.dumps(plan))
    result = cli("run", str(job / "plan.json"))
    assert result.code == 0, result.stderr
    assert len(records(job / "groups.jsonl")) == 6


def test_a_server_is_given_the_weights_before_it_samples_from_them(
    train: Callable[..., Any], model: str, tmp_path: Path
) -> None:
    with MockServer(flavor="vllm", models=(model,), reply="Answer: 3") as server:
        server.model.weight_updates = True
        result = train("grpo", "--env", "arithmetic", "--model", model, "--base-url", server.base_url, *SIZES)
        assert result.code == 0, result.stderr
        assert len(server.model.weights) == 2
        assert len({Path(folder).name for folder in server.model.weights}) == 2
    assert not (tmp_path / "run" / "sync").exists()


def test_samples_show_what_was_extracted_and_whether_it_was_right(
    train: Callable[..., Any], model: str, tmp_path: Path
) -> None:
    sums = "kind=add,max_number=3"
    with MockServer(flavor="vllm", models=(model,), reply="2 and 1 make 3.\nAnswer: 3") as server:
        server.model.weight_updates = True
        arguments = ("--env", "arithmetic", "--model", model, "--base-url", server.base_url, *SIZES)
        result = train("grpo", *arguments, "--eval", f"arithmetic:split=test,{sums},limit=6", "--eval-every", "1")
    assert result.code == 0, result.stderr
    shown = [row for row in records(tmp_path / "run" / "samples.jsonl") if row.get("suite") == "arithmetic"]
    assert {row["step"] for row in shown} == {0, 1, 2}
    assert {row["extracted"] for row in shown} == {3}
    assert [row["correct"] for row in shown] == [row["expected"] == 3 for row in shown]
    assert {row["correct"] for row in shown} == {True, False}


def test_a_server_that_cannot_change_its_weights_is_refused_at_the_start(train: Callable[..., Any], model: str) -> None:
    with MockServer(models=(model,)) as server:
        result = train("grpo", "--env", "arithmetic", "--model", model, "--base-url", server.base_url, *SIZES)
    assert result.code == 3
    assert "cannot take new weights" in result.stderr
