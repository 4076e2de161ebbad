"""The package itself, in a process of its own, through `gen`, `eval`, `score` and `sft-gen`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
Gen = Callable[..., list[dict[str, Any]]]
Cli = Callable[..., Any]


def trained(rollout: dict[str, Any]) -> list[str]:
    """The texts that are trained on: a token of this backend is a byte."""
    texts = []
    for span in (message["tokens"] for message in rollout["messages"] if message.get("tokens")):
        mask = span["mask"] if isinstance(span["mask"], list) else [span["mask"]] * len(span["ids"])
        ids = [token for token, used in zip(span["ids"], mask, strict=True) if used and token < 256]
        texts.append(bytes(ids).decode())
    return [text for text in texts if text]


def test_a_sample_is_a_task_and_an_epoch_a_rollout(gen: Gen, cli: Cli, tmp_path: Path) -> None:
    groups = gen("quiz", ["half"], "--n", 4, "--limit", 2)
    assert [group["task"]["id"] for group in groups] == ["q0", "q1"]
    assert groups[0]["task"]["answer"] == "yes"
    assert [message["content"] for message in groups[1]["task"]["prompt"]] == ["Say yes or no.", "Is it 1?"]
    rollout = groups[0]["rollouts"][1]
    assert rollout["rewards"] == {"grades": 0.5, "parts": 2.0}
    assert rollout["reward"] == 0.5
    assert rollout["metrics"] == {"parts.length": 4.0, "parts.right": 0.0, "limited": 0.0}
    assert trained(rollout) == ["half"]
    whole = gen("quiz", ["half"], "--n", 4, "--limit", 4, "--resume")
    assert [group["task"]["id"] for group in whole] == ["q0", "q1", "q2", "q3"]
    scored = tmp_path / "scored.jsonl"
    assert cli("score", tmp_path / "run", "--reward", "inspect_score", "-o", scored).code == 0
    assert json.loads(scored.read_text().splitlines()[0])["rollouts"][0]["rewards"] == {"inspect_score": 0.5}
    assert cli("sft-gen", scored, "--min-score", 0.5, "--format", "tokens", "-o", tmp_path / "rows.jsonl").code == 0
    assert json.loads((tmp_path / "rows.jsonl").read_text().splitlines()[0])["input_ids"]


def test_a_training_knows_the_samples_before_it_opens_the_task(real: Path) -> None:
    from atropos_inspect.environment import environment_class

    cls = environment_class(f"{real}@quiz")
    assert [task.id for task in cls(cls.Config.model_validate({"n": 4})).tasks("train")] == ["q0", "q1", "q2", "q3"]


def test_what_goes_wrong_fails_its_rollout_alone(gen: Gen, tmp_path: Path) -> None:
    options = ("--n", 5, "--max-failure-rate", 1, "--timeout-s", 5)
    groups = gen("quiz", ["yes"], "--ways", "plain,raise,kill,hang,plain", *options, size=1)
    assert sorted(group["task"]["id"] for group in groups) == ["q0", "q4"]
    failures = [json.loads(line) for line in (tmp_path / "run" / "failures.jsonl").read_text().splitlines()]
    said = {failure["task_id"]: failure["message"] for failure in failures if "task_id" in failure}
    assert said["q1"] == "ValueError: this sample raises"
    assert "killed by SIGKILL; it printed last: not data" in said["q2"]
    assert said["q3"] == "the environment was silent for 5 s"


def test_how_a_solver_ends_its_sample_is_what_inspect_makes_of_it(gen: Gen, tmp_path: Path) -> None:
    cleaned = tmp_path / "cleaned"
    options = ("--n", 4, "--max-failure-rate", 1, "--cleaned", cleaned)
    groups = gen("quiz", ["yes"], "--ways", "plain,exit,cancel,stop", *options, size=1)
    ended = {group["task"]["id"]: group["rollouts"][0] for group in groups}
    assert {key: (item["reward"], item["stop_reason"]) for key, item in ended.items()} == {
        "q0": (1.0, "done"),
        "q3": (1.0, "step_limit"),
    }
    failures = [json.loads(line) for line in (tmp_path / "run" / "failures.jsonl").read_text().splitlines()]
    said = {failure["task_id"]: failure["message"] for failure in failures if "task_id" in failure}
    assert "its process ended with exit code 3" in said["q1"]
    assert said["q2"] == "RuntimeError: the solver was cancelled, and by no limit of inspect's"
    assert {"q0", "q2", "q3"} <= set(cleaned.read_text().split())


def test_a_text_of_a_scorer_that_does_not_count_costs_no_rollout(gen: Gen) -> None:
    assert gen("labelled", ["yes"])[0]["rollouts"][0]["rewards"] == {"includes": 1.0, "label": 0.25}
    rollout = gen("labelled", ["yes, yes"], "--overwrite")[0]["rollouts"][0]
    assert (rollout["rewards"], rollout["reward"]) == ({"includes": 1.0}, 1.0)


def test_scorers_are_those_of_the_task_as_its_arguments_make_it(gen: Gen, cli: Cli, real: Path, tmp_path: Path) -> None:
    assert gen("varied", ["yes"])[0]["rollouts"][0]["rewards"] == {"exact": 1.0}
    both = ("--scored-by", "both", "--overwrite")
    assert gen("varied", ["yes"], *both)[0]["rollouts"][0]["rewards"] == {"includes": 1.0, "label": 0.25}
    ended = cli("score", tmp_path / "run", "-o", tmp_path / "scored.jsonl")
    assert ended.code == 0, ended.stderr
    scored = json.loads((tmp_path / "scored.jsonl").read_text().splitlines()[0])
    assert scored["rollouts"][0]["rewards"] == {"includes": 1.0, "label": 0.25}
    only = gen("varied", ["yes"], *both, "--reward", "label=1")[0]["rollouts"][0]
    assert (only["rewards"], only["reward"]) == ({"label": 0.25}, 0.25)
    needs = gen("said", ["yes"], "--text", "Say yes.", "--scored-by", "includes", "--overwrite")
    assert needs[0]["rollouts"][0]["rewards"] == {"includes": 1.0}


def test_a_mixture_has_the_scorers_of_its_members_arguments(real: Path, cli: Cli, tmp_path: Path) -> None:
    ended = cli(
        "gen", "mix", "--of", f"a=inspect:{real}@varied:scored_by=both", "--of", f"b=inspect:{real}@varied",
        "--backend", "scripted", "--backend.replies", "yes", "--group-size", 2, "-q", "-o", tmp_path / "run",
    )  # fmt: skip
    assert ended.code == 0, ended.stderr
    groups = [json.loads(line) for line in (tmp_path / "run" / "groups.jsonl").read_text().splitlines()]
    assert {tuple(group["rollouts"][0]["rewards"]) for group in groups} == {("includes", "label"), ("exact",)}


def test_a_task_that_cannot_be_made_yet_says_so_and_is_asked_again(
    gen: Gen, real: Path, cli: Cli, tmp_path: Path
) -> None:
    later = ("--missing", tmp_path / "later")
    ended = cli("gen", f"inspect:{real}@varied", "--backend", "scripted", "--backend.replies", "yes", *later)
    assert ended.code != 0
    assert "FileNotFoundError" in ended.stderr
    (tmp_path / "later").touch()
    assert gen("varied", ["yes"], *later)[0]["rollouts"][0]["rewards"] == {"exact": 1.0}


def test_a_process_that_is_killed_once_costs_no_rollout(gen: Gen, tmp_path: Path) -> None:
    groups = gen("quiz", ["yes"], "--ways", "plain,kill", "--once", tmp_path / "killed", "--n", 4)
    assert sorted(group["task"]["id"] for group in groups) == ["q0", "q1", "q2", "q3"]
    assert {rollout["reward"] for group in groups for rollout in group["rollouts"]} == {1.0}


def test_a_limit_of_the_task_is_scored(gen: Gen) -> None:
    rollout = gen("quiz", ["yes"], "--ways", "talk", "--env.limit", 5, "--n", 1)[0]["rollouts"][0]
    assert (rollout["info"]["limit"], rollout["stop_reason"], rollout["reward"]) == ("message", "step_limit", 1.0)
    assert trained(rollout) == ["yes", "yes"]


def test_tools_of_the_task_are_called(gen: Gen) -> None:
    called = '<tool_call>\n{"name": "double", "arguments": {"number": 21}}\n</tool_call>'
    rollout = gen("tools", [called, "It is 42."])[0]["rollouts"][0]
    assert [message["role"] for message in rollout["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert (rollout["messages"][2]["content"], rollout["reward"]) == ("42", 1.0)
    assert trained(rollout)[-1] == "It is 42."


def test_a_judge_is_the_role_grader_and_is_not_trained_on(gen: Gen) -> None:
    judge = ("--role.grader.backend", "scripted", "--role.grader.backend-options", '{"replies": ["GRADE: C"]}')
    rollout = gen("judged", ["The sky is blue."], *judge)[0]["rollouts"][0]
    assert rollout["rewards"] == {"model_graded_qa": 1.0}
    own = gen("judged", ["The sky is blue."], "--kind", "own judge", "--overwrite", *judge)[0]["rollouts"][0]
    assert own["rewards"] == {"model_graded_qa": 1.0}
    assert trained(rollout) == ["The sky is blue."]
    assert rollout["usage"]["requests"] == 1


def test_what_cannot_run_here_is_named(real: Path, cli: Cli) -> None:
    backend = ("--backend", "scripted", "--backend.replies", "x")
    ended = cli("gen", f"inspect:{real}@boxed", *backend)
    assert "in a sandbox of the kind docker" in ended.stderr
    ended = cli("gen", f"inspect:{real}@said", *backend)
    assert (ended.code, "the task said needs text" in ended.stderr, "--text VALUE" in ended.stderr) == (4, True, True)
    ended = cli("env", "info", f"inspect:{real}@nothing")
    assert "there is no task nothing" in ended.stderr
    listed = json.loads(cli("env", "info", f"inspect:{real}@judged", "--json").stdout)
    options = {option["name"]: option for option in listed["options"]}
    assert (options["kind"]["type"], options["kind"]["default"]) == ("critique|template|own judge", "template")
    assert [(item["name"], item["weight"]) for item in listed["rewards"]] == [("model_graded_qa", 1.0)]
