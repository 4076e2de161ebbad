"""Groups of an environment of atroposlib through `gen`: messages, tokens, scores, and what becomes of failures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Gen = Callable[..., list[dict[str, Any]]]


def spans(rollout: dict[str, Any]) -> list[dict[str, Any]]:
    return [message["tokens"] for message in rollout["messages"] if message.get("tokens")]


def trained(rollout: dict[str, Any]) -> list[str]:
    """The texts that are trained on: a token of this backend is a byte."""
    texts = []
    for span in spans(rollout):
        mask = span["mask"] if isinstance(span["mask"], list) else [span["mask"]] * len(span["ids"])
        texts.append(
            bytes(token for token, used in zip(span["ids"], mask, strict=True) if used and token < 256).decode()
        )
    return texts


def test_a_group_has_the_engines_tokens_and_the_environments_scores(gen: Gen) -> None:
    group = gen("run", limit=1)[0]
    assert [rollout["reward"] for rollout in group["rollouts"]] == [0.0, 1.0, 0.0, 1.0]
    assert group["rollouts"][0]["rewards"] == {"atroposlib_score": 0.0}
    assert [trained(rollout)[0].strip() for rollout in group["rollouts"]] == ["yes", "no no", "yes", "no no"]
    span = spans(group["rollouts"][0])[0]
    assert len(span["logprobs"]) == len(span["ids"]) > len("yes")
    assert group["rollouts"][0]["metrics"] == {"own_tokens": 0.0}
    assert group["rollouts"][0]["info"]["left_out"] == ["presence_penalty"]
    assert group["task"]["prompt"][0]["content"].endswith("?")
    # Its override is kept.
    assert group["advantages"][0] == 0.0
    assert group["advantages"][2] < 0


def test_every_reply_of_several_turns_is_trained_on(gen: Gen) -> None:
    group = gen("run", "--way", "turns", limit=1)[0]
    for rollout in group["rollouts"]:
        assert [message["role"] for message in rollout["messages"]] == ["user", "assistant", "user", "assistant"]
        assert [text.strip() in ("yes", "no no") for text in trained(rollout)] == [True, True]
        assert rollout["usage"]["requests"] == 2


def test_a_managed_server_gives_the_sampled_tokens(gen: Gen) -> None:
    group = gen("run", "--way", "managed", limit=1)[0]
    assert [rollout["reward"] for rollout in group["rollouts"]] == [0, 1, 2, 3]
    assert [message["role"] for message in group["rollouts"][0]["messages"]] == ["user", "assistant"]
    assert [trained(rollout)[0].strip() for rollout in group["rollouts"]] == ["yes", "no no", "yes", "no no"]


def test_a_completion_of_a_templated_chat_is_a_chat(gen: Gen) -> None:
    group = gen("run", "--way", "completion", limit=1)[0]
    assert trained(group["rollouts"][1])[0].strip() == "no no"


def test_an_edited_reply_has_no_tokens(gen: Gen) -> None:
    group = gen("run", "--way", "edited", limit=1)[0]
    assert group["rollouts"][0]["messages"][-1]["content"] == "yes (edited)"
    assert spans(group["rollouts"][0]) == []


def test_several_groups_of_an_item_follow_each_other(gen: Gen) -> None:
    groups = gen("run", "--way", "several", limit=1)
    assert [(group["turn"], group["last"]) for group in groups] == [(0, False), (1, True)]
    assert groups[0]["task"]["id"] == groups[1]["task"]["id"]


@pytest.mark.parametrize(
    ("option", "message"), [("--raise-at", "ValueError: this item raises"), ("--cancel-at", "CancelledError: ")]
)
def test_an_exception_fails_its_group_alone(gen: Gen, tmp_path: Path, option: str, message: str) -> None:
    groups = gen("run", option, 1, "--max-failure-rate", 1)
    assert [group["task"]["id"] for group in groups] == ["item-000000", "item-000002"]
    failure = json.loads((tmp_path / "run" / "failures.jsonl").read_text())
    assert (failure["type"], failure["message"]) == ("ForeignFailed", message)


def test_a_forked_process_answers_nothing(gen: Gen) -> None:
    assert len(gen("run", "--fork", limit=3)) == 3


def test_a_rejected_item_is_a_failure(gen: Gen, tmp_path: Path) -> None:
    gen("run", "--way", "none", code=1, limit=1)
    assert "gave no group" in (tmp_path / "run" / "failures.jsonl").read_text()


@pytest.mark.parametrize(
    ("way", "message"),
    [("number", "gave int in the place of a group"), ("ragged", "the lists of the group differ in length")],
)
def test_what_is_no_group_is_said(gen: Gen, tmp_path: Path, way: str, message: str) -> None:
    gen("run", "--way", way, code=1, limit=1)
    assert message in (tmp_path / "run" / "failures.jsonl").read_text()


def test_a_killed_process_costs_no_group(gen: Gen, tmp_path: Path) -> None:
    groups = gen("run", "--kill-at", 1, "--once", tmp_path / "killed", limit=4)
    assert sorted(group["task"]["id"] for group in groups) == [f"item-{n:06}" for n in range(4)]


def test_an_item_that_always_kills_fails_alone(gen: Gen, tmp_path: Path) -> None:
    groups = gen("run", "--kill-at", 1, "--max-failure-rate", 1, limit=4)
    assert sorted(group["task"]["id"] for group in groups) == ["item-000000", "item-000002", "item-000003"]
    failure = json.loads((tmp_path / "run" / "failures.jsonl").read_text())
    assert failure["type"] == "WorkerCrashed"
    assert "killed by SIGKILL; it printed last: " in failure["message"]
    assert "not data" in failure["message"]


def test_an_item_that_hangs_fails_alone(gen: Gen, tmp_path: Path) -> None:
    groups = gen("run", "--hang-at", 1, "--timeout-s", 5, "--max-failure-rate", 1)
    assert sorted(group["task"]["id"] for group in groups) == ["item-000000", "item-000002"]
    failure = json.loads((tmp_path / "run" / "failures.jsonl").read_text())
    assert failure["message"] == "the environment was silent for 5 s"


def test_a_resumed_run_draws_the_same_items(gen: Gen) -> None:
    whole = gen("whole", limit=5)
    gen("run", limit=2)
    resumed = gen("run", "--resume", limit=5)
    questions = [sorted(json.dumps(group["task"]["info"]["item"]) for group in groups) for groups in (whole, resumed)]
    assert questions[0] == questions[1]
    assert len({*questions[0]}) == 5


def test_requests_of_many_groups_are_in_flight_at_once(gen: Gen, tmp_path: Path) -> None:
    gen("run", "--backend.delay-s", 1, "--workers", 8, limit=8)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["max_in_flight"] > 4
