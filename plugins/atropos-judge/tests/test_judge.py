"""The reward against a real HTTP server: votes, cached verdicts, flips, retries, failures."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring.mock_server import MockServer, RecordedRequest
from atropos_authoring.rewards import RewardContract
from atropos_judge.config import JudgeConfig
from atropos_judge.errors import NoVerdict, OutOfScale
from atropos_judge.judge import judge, make_judge
from in_process import Result
from judge_support import GOOD_OR_BAD, case, flags, judge_at, make_rollout, make_task

from atropos_cli.sdk import ConfigError
from atropos_cli.sdk.backends import FatalBackendError, RequestRejected, TransientBackendError

Cli = Callable[..., Result]


def in_turn(*replies: str) -> Callable[[RecordedRequest], dict[str, Any]]:
    """A handler that gives these replies over and over."""
    turns = itertools.cycle(replies)
    return lambda request: {"reply": next(turns)}


def read(path: Path) -> Any:
    return json.loads(path.read_text())


class TestContract(RewardContract):
    """A judge is a reward like any other; a scripted one stands in for the model."""

    reward = judge.configured(
        JudgeConfig(model="scripted", backend="scripted", backend_options={"function": GOOD_OR_BAD})
    )
    cases = ((make_task(), "good", 1.0), (make_task(), "bad", 0.0))


# Cases of the shared table --------------------------------------------------------------------------------------------


def test_j06_scores_are_read_by_a_strict_rule(cli: Cli, server: MockServer) -> None:
    """8/10 and a marked 6 count; True, NaN, prose and 11 are no verdicts on a scale from 0 to 10, and are counted."""
    answers = case("J06")["input"]["mock_server"]
    by_question = iter(answers)
    given: dict[str, Any] = {}

    def handler(request: RecordedRequest) -> dict[str, Any]:
        # Each question gets one answer of the row, and the same one when it is asked for again.
        question = request.json["messages"][0]["content"]
        if question not in given:
            given[question] = next(by_question)
        return {key: value for key, value in given[question].items() if key != "times"}

    server.handler = handler
    options = ("--judge.scale", "0-10", "--workers", "1", "--json", "-o", "run")
    done = cli("eval", "tasks.py:Tasks", *flags(server, *options))
    assert done.code == 1
    [found] = done.json["evaluations"]
    assert (found["tasks"], found["scored"], found["errors"]) == (6, 2, 4)
    assert found["reward"]["value"] == pytest.approx((0.8 + 0.6) / 2)
    assert found["metrics"]["judge_score"] == pytest.approx((8 + 6) / 2)
    assert found["failures"] == {"score:NoVerdict": 3, "score:OutOfScale": 1}
    assert found["reward_details"]["judge"]["unread"] == 4
    assert len(server.generations) == 2 + 4 * 2, "each that could not be read is asked for once more"
    lines = [json.loads(line) for line in Path("run/failures.jsonl").read_text().splitlines()]
    assert all("after asking 2 times" in line["message"] for line in lines)


def test_j06_stored_rollouts(cli: Cli, server: MockServer) -> None:
    """The same by `atropos score`: those without a verdict have no score, and are named and counted."""
    answers = case("J06")["input"]["mock_server"]
    server.handler = lambda request: next(
        {key: value for key, value in entry.items() if key != "times"}
        for number, entry in enumerate(answers)
        if f"question {number}" in request.json["messages"][0]["content"]
    )
    gen = ("gen", "tasks.py:Tasks", "--backend", "scripted", "--backend.replies", "x", "--group-size", "1")
    assert cli(*gen, "-o", "run").code == 0
    done = cli("score", "run", "-o", "scored.jsonl", *flags(server)[4:], "--max-error-rate", "1", "--json")
    assert done.code == 1, done.stderr
    assert (done.json["scored"], done.json["failed"], done.json["mean"]) == (2, 4, pytest.approx(0.7))
    assert done.json["errors"] == {"NoVerdict": 3, "OutOfScale": 1}
    assert done.json["metrics"]["judge_score"] == 7.0
    rows = [json.loads(line)["rollouts"][0] for line in Path("scored.jsonl").read_text().splitlines()]
    assert [row.get("reward") for row in rows] == [None, 0.8, 0.6, None, None, None]


def test_j06_true_is_a_verdict_where_the_scale_says_so(cli: Cli, server: MockServer) -> None:
    server.script([{key: value for key, value in case("J06")["input"]["mock_server"][0].items() if key != "times"}])
    options = ("--judge.scale", "pass-fail", "--json", "-o", "run")
    done = cli("eval", "tasks.py:Tasks", *flags(server, *options))
    assert done.code == 0, done.stderr
    assert done.json["evaluations"][0]["accuracy"]["value"] == 1.0


def test_j07_the_same_input_has_the_same_verdict_in_the_next_run(cli: Cli, server: MockServer) -> None:
    """The judge says pass, fail, pass, ... in turn; the settings are in the result, and the second run asks nothing."""
    case("J07")
    server.handler = in_turn("Verdict: pass", "Verdict: fail")
    order = ("--workers", "1", "--judge.concurrency", "1")
    options = ("--judge.scale", "pass-fail", "--env.count", "5", *order, "--json")

    def evaluate(folder: str, *more: str) -> Any:
        done = cli("eval", "tasks.py:Tasks", *flags(server, *options, "-o", folder, *more))
        assert done.code == 0, done.stderr
        return done.json["evaluations"][0]

    first = evaluate("one")
    assert first["accuracy"]["value"] == 3 / 5
    details = first["reward_details"]["judge"]
    assert (details["model"], details["temperature"], details["votes"]) == ("judge-model", 0.0, 1)
    assert len(details["prompt_sha256"]) == 16
    assert (details["requests"], details["cached"]) == (5, 0)
    assert read(Path("one/eval.json"))["reward_details"] == first["reward_details"]
    assert "prompt_sha256" in Path("one/eval.md").read_text()
    second = evaluate("two")
    assert [task["successes"] for task in second["per_task"]] == [task["successes"] for task in first["per_task"]]
    assert (second["reward_details"]["judge"]["requests"], len(server.generations)) == (0, 5)
    # Asked again, the judge is one reply further: every verdict flips, and the summary says so.
    again = evaluate("three", "--judge.refresh")
    assert again["accuracy"]["value"] == 2 / 5
    assert again["reward_details"]["judge"]["flipped"] == 5
    assert again["metrics"]["judge_flipped"] == 1.0
    # What was asked for last is what counts from now on.
    assert evaluate("four")["accuracy"]["value"] == 2 / 5


def test_j07_votes_and_their_agreement(cli: Cli, server: MockServer) -> None:
    case("J07")
    server.handler = in_turn("Verdict: pass", "Verdict: fail")
    options = ("--judge.scale", "pass-fail", "--judge.votes", "3", "--judge.concurrency", "1", "--workers", "1")
    done = cli("eval", "tasks.py:Tasks", *flags(server, *options, "--env.count", "4", "--json", "-o", "run"))
    [found] = done.json["evaluations"]
    assert found["metrics"]["judge_agreement"] == pytest.approx(2 / 3)
    assert found["reward_details"]["judge"]["split"] == 4
    assert found["accuracy"]["value"] == 0.5
    assert [request.json["seed"] for request in server.generations] == [0, 1, 2] * 4


# What is asked --------------------------------------------------------------------------------------------------------


async def test_the_request_holds_what_was_configured(server: MockServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "key-of-the-judge")
    server.handler = in_turn("Score: 8")
    body = {"response_format": {"type": "json_object"}}
    reward = judge_at(
        server, api_key_env="JUDGE_KEY", max_tokens=77, temperature=0.25, backend_options={"extra_body": body}
    )
    await reward.open()
    score = await reward.score(make_task(), make_rollout())
    assert (score, score.metrics) == (0.8, {"judge_score": 8.0, "judge_agreement": 1.0})
    [request] = server.generations
    assert request.headers["authorization"] == "Bearer key-of-the-judge"
    sent = request.json
    assert (sent["model"], sent["max_tokens"], sent["temperature"]) == ("judge-model", 77, 0.25)
    assert sent["response_format"] == {"type": "json_object"}
    assert "n" not in sent
    assert [message["role"] for message in sent["messages"]] == ["user"]
    assert "key-of-the-judge" not in json.dumps(reward.describe())
    await reward.close()


async def test_a_reply_without_a_verdict_is_asked_for_again_with_a_reminder(server: MockServer) -> None:
    server.handler = in_turn("Hard to say.", "Score: 4")
    reward = judge_at(server)
    assert await reward.score(make_task(), make_rollout()) == 0.4
    first, second = (request.json["messages"] for request in server.generations)
    assert second[0] == first[0]
    assert second[1] == {"role": "assistant", "content": "Hard to say."}
    assert "Score: N" in second[2]["content"]
    assert reward.counts() == {"judged": 1, "requests": 2, "cached": 0, "unread": 0, "split": 0}


async def test_no_verdict_fails_with_what_was_said_and_is_not_kept(server: MockServer) -> None:
    server.script([{"json": answer("It is " + "fine " * 20, "length")}])
    reward = judge_at(server, attempts=3)
    with pytest.raises(NoVerdict, match=r"fine.*cut off by max_tokens.*after asking 3 times"):
        await reward.score(make_task(), make_rollout())
    assert len(server.generations) == 3
    server.script([{"reply": "Score: 10"}])
    assert await reward.score(make_task(), make_rollout()) == 1.0
    server.script([{"reply": "Score: 12"}])
    with pytest.raises(OutOfScale, match="12 is not from 0"):
        await reward.score(make_task(), make_rollout("another"))


def answer(content: str | None, finish: str = "stop", **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, **more}
    return {"choices": [{"index": 0, "message": message, "finish_reason": finish}]}


async def test_thinking_of_the_judge_is_no_verdict(server: MockServer) -> None:
    server.script(
        [
            {"json": answer("<think>Score: 2? Score: 3?</think>\nScore: 9")},
            {"json": answer(None, reasoning_content="Score: 3")},
            {"json": answer("Score: 5", reasoning_content="Score: 3")},
        ]
    )
    reward = judge_at(server)
    assert await reward.score(make_task(), make_rollout("one")) == 0.9
    assert await reward.score(make_task(), make_rollout("two")) == 0.5
    assert len(server.generations) == 3


async def test_votes_have_a_median_and_more_votes_ask_only_for_the_new_ones(server: MockServer) -> None:
    server.handler = in_turn("Score: 9", "Score: 2", "Score: 7", "Score: 7", "Score: 1")
    score = await judge_at(server, votes=3, concurrency=1).score(make_task(), make_rollout())
    assert (score.metrics["judge_score"], score.metrics["judge_agreement"]) == (7.0, pytest.approx(1 / 3))
    more = await judge_at(server, votes=5, concurrency=1).score(make_task(), make_rollout())
    assert len(server.generations) == 5
    assert more.metrics == {"judge_score": 7.0, "judge_agreement": pytest.approx(2 / 5)}
    assert (await judge_at(server, votes=1).score(make_task(), make_rollout())).metrics["judge_score"] == 9.0


# The cache ------------------------------------------------------------------------------------------------------------


async def test_every_part_of_a_question_has_its_own_verdict(server: MockServer, clean: Path) -> None:
    server.handler = in_turn("Score: 5")

    async def asked(task: Any = None, text: str = "a reply", **options: Any) -> int:
        before = len(server.generations)
        await judge_at(server, **options).score(task or make_task(), make_rollout(text))
        return len(server.generations) - before

    assert await asked() == 1
    assert await asked() == 0
    assert await asked(text="another") == 1
    assert await asked(task=make_task().replace(prompt=())) == 0, "then the prompt is what the rollout begins with"
    for different in ({"scale": "0-100"}, {"temperature": 0.5}, {"max_tokens": 9}, {"prompt": "{completion}?"}):
        assert (await asked(**different), await asked(**different)) == (1, 0)
    assert await asked(prompt="correctness", task=make_task("1")) == 1
    assert await asked(prompt="correctness", task=make_task("2")) == 1
    # How it is asked does not matter.
    assert await asked(timeout=9, retries=1, concurrency=2, attempts=5) == 0
    assert (await asked(cache="off"), await asked(cache="off")) == (1, 1)
    assert await asked(cache=str(clean / "elsewhere")) == 1
    assert list((clean / "elsewhere").iterdir())
    assert os.path.isdir(os.environ["XDG_CACHE_HOME"] + "/atropos/judge")  # noqa: ASYNC240


async def test_the_cache_folder_of_the_program(
    server: MockServer, clean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATROPOS_CACHE_DIR", str(clean / "shared"))
    server.handler = in_turn("Score: 5")
    await judge_at(server).score(make_task(), make_rollout())
    assert list((clean / "shared" / "judge").glob("*.jsonl"))


async def test_equal_replies_of_a_group_are_judged_once(server: MockServer) -> None:
    server.delay = 0.1
    server.handler = in_turn("Score: 9", "Score: 1")
    reward = judge_at(server)
    scores = await asyncio.gather(*(reward.score(make_task(), make_rollout(number=i)) for i in range(8)))
    assert set(scores) == {0.9}
    assert reward.counts() == {"judged": 8, "requests": 1, "cached": 7, "unread": 0, "split": 0}
    fresh = judge_at(server, refresh=True)
    again = await asyncio.gather(*(fresh.score(make_task(), make_rollout(number=i)) for i in range(8)))
    assert set(again) == {0.1}
    assert (fresh.counts()["requests"], fresh.counts()["flipped"]) == (1, 8)


async def test_refresh_of_what_was_never_judged_is_no_flip(server: MockServer) -> None:
    server.handler = in_turn("Score: 9")
    score = await judge_at(server, refresh=True).score(make_task(), make_rollout())
    assert "judge_flipped" not in score.metrics
    kept = await judge_at(server, refresh=True).score(make_task(), make_rollout())
    assert kept.metrics["judge_flipped"] == 0.0


# Servers that fail ----------------------------------------------------------------------------------------------------


async def test_errors_that_pass_are_retried(server: MockServer) -> None:
    server.script(
        [
            {"status": 429, "headers": {"Retry-After": "0"}, "json": {"error": {"message": "slow down"}}},
            {"status": 500, "json": {"error": {"message": "oops"}}},
            {"action": "close_before_response"},
            {"reply": "Score: 6"},
        ]
    )
    assert await judge_at(server, retries=3).score(make_task(), make_rollout()) == 0.6
    assert len(server.generations) == 4


async def test_retries_end_and_what_no_retry_mends_has_none(server: MockServer) -> None:
    server.script([{"status": 500, "json": {"error": {"message": "oops"}}}])
    with pytest.raises(TransientBackendError, match="oops"):
        await judge_at(server, retries=1).score(make_task(), make_rollout())
    assert len(server.generations) == 2
    server.script([{"status": 400, "json": {"error": {"message": "bad request"}}}])
    with pytest.raises(RequestRejected, match="bad request"):
        await judge_at(server).score(make_task(), make_rollout())
    assert len(server.generations) == 3
    server.script([{"action": "hang"}])
    with pytest.raises(TransientBackendError, match="answer"):
        await judge_at(server, retries=0, timeout=0.3).score(make_task(), make_rollout())


async def test_a_wrong_key_or_model_is_told_once_and_before_the_run(server: MockServer) -> None:
    server.model.api_key = "right"
    reward = judge_at(server)
    with pytest.raises(FatalBackendError):
        await reward.open()
    sent = len(server.requests)
    with pytest.raises(FatalBackendError):
        await reward.score(make_task(), make_rollout())
    assert len(server.requests) == sent
    with pytest.raises(ConfigError, match="NO_SUCH_KEY"):
        await judge_at(server, api_key_env="NO_SUCH_KEY").open()


def test_a_wrong_model_ends_the_run_before_anything_is_generated(cli: Cli, server: MockServer) -> None:
    done = cli("gen", "tasks.py:Tasks", *flags(server, "--judge.model", "judge-modle", "-o", "run"))
    assert done.code == 5
    assert "has no model 'judge-modle'" in done.stderr
    assert "judge-model" in done.stderr
    assert not Path("run/groups.jsonl").exists() or not Path("run/groups.jsonl").read_text()


def test_a_judge_that_fails_costs_that_rollout_its_score(cli: Cli, server: MockServer) -> None:
    """The exit code follows the rule of all runs: 1 when more fail than --max-failure-rate allows."""

    def handler(request: RecordedRequest) -> dict[str, Any]:
        if "question 2" in request.json["messages"][0]["content"]:
            return {"status": 500, "json": {"error": {"message": "out of order"}}}
        return {"reply": "Score: 10"}

    server.handler = handler
    args = ["tasks.py:Tasks", *flags(server, "--judge.retries", "0", "--group-size", "1")]
    assert cli("gen", *args, "-o", "one").code == 1
    summary = read(Path("one/summary.json"))
    assert (summary["rollouts"], summary["rollouts_failed"], summary["reward_mean"]) == (6, 1, 1.0)
    assert summary["failures"] == {"score:TransientBackendError": 1}
    [failed] = map(json.loads, Path("one/failures.jsonl").read_text().splitlines())
    assert (failed["stage"], failed["task_id"]) == ("score", "t2")
    assert "reward judge: " in failed["message"]
    assert "out of order" in failed["message"]
    assert cli("gen", *args, "-o", "two", "--max-failure-rate", "0.5").code == 0


async def test_requests_in_flight_are_bounded(server: MockServer) -> None:
    server.delay = 0.05
    server.handler = in_turn("Score: 5")
    reward = judge_at(server, concurrency=3)
    await asyncio.gather(*(reward.score(make_task(), make_rollout(f"reply {i}")) for i in range(12)))
    assert server.max_in_flight == 3


def test_one_judge_serves_one_event_loop_after_another(server: MockServer) -> None:
    server.handler = in_turn("Score: 5")
    reward = judge_at(server)
    for text in ("one", "two"):
        assert asyncio.run(reward.score(make_task(), make_rollout(text))) == 0.5
    assert len(server.generations) == 2


# The command line -----------------------------------------------------------------------------------------------------


def test_a_model_is_needed_and_asked_for(cli: Cli) -> None:
    done = cli("gen", "tasks.py:Tasks", "--reward", "judge", "--dry-run")
    assert done.code == 2
    assert "--role.judge.model" in done.stderr


def as_role(server: MockServer, *more: str) -> list[str]:
    """The flags of a run in which the role `judge` asks this server."""
    role = ["--role.judge.model", "judge-model", "--role.judge.base-url", server.base_url]
    return [
        "tasks.py:Tasks",
        "--backend",
        "scripted",
        "--backend.replies",
        "a reply",
        "--reward",
        "judge",
        *role,
        *more,
    ]


def test_the_judge_is_a_role(cli: Cli, server: MockServer) -> None:
    """Its sampling, its line of the bill, its limits, and the cache of verdicts; the weights are named."""
    server.handler = in_turn("Score: 5")
    first = cli("gen", *as_role(server, "--limit", "2", "--group-size", "2", "-o", "one"))
    assert first.code == 0, first.stderr
    assert "older way" not in first.stderr
    sent = server.generations[0].json
    assert (sent["model"], sent["temperature"], sent["max_tokens"]) == ("judge-model", 0.0, 1024)
    summary = read(Path("one/summary.json"))
    assert summary["reward_mean"] == 0.5
    assert (summary["roles"]["judge"]["model"], summary["roles"]["judge"]["requests"]) == ("judge-model", 2)
    assert summary["usage"]["judge-model (judge)"]["requests"] == 2
    again = cli("gen", *as_role(server, "--limit", "2", "--group-size", "2", "-o", "two"))
    assert again.code == 0, again.stderr
    assert len(server.generations) == 2  # the verdicts are kept
    warm = cli("gen", *as_role(server, "--role.judge.temperature", "0.5", "--limit", "1", "-o", "three"))
    assert warm.code == 0, warm.stderr
    assert server.generations[-1].json["temperature"] == 0.5


def test_nonsense_of_a_role_fails_that_rollout_alone(cli: Cli, server: MockServer) -> None:
    def handler(request: RecordedRequest) -> dict[str, Any]:
        text = request.json["messages"][0]["content"]
        return {"reply": "what a lovely day" if "question 1" in text else "Score: 10"}

    server.handler = handler
    done = cli("gen", *as_role(server, "--limit", "3", "--group-size", "1", "-o", "run"))
    assert done.code == 1
    summary = read(Path("run/summary.json"))
    assert (summary["rollouts"], summary["rollouts_failed"], summary["reward_mean"]) == (3, 1, 1.0)
    assert summary["failures"] == {"score:NoVerdict": 1}


def test_the_older_options_are_told(cli: Cli, server: MockServer, caplog: pytest.LogCaptureFixture) -> None:
    server.handler = in_turn("Score: 5")
    done = cli("gen", "tasks.py:Tasks", *flags(server, "--limit", "1", "-o", "run"))
    assert done.code == 0, done.stderr
    assert caplog.text.count("--judge.model is the older way") == 1


def test_settings_in_a_file_and_a_resumed_run(cli: Cli, server: MockServer) -> None:
    """The judge is part of what the run is; where it is served is not."""
    server.handler = in_turn("Score: 5")
    Path("atropos.toml").write_text(
        f'rewards = ["judge=0.5"]\nbackend = "scripted"\n[backend_options]\nreplies = ["x"]\n'
        f'[reward.judge]\nmodel = "judge-model"\nbase_url = "{server.base_url}"\nscale = "1-5"\n'
    )
    run = ("gen", "tasks.py:Tasks", "--group-size", "1", "-o", "run")
    assert cli(*run, "--limit", "2").code == 0
    summary = read(Path("run/summary.json"))
    assert (summary["rewards"], summary["reward_mean"]) == ({"judge": 1.0}, 0.5)
    more = cli(*run, "--limit", "4", "--resume", "--judge.timeout", "30", "--judge.no-refresh")
    assert more.code == 0, more.stderr
    assert len(server.generations) == 4
    other = cli(*run, "--resume", "--judge.temperature", "0.5")
    assert other.code == 6, other.stderr


def test_score_judges_stored_rollouts_in_processes_that_share_the_cache(cli: Cli, server: MockServer) -> None:
    server.handler = in_turn("Score: 4")
    assert cli("gen", "tasks.py:Tasks", "--backend", "scripted", "--backend.replies", "x", "-o", "run").code == 0
    options = flags(server)[4:]
    done = cli("score", "run", "-o", "one.jsonl", *options, "--workers", "3", "--json")
    assert done.code == 0, done.stderr
    assert (done.json["scored"], done.json["mean"]) == (48, pytest.approx(0.4))
    assert done.json["metrics"] == {"judge_score": 4.0, "judge_agreement": 1.0}
    details = done.json["scorer"]["judge"]["details"]
    assert (details["model"], details["votes"]) == ("judge-model", 1)
    sent = len(server.generations)
    assert 6 <= sent <= 18, "eight equal replies to six questions, and three processes"
    server.stop()
    again = cli("score", "run", "-o", "two.jsonl", *options, "--json")
    assert (again.code, again.json["mean"]) == (0, pytest.approx(0.4)), "everything is cached: no server is needed"
    row = json.loads(Path("two.jsonl").read_text().splitlines()[0])["rollouts"][0]
    assert row["metrics"]["judge_score"] == 4.0
    assert row["info"]["scorer"]["judge"]["details"]["prompt_sha256"] == details["prompt_sha256"]


def test_judges_of_ones_own(cli: Cli, server: MockServer) -> None:
    """Two judges with other names and defaults in one run, each with its own options."""
    server.handler = lambda request: {"reply": "Score: 5" if "kind" in request.body.decode() else "Score: 1"}
    Path("judges.py").write_text(
        "from atropos_judge.judge import make_judge\n"
        'kind = make_judge("kind", prompt="Is it kind? {completion}", scale="1-5")\n'
        'short = make_judge("short", prompt="Is it short? {completion}", scale="1-5", weight=2.0)\n'
    )
    url = server.base_url
    done = cli(
        *("gen", "tasks.py:Tasks", "--backend", "scripted", "--backend.replies", "x", "-o", "run"),
        *("--reward", "./judges.py:kind", "--kind.model", "judge-model", "--kind.base-url", url),
        *("--reward", "./judges.py:short", "--short.model", "judge-model", "--short.base-url", url),
    )
    assert done.code == 0, done.stderr
    summary = read(Path("run/summary.json"))
    assert sorted(summary["rewards"].values()) == [0.0, 1.0]
    assert summary["reward_mean"] == 1.0
    assert summary["metrics"]["kind_score"] == 5.0
    assert summary["metrics"]["short_score"] == 1.0
    with pytest.raises(ConfigError, match="has no option 'scales'"):
        make_judge("x", scales="1-5")


def test_the_judge_that_only_has_options_says_what_it_needs() -> None:
    with pytest.raises(ConfigError, match="no model to ask"):
        asyncio.run(judge.score(make_task(), make_rollout()))
    assert (judge.describe(), judge.counts()) == ({}, {})
