"""Our environments under the real verifiers, of both APIs: tokens, rewards, tools, agents, and what can go wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
Gen = Callable[..., list[dict[str, Any]]]
Add = Callable[[str, str], str]
# A process takes seconds to import verifiers: the older release is only tested where a Python with it is named.
OLD = ["0.3.1", *(["0.1.14"] if "ATROPOS_TEST_VERIFIERS_0_1_14" in os.environ else [])]
BOTH = pytest.mark.parametrize(
    ("module", "version", "weight"), [*(("sums_before", version, 1.0) for version in OLD), ("sums_from", "0.4.0", 2.0)]
)
BEFORE = pytest.mark.parametrize("version", OLD)
CALL = '<tool_call>{"name": "%s", "arguments": {"a": 0, "b": 1}}</tool_call>'


def trained(rollout: dict[str, Any]) -> list[str]:
    """The texts that are trained on: a token of this backend is a byte."""
    texts = []
    for span in (message["tokens"] for message in rollout["messages"] if message.get("tokens")):
        mask = span["mask"] if isinstance(span["mask"], list) else [span["mask"]] * len(span["ids"])
        texts.append(bytes(n for n, used in zip(span["ids"], mask, strict=True) if used and n < 256).decode().strip())
    return texts


@BOTH
def test_one_turn_and_a_few_that_go_wrong(
    add: Add, gen: Gen, cli: Callable[..., Any], tmp_path: Path, module: str, version: str, weight: float
) -> None:
    name = add(module, version)
    groups = gen(name, ["It is 1.", "no"], "--limit", 2, "--group-size", 2)
    first = next(group for group in groups if group["task"]["id"] == "train-000000")
    assert [rollout["reward"] for rollout in first["rollouts"]] == [weight, 0.0]
    assert first["rollouts"][0]["metrics"] | {"num_turns": 1.0} == {"right": 1.0, "brief": 1.0, "num_turns": 1.0}
    assert first["task"]["prompt"][-1]["content"] == "0 + 1?"
    assert [trained(rollout) for rollout in first["rollouts"]] == [["It is 1."], ["no"]]
    rows = tmp_path / "rows.jsonl"
    assert cli("sft-gen", tmp_path / "run", "--format", "tokens", "-o", rows).code == 0
    assert json.loads(rows.read_text().splitlines()[0])["input_ids"]
    if module == "sums_from":
        hang(gen, name)
        return
    # An exception and a crash are the failure of their rollouts; the others are kept.
    for trouble, said in (("raise", "this task raises"), ("kill", "SIGKILL")):
        options = ("--trouble", trouble, "--trouble-at", 1, "--limit", 3, "--group-size", 2, "--max-failure-rate", 1)
        made = gen(name, ["1"], *options, folder=trouble)
        assert sorted(group["task"]["id"] for group in made) == ["train-000000", "train-000002"], trouble
        failures = (tmp_path / trouble / "failures.jsonl").read_text()
        assert said in failures


def hang(gen: Gen, name: str) -> None:
    """A process that hangs is ended, and a resumed run plays what it cost."""
    once = ("--trouble", "hang", "--trouble-at", 1, "--once", Path("once").absolute(), "--timeout-s", 3)
    gen(name, ["1"], *once, "--limit", 2, "--group-size", 1, "--max-failure-rate", 1, folder="hang")
    made = gen(name, ["1"], *once, "--limit", 2, "--group-size", 1, "--resume", folder="hang")
    assert sorted(group["task"]["id"] for group in made) == ["train-000000", "train-000001"]


@BOTH
def test_tools_are_called_and_their_results_seen(add: Add, gen: Gen, module: str, version: str, weight: float) -> None:
    call = CALL % ("add" if module == "sums_before" else "sums_add")
    (group,) = gen(add(module, version), [call, "So 1"], "--kind", "tools", "--limit", 1, "--group-size", 1)
    for rollout in group["rollouts"]:
        assert [message["role"] for message in rollout["messages"]] == ["user", "assistant", "tool", "assistant"]
        assert rollout["messages"][2]["content"] == "1"
        assert rollout["reward"] == weight
        assert trained(rollout) == [call, "So 1"]
        assert rollout["usage"]["requests"] == 2


@BOTH
def test_several_turns_are_all_trained_on(add: Add, gen: Gen, module: str, version: str, weight: float) -> None:
    (group,) = gen(add(module, version), ["2?", "No, 1"], "--kind", "twice", "--limit", 1, "--group-size", 1)
    (rollout,) = group["rollouts"]
    assert [message["role"] for message in rollout["messages"]] == ["user", "assistant", "user", "assistant"]
    assert (rollout["reward"], trained(rollout)) == (weight, ["2?", "No, 1"])
    assert [span.get("restart", False) for span in (m.get("tokens") or {} for m in rollout["messages"])].count(
        True
    ) == 1


@BEFORE
def test_history_that_is_rewritten_makes_branches(add: Add, gen: Gen, version: str) -> None:
    (group,) = gen(add("sums_before", version), ["2?", "1"], "--kind", "forgetful", "--limit", 1, "--group-size", 1)
    (rollout,) = group["rollouts"]
    assert (rollout["metrics"]["branches"], trained(rollout)) == (2.0, ["2?", "1"])


@BEFORE
def test_rewards_that_compare_see_the_group(add: Add, gen: Gen, version: str) -> None:
    name = add("sums_before", version)
    (group,) = gen(name, ["a long reply", "short"], "--kind", "together", "--limit", 1, "--group-size", 2)
    assert [rollout["reward"] for rollout in group["rollouts"]] == [0.0, 1.0]


@BEFORE
def test_a_reward_function_that_gives_no_number_is_no_0(add: Add, gen: Gen, version: str, tmp_path: Path) -> None:
    name = add("sums_before", version)
    options = ("--limit", 1, "--group-size", 3, "--max-failure-rate", 1)
    (group,) = gen(name, ["1", "one", "0"], "--kind", "odd", *options)
    scored = [rollout for rollout in group["rollouts"] if "failure" not in rollout]
    assert [(rollout["reward"], rollout["metrics"]["odd"]) for rollout in scored] == [(2.0, 1.0)]
    assert all("odd" not in rollout["metrics"] for rollout in group["rollouts"] if rollout not in scored)
    failures = (tmp_path / "run" / "failures.jsonl").read_text()
    assert "reward function odd: ValueError: invalid literal for int()" in failures
    assert "reward function odd: TypeError" in failures
    (group,) = gen(name, ["1", "one", "0"], "--kind", "odd and right", *options, folder="weight 0")
    assert sorted(rollout["metrics"].get("odd", -1.0) for rollout in group["rollouts"]) == [-1.0, -1.0, 1.0]
    assert sorted(rollout["reward"] for rollout in group["rollouts"]) == [0.0, 0.0, 1.0]


@BEFORE
def test_a_group_of_environments(add: Add, gen: Gen, version: str, tmp_path: Path) -> None:
    options = ("--kind", "several", "--size", 1, "--limit", 2, "--group-size", 1, "--max-failure-rate", 1)
    made = gen(add("sums_before", version), ["1"], *options)
    ended = {group["task"]["id"]: group["rollouts"][0] for group in made}
    assert [ended[name]["stop_reason"] for name in ("train-000000", "train-000001")] == ["done", "step_limit"]
    gen(add("sums_before", version), ["one"], *options, folder="broken", code=1)
    assert "reward function odd" in (tmp_path / "broken" / "failures.jsonl").read_text()


@BEFORE
def test_other_arguments_are_json(add: Add, gen: Gen, version: str) -> None:
    name = add("sums_before", version)
    (group,) = gen(name, ["1"], "--args", '{"system": "Be brief."}', "--limit", 1, "--group-size", 1)
    assert group["task"]["prompt"][0]["content"] == "Be brief."


def test_each_agent_makes_a_rollout(add: Add, gen: Gen) -> None:
    name = add("sums_from", "0.4.0")
    (group,) = gen(name, ["1", "3"], "--kind", "two", "--limit", 1, "--group-size", 2)
    assert [rollout["role"] for rollout in group["rollouts"]] == ["first", "second"] * 2
    given = '{"ask": "Really?"}'
    (group,) = gen(name, ["1"], "--kind", "twice", "--args", given, "--limit", 1, "--group-size", 1, folder="ask")
    assert group["rollouts"][0]["messages"][2]["content"] == "Really?"


def test_an_environment_of_the_other_api_is_named(
    cli: Callable[..., Any], add: Add, python: Callable[[str], str]
) -> None:
    source = Path(__file__).parent / "envs" / "sums_before.py"
    ended = cli("env", "add", "verifiers", "old", "--from", source, "--python", python("0.4.0"))
    assert (ended.code, "--with 'verifiers<0.4'" in ended.stderr) == (4, True)
    assert "verifiers:old" not in cli("env", "list").stdout
    name = add("sums_from", "0.4.0")
    row = next(row for row in json.loads(cli("env", "list", "--json").stdout) if row["name"] == name)
    assert (row["health"], row["versions"]["verifiers"]) == ("ok", "0.4.0")
    checked = cli("env", "check", name, "--limit", 3)
    assert checked.code == 0, checked.stderr
