"""`atropos score`: new scores beside old ones, failures as data, stopping and going on."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.domain.group import ScoredGroup

PROGRAM = [sys.executable, "-c", "from atropos_cli.cli.app import main; main()"]

REWARDS = """
import json, time
from atropos_cli.sdk import reward, group_reward

@reward
def exact(task, rollout):
    return float(rollout.text.strip() == str(task.answer))

@reward
def odd(task, rollout):
    n = int(task.prompt[0].text[1:])
    if n == 1:
        raise ValueError("cannot grade this")
    return {0: 1.0, 2: None, 3: float("nan"), 4: "0.5", 5: 0.0}[n]

@reward
def boxes(task, rollout):
    if not rollout.text:
        return 0.0
    found = json.loads(rollout.text)
    moves = found["moves"] if isinstance(found, dict) else found
    return float(moves == task.answer["moves"])

@reward
def slow(task, rollout):
    time.sleep(0.1)
    return 1.0

@reward
def hang(task, rollout):
    if rollout.text == "b":
        time.sleep(600)
    return 1.0

@group_reward
def rank(task, rollouts):
    return [float(i) for i in range(len(rollouts))]

@group_reward
def short(task, rollouts):
    return [1.0]
"""


@pytest.fixture(autouse=True)
def rewards(isolation: Path) -> Path:
    path = isolation / "r.py"
    path.write_text(REWARDS)
    return path


def write(path: str, *rows: Any) -> str:
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(path: str) -> list[Any]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def group(ident: str, *replies: str, scores: list[Any] | None = None, **more: Any) -> dict[str, Any]:
    chats = [[{"role": "user", "content": "p"}, {"role": "assistant", "content": reply}] for reply in replies]
    row = {"item_id": ident, "messages": chats, "answer": "a", **more}
    return {**row, "scores": scores} if scores is not None else row


def case_file(cases: dict[str, dict[str, Any]], ident: str) -> str:
    given = cases[ident]["input"]
    for name, text in given.get("files", {}).items():
        Path(name).write_bytes(text.encode())
    for name, text in given.get("files_base64", {}).items():
        Path(name).write_bytes(base64.b64decode(text))
    return "r.jsonl"


def test_groups_get_scores_and_keep_the_old_ones(cli: Any) -> None:
    source = write("in.jsonl", group("1", "a", "b", scores=[0.5, 0.5], note="n"), group("2", "b", "a"))
    before = Path(source).read_bytes()
    got = cli("score", source, "-o", "out.jsonl", "--reward", "./r.py:exact=2", "--reward", "./r.py:rank")
    assert got.code == 0, got.stderr
    one, two = read("out.jsonl")
    assert (one["scores"], two["scores"]) == ([2.0, 1.0], [0.0, 3.0])
    assert one["note"] == "n"
    assert one["score_history"] == [{"scores": [0.5, 0.5], "scorer": None}]
    assert one["scorer"]["exact"]["weight"] == 2.0
    assert one["scorer"]["exact"]["version"].startswith("sha256-")
    assert "2 higher, 0 lower, 0 the same, 2 scored for the first time" in got.stdout
    assert Path(source).read_bytes() == before
    card = json.loads(Path("out.jsonl.card.json").read_text())
    assert card["options"]["rewards"] == [["./r.py:exact", 2.0], ["./r.py:rank", None]]
    assert not Path("out.jsonl.partial").exists()


def test_j15_another_version_of_the_scorer(cli: Any, rewards: Path) -> None:
    source = write("in.jsonl", group("1", "a", "b", "A "))
    cli("score", source, "-o", "v1.jsonl", "--reward", "./r.py:exact")
    rewards.write_text(REWARDS.replace("rollout.text.strip() ==", "rollout.text.strip().lower() =="))
    got = cli("score", "v1.jsonl", "-o", "v2.jsonl", "--reward", "./r.py:exact", "--json")
    (old,), (new,) = read("v1.jsonl"), read("v2.jsonl")
    assert (old["scores"], new["scores"]) == ([1, 0, 0], [1, 0, 1])
    assert new["score_history"][-1] == {"scores": [1, 0, 0], "scorer": old["scorer"]}
    assert new["scorer"]["exact"]["code"] != old["scorer"]["exact"]["code"]
    assert got.json["changes"] == {"higher": 1, "lower": 0, "same": 2, "first": 0, "lost": 0, "none": 0}
    # The history is cut with the rollouts.
    cli("filter", "v2.jsonl", "-o", "cut.jsonl", "--min-score", "1")
    (cut,) = read("cut.jsonl")
    assert (cut["scores"], cut["score_history"][-1]["scores"]) == ([1, 1], [1, 0])


def test_e16_rewards_that_misbehave(cli: Any, field_cases: dict[str, dict[str, Any]]) -> None:
    got = cli("score", case_file(field_cases, "E16"), "-o", "out.jsonl", "--reward", "./r.py:odd", "--json")
    assert got.code == 1
    rows = read("out.jsonl")
    assert [row["score"] for row in rows] == [1.0, None, None, None, 0.5, 0.0]
    assert "cannot grade this" in rows[1]["score_error"]["message"]
    assert "no score: the reward returned None" in rows[2]["score_error"]["message"]
    assert "not a finite number" in rows[3]["score_error"]["message"]
    assert "score_error" not in rows[5]
    assert got.json["mean"] == 0.5
    assert (got.json["scored"], got.json["failed"], got.json["errors"]) == (3, 3, {"ValueError": 3})
    assert "Traceback" in got.stderr
    assert 'raise ValueError("cannot grade this")' in got.stderr
    assert cli("score", "r.jsonl", "-o", "o2.jsonl", "--reward", "./r.py:odd", "--max-failure-rate", "0.5").code == 0


def test_e16_a_group_reward_of_the_wrong_length_stops_the_run(cli: Any) -> None:
    source = write("in.jsonl", group("1", "a", "b"))
    got = cli("score", source, "-o", "out.jsonl", "--reward", "./r.py:short")
    assert got.code == 4
    assert "1 values for 2 rollouts" in got.stderr
    assert "in.jsonl:1" in got.stderr
    assert not Path("out.jsonl").exists()


def test_e27_one_bad_answer_does_not_end_the_run(cli: Any, field_cases: dict[str, dict[str, Any]]) -> None:
    got = cli("score", case_file(field_cases, "E27"), "-o", "out.jsonl", "--reward", "./r.py:boxes")
    assert got.code == 1
    one, two, three = read("out.jsonl")
    assert (one["score"], two["score"], three["score"]) == (None, 1.0, 0.0)
    assert one["score_error"] == {"type": "KeyError", "message": "reward boxes: 'moves'"}


def test_too_many_errors_stop_the_run_and_keep_what_was_done(cli: Any) -> None:
    source = write("in.jsonl", *[{"prompt": "q1", "completion": "x"} for _ in range(200)])
    got = cli("score", source, "-o", "out.jsonl", "--reward", "./r.py:odd")
    assert got.code == 1
    assert "50 of 50 rewards failed" in got.stderr
    assert "cannot grade this" in got.stderr
    assert not Path("out.jsonl").exists()
    assert len(read("out.jsonl.partial")) == 50


def test_a27_wrong_rows_are_told_and_the_rest_is_scored(cli: Any, field_cases: dict[str, dict[str, Any]]) -> None:
    got = cli("score", case_file(field_cases, "A27"), "-o", "out.jsonl", "--reward", "./r.py:rank")
    assert got.code == 0
    assert [row["item_id"] for row in read("out.jsonl")] == ["3"]
    assert "r.jsonl:1: messages: expected a list of conversations, found an object" in got.stderr
    assert "r.jsonl:2: scores: expected a list, found the text '1.0'" in got.stderr


def test_a_hang_is_one_failed_rollout(cli: Any) -> None:
    source = write("in.jsonl", group("1", "a", "b", "c", scores=[1, 1, 1]))
    got = cli("score", source, "-o", "out.jsonl", "--reward", "./r.py:hang", "--deadline", "0.7")
    assert got.code == 1
    (row,) = read("out.jsonl")
    assert row["scores"] == [1.0, None, 1.0]
    assert [error and error["type"] for error in row["score_errors"]] == [None, "Timeout", None]
    assert "1 lost their score" in got.stdout


def test_native_groups_stay_valid_groups(cli: Any) -> None:
    def rollout(i: int, text: str, **more: Any) -> dict[str, Any]:
        messages = [{"role": "user", "content": "p"}, {"role": "assistant", "content": text}]
        return {"id": f"g/{i}", "task_id": "t", "messages": messages, **more}

    failed = {"stage": "generate", "type": "Boom", "message": "no"}
    bad_score = {"stage": "score", "type": "ValueError", "message": "no"}
    native = {
        "schema_version": 1,
        "group_id": "0123456789-0",
        "last": True,
        "env": "e",
        "task": {"id": "t", "prompt": [{"role": "user", "content": "p"}], "answer": "a"},
        "rollouts": [
            rollout(0, "a", rewards={"old": 0.25}, reward=0.25),
            rollout(1, "b", failure=failed),
            rollout(2, "b", failure=bad_score),
        ],
        "advantages": [0.0, None, None],
        "model": "m",
    }
    assert cli("score", write("in.jsonl", native), "-o", "out.jsonl", "--reward", "./r.py:exact").code == 0
    (raw,) = read("out.jsonl")
    found = ScoredGroup.model_validate(raw)
    assert [item.reward for item in found.rollouts] == [1.0, None, 0.0]
    assert found.rollouts[1].failure is not None
    assert found.rollouts[1].failure.stage == "generate"
    assert found.rollouts[0].info["score_history"] == [{"reward": 0.25, "rewards": {"old": 0.25}, "scorer": None}]
    assert found.advantages is not None
    assert found.advantages[1] is None
    assert found.advantages[0] == -found.advantages[2] > 0.5  # type: ignore[operator]


@pytest.mark.parametrize(
    ("row", "scores"),
    [
        (
            {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "answer": "a"},
            {"score": 1},
        ),
        ({"task_id": 1, "traj": [{"role": "assistant", "content": "a"}], "reward": 0.0, "answer": "a"}, {"reward": 1}),
        ({"prompt": "q", "chosen": "a", "rejected": "b", "answer": "a"}, {"score_chosen": 1, "score_rejected": 0}),
        ({"question": "q", "response": ["a", "b"], "score": [False, True], "answer": "a"}, {"score": [1, 0]}),
        (
            {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}], "answer": "a"},
            {"score": 1},
        ),
    ],
)
def test_other_formats(cli: Any, row: dict[str, Any], scores: dict[str, Any]) -> None:
    assert cli("score", write("in.jsonl", row), "-o", "out.jsonl", "--reward", "./r.py:exact").code == 0
    (found,) = read("out.jsonl")
    assert {key: found[key] for key in scores} == scores
    assert len(found["score_history"]) == 1
    # The output is an input again, with the new scores.
    again = cli("score", "out.jsonl", "-o", "again.jsonl", "--reward", "./r.py:exact", "--json")
    assert again.json["changes"]["same"] == len(read("again.jsonl")[0].get("response", [0])) + ("chosen" in row)


def test_rewards_of_the_run(cli: Any, sums: str) -> None:
    scripted = ("--backend", "scripted", "--backend.replies", "0", "--group-size", "2", "--limit", "2")
    assert cli("gen", sums, *scripted, "-o", "run").code == 0
    got = cli("score", "run", "-o", "out.jsonl", "--json")
    assert got.code == 0, got.stderr
    assert list(got.json["scorer"]) == ["exact"]
    assert got.json["changes"]["same"] == 4
    assert cli("score", "out.jsonl", "-o", "x.jsonl").code == 2


def test_rows_on_stdout_and_bad_options(cli: Any) -> None:
    source = write("in.jsonl", group("1", "a"))
    got = cli("score", source, "-o", "-", "--reward", "./r.py:exact")
    assert json.loads(got.stdout)["scores"] == [1.0]
    for words, code in (
        (("--reward", "./r.py:exact=x"), 2),
        (("--reward", "no_such_reward"), 4),
        (("--reward", "./r.py:exact", "--reward", "./r.py:exact"), 2),
        (("--resume", "--overwrite", "--reward", "./r.py:exact"), 2),
    ):
        assert cli("score", source, "-o", "o.jsonl", *words).code == code
    assert not Path("o.jsonl").exists()


def test_h11_ctrl_c_saves_what_is_done_and_resume_goes_on(cli: Any) -> None:
    source = write("in.jsonl", *[group(str(i), "a") for i in range(60)])
    command = [*PROGRAM, "score", source, "-o", "out.jsonl", "--reward", "./r.py:slow", "--workers", "1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: Path("out.jsonl.partial.json").exists() and partial_records() >= 5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "--resume --output out.jsonl" in errors
    assert "Traceback" not in errors
    done = len(read("out.jsonl.partial"))
    assert 5 <= done < 60
    assert partial_records() == done

    got = cli("score", source, "-o", "out.jsonl", "--reward", "./r.py:exact", "--resume")
    assert got.code == 6
    assert "was started with other options" in got.stderr
    got = cli("score", source, "-o", "out.jsonl", "--reward", "./r.py:slow")
    assert got.code == 6
    assert "--resume" in got.stderr
    got = cli("score", source, "-o", "out.jsonl", "--reward", "./r.py:slow", "--resume", "--json")
    assert got.code == 0
    assert [row["item_id"] for row in read("out.jsonl")] == [str(i) for i in range(60)]
    assert (got.json["resumed"], got.json["records"], got.json["scored"]) == (done, 60, 60)


def partial_records() -> int:
    return int(json.loads(Path("out.jsonl.partial.json").read_text())["records"])


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(4000):
        if condition():
            return
        time.sleep(0.03)
    raise AssertionError("it did not happen in time")
