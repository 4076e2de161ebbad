"""Groups of alternatives per turn, in the real engine and with real games."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring.mock_server import MockServer
from atropos_textworld.environment import TextWorldEnvironment

from atropos_cli.config.settings import GenSettings
from atropos_cli.domain.plan import Execution
from atropos_cli.plugins.discovery import get_registry
from atropos_cli.rollout.advantages import grpo_advantage
from atropos_cli.rollout.planner import build_plan
from atropos_cli.rollout.runner import run_gen
from atropos_cli.sdk import Message, ScoredGroup, token_sequences
from atropos_cli.sdk.backends import BackendError, ContextOverflow, FatalBackendError, RequestRejected

GAME = {"group_by": "turn", "game_type": "quest-fetch", "difficulty": "easy", "max_steps": 4, "processes": 1}


def reply(command: str, prediction: str = "A room.", memory: str = "I have been here before.") -> str:
    call = {"name": "execute_command", "arguments": {"command": command, "expected_outcome": prediction}}
    return f"<think>hm. {command}.</think>\n<memory>{memory}</memory>\n<tool_call>{json.dumps(call)}</tool_call>"


def in_turn(*replies: str) -> Callable[[Sequence[Message]], str]:
    """The replies again and again, whatever is asked."""
    given = itertools.cycle(replies)
    return lambda messages: next(given)


Run = Callable[..., list[ScoredGroup]]


@pytest.fixture
def run(atropos_run: Run) -> Run:
    """`run(*replies, **options)`: one game with as many alternatives as there are replies."""

    def play(*replies: str, limit: int = 1, **options: Any) -> list[ScoredGroup]:
        return atropos_run(
            TextWorldEnvironment,
            replies=in_turn(*replies),
            config={**GAME, **options},
            limit=limit,
            group_size=len(replies),
        )

    return play


def test_each_turn_is_a_group(run: Run) -> None:
    groups = run(reply("look"), reply("look"), "no call at all here " * 20, reply("inventory"), choose="first-valid")
    assert [group.turn for group in groups] == [0, 1, 2, 3]
    assert [group.last for group in groups] == [False, False, False, True]
    assert len({group.episode_id for group in groups}) == 1
    assert [group.group_id for group in groups] == [f"{groups[0].episode_id}.{turn}" for turn in range(4)]
    for group in groups:
        first, same, malformed, other = group.rollouts
        assert [r.info["executed"] for r in group.rollouts] == [True, False, False, False]
        assert first.reward == same.reward is not None
        assert malformed.info["fault"] == "malformed_too_long"
        assert malformed.reward is not None
        assert malformed.reward < first.reward
        assert (other.reward, other.failure) == (None, None)
        assert "observation" not in other.info
        assert group.advantages == grpo_advantage([r.reward for r in group.rollouts])
        assert first.metrics["alternatives_malformed_too_long"] == 0.25
        assert first.metrics["alternatives_distinct"] == 2
    assert groups[-1].rollouts[0].info["ended"] == "step_limit"
    assert groups[-1].rollouts[0].stop_reason == "done"
    assert groups[-1].rollouts[0].info["commands"] == ["look"] * 4
    assert groups[-1].rollouts[0].info["won"] is False
    assert "won" not in groups[0].rollouts[0].info


def test_tokens_are_those_that_were_sampled(run: Run) -> None:
    """One sequence a rollout: the prompt as the model saw it, untrained, then the reply, trained."""
    for group in run(reply("look"), reply("inventory")):
        for rollout in group.rollouts:
            (sequence,) = token_sequences(rollout)
            reply_ids = (*rollout.text.encode(), 256)
            assert sequence.ids[-len(reply_ids) :] == reply_ids
            assert sequence.mask == (False,) * (len(sequence.ids) - len(reply_ids)) + (True,) * len(reply_ids)
            spans = [message.tokens for message in rollout.messages]
            assert [span is not None for span in spans] == [False] * (len(spans) - 2) + [True, True]
            prompt = spans[-2]
            assert prompt is not None
            # The scripted backend's prompt: role, bytes and 256 of each message, then the assistant's role.
            assert len(prompt.ids) == sum(len(m.text.encode()) + 2 for m in rollout.messages[:-1]) + 1


def test_malformed_replies_are_answered_and_cost_a_turn(run: Run) -> None:
    groups = run("<think>and so on", "<think>and on")
    assert len(groups) == 4
    for before, after in itertools.pairwise(groups):
        assert before.rollouts[0].info["fault"] == "malformed_unclosed_think"
        answer = after.rollouts[0].messages[-2].text
        assert answer.startswith("Your reply ends inside <think>. Answer with one <tool_call>")
    last = next(r for r in groups[-1].rollouts if r.info["executed"])
    assert last.info["commands"] == []
    assert last.metrics["malformed_unclosed_think"] == 4


def test_alternatives_that_are_tried_are_scored_and_the_best_is_played(run: Run) -> None:
    tried = run(reply("look"), reply("go north"), reply("inventory"), score_all=True)
    for group in tried:
        assert all(r.reward is not None for r in group.rollouts)
        assert all(r.info["observation"] for r in group.rollouts)
    best = run(reply("take unicorn"), reply("open the"), "unsaid " * 40, reply("look"), score_all=True, choose="best")
    assert all(sum(bool(r.info["executed"]) for r in group.rollouts) == 1 for group in best)
    assert all(not group.rollouts[2].info["executed"] for group in best)


def test_peeked_outcomes_are_what_playing_gives(run: Run) -> None:
    """The same game, the same commands: once as the alternative that is played, once as one that is only tried."""
    tried = run(reply("look"), reply("inventory"), score_all=True, choose="first-valid")
    played = run(reply("inventory"), reply("look"), choose="first-valid")
    for one, other in zip(tried, played, strict=True):
        assert one.rollouts[1].info["observation"] == other.rollouts[0].info["observation"]


def test_vrcli_and_its_null_control(run: Run) -> None:
    replies = reply("look", "A room."), reply("look", ""), reply("inventory", "Nothing.")
    groups = run(*replies, vrcli="discrete", vrcli_control="null", score_all=True, choose="first-valid")
    for group in groups:
        good, blank, other = group.rollouts
        assert good.info["vrcli"]["control"] == 0.0
        assert good.metrics["vrcli_control"] == good.metrics["vrcli_control_improvement"] == 0.0
        assert good.metrics["vrcli_noise"] == 0.0
        assert blank.info["vrcli"]["flag"] == "empty_prediction"
        assert blank.rewards["textworld_vrcli"] == 0.0
        assert "textworld_vrcli" in other.rewards
        # Two commands: base, repeat and one prediction each.
        assert good.metrics["scoring_requests"] == 6
        assert good.reward == pytest.approx(
            0.3 * good.rewards["textworld_vrcli"]
            + 0.1 * good.rewards["textworld_format"]
            + 0.6 * sum(good.rewards[f"textworld_{name}"] for name in ("score", "won", "lost"))
        )
        assert group.advantages == grpo_advantage([r.reward for r in group.rollouts])


def test_the_shuffled_control_takes_an_earlier_prediction(run: Run) -> None:
    groups = run(reply("look", "First."), reply("look", "First."), vrcli="continuous", vrcli_control="shuffled")
    assert "vrcli_control" not in groups[0].rollouts[0].metrics
    assert all("vrcli_control" in group.rollouts[0].metrics for group in groups[1:])


def test_memories_are_found_and_shown(run: Run) -> None:
    pytest.importorskip("faiss")
    note = "The bathhouse is a normal kind of place, and well lit."
    groups = run(reply("look", memory=note), memory=True, memory_embeddings="hash", memory_threshold=-1.0)
    assert "What you noted" not in groups[0].rollouts[0].messages[-2].text
    assert "<memory>" in groups[0].rollouts[0].messages[0].text
    for group in groups[1:]:
        prompt = group.rollouts[0].messages[:-1]
        assert prompt[-1].text.startswith(f"What you noted in earlier turns:\n- {note}\n\n-= ")
        assert not any("What you noted" in message.text for message in prompt[:-1])
    last = groups[-1].rollouts[0]
    assert last.metrics["memory_valid"] == 1.0
    assert last.metrics["memory_notes"] == 1.0
    assert last.metrics["memory_hit_rate"] == 0.75


def test_latro_prefers_what_the_plan_says(run: Run) -> None:
    groups = run(reply("look"), reply("look"), latro_weight=0.01)
    assert all(r.rewards["textworld_latro"] < 0 for group in groups for r in group.rollouts)
    assert all(group.rollouts[0].metrics["scoring_requests"] == 1 for group in groups)


def test_thinking_of_earlier_turns_is_not_shown(run: Run) -> None:
    for how, shown in (("strip", False), ("keep", True)):
        groups = run(reply("look"), thinking_history=how)
        earlier = [m.text for m in groups[-1].rollouts[0].messages[:-1] if m.role == "assistant"]
        assert len(earlier) == 3
        assert all(("hm. look." in text) is shown for text in earlier)


def plan(limit: int, **backend: Any) -> Any:
    settings = GenSettings(
        backend="scripted",
        backend_options={
            "replies": [reply("look"), reply("inventory"), reply("go north"), "no"],
            "mode": "random",
            "token_ids": True,
            **backend,
        },
        limit=limit,
        group_size=2,
        execution=Execution(workers=4, retries=0),
    )
    return build_plan(settings, "textworld", {**GAME, "vrcli": "discrete"}, get_registry())


def by_id(folder: Path) -> dict[str, str]:
    lines = (folder / "groups.jsonl").read_text().splitlines()
    found = {json.loads(line)["group_id"]: line for line in lines}
    assert len(found) == len(lines)
    return found


def test_a_run_of_turns_is_resumed_by_whole_games(tmp_path: Path) -> None:
    """A game whose groups were cut off in the file is played again, and everything is as in one go."""
    registry = get_registry()
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run_gen(plan(4), folder=whole, registry=registry)
    run_gen(plan(2), folder=parts, registry=registry)
    lines = (parts / "groups.jsonl").read_bytes().splitlines(keepends=True)
    (parts / "groups.jsonl").write_bytes(b"".join(lines[:-2]) + lines[-2][:100])
    summary = run_gen(plan(4), folder=parts, registry=registry, resume=True)
    assert summary.groups_resumed == 1
    assert by_id(parts) == by_id(whole)
    assert len(by_id(whole)) == 16


def test_against_a_server(tmp_path: Path) -> None:
    """Completions, token ids and scores by HTTP, as vLLM gives them."""
    replies = [reply("look"), reply("inventory")]
    with MockServer(flavor="vllm", reply=lambda body, index: replies[index % 2]) as server:
        settings = GenSettings(
            backend="openai",
            backend_options={"base_url": server.base_url},
            model="mock-model",
            limit=2,
            group_size=2,
            execution=Execution(workers=2, retries=0),
        )
        options = {**GAME, "vrcli": "discrete", "score_all": True, "vrcli_control": "null"}
        run_gen(
            build_plan(settings, "textworld", options, get_registry()), folder=tmp_path / "run", registry=get_registry()
        )
    groups = [ScoredGroup.model_validate_json(line) for line in by_id(tmp_path / "run").values()]
    assert len(groups) == 8
    for group in groups:
        for rollout in group.rollouts:
            assert rollout.info["vrcli"]["control"] == 0.0
            assert token_sequences(rollout)[0].logprobs is not None


def test_a_model_that_cannot_score_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(FatalBackendError, match="token_ids"):
        run_gen(plan(1, token_ids=False), folder=tmp_path / "run", registry=get_registry())


def test_an_error_in_the_middle_keeps_the_turns_before_it(atropos_run: Run) -> None:
    def player(messages: Sequence[Message]) -> str:
        if len(messages) >= 6:
            raise RequestRejected("the prompt offends me")
        return reply("look")

    groups = atropos_run(TextWorldEnvironment, replies=player, config=GAME, limit=1, group_size=2)
    assert [group.turn for group in groups] == [0, 1, 2]
    assert [group.last for group in groups] == [False, False, True]
    assert all(r.reward is not None for group in groups[:2] for r in group.rollouts)
    failures = [r.failure for r in groups[2].rollouts]
    assert [(f.stage, f.type) for f in failures if f is not None] == [("generate", "RequestRejected")] * 2


def test_a_prompt_that_outgrows_the_context_ends_the_game(atropos_run: Run) -> None:
    def player(messages: Sequence[Message]) -> str:
        if len(messages) >= 6:
            raise ContextOverflow("too long")
        return reply("look")

    groups = atropos_run(TextWorldEnvironment, replies=player, config=GAME, limit=1, group_size=2)
    assert [group.last for group in groups] == [False, True]
    assert [r.info["ended"] for r in groups[-1].rollouts if r.info["executed"]] == ["context_length"]


@pytest.mark.parametrize("older", [False, True], ids=["role", "scorer_url"])
def test_predictions_are_scored_by_another_server(tmp_path: Path, older: bool) -> None:
    """The run's backend gives no tokens at all; the scorer is asked for nothing but scores."""
    with MockServer([{"status": 503}, {"reply": "ok"}], flavor="vllm") as server:
        role: Any = {} if older else {"role_options": {"scorer": {"base_url": server.base_url}}}
        replies = {"replies": [reply("look")]}
        settings = GenSettings(backend="scripted", backend_options=replies, limit=1, group_size=2, **role)
        options = {**GAME, "vrcli": "discrete", **({"scorer_url": server.base_url} if older else {})}
        planned = build_plan(settings, "textworld", options, get_registry())
        summary = run_gen(planned, folder=tmp_path / "run", registry=get_registry())
        asked = [request.path for request in server.generations]
        assert asked
        assert set(asked) == {"/v1/completions"}
    assert summary.state == "finished"
    assert summary.metrics["scoring_requests"] == 2
    assert summary.metrics["vrcli_improvement"] == 0.0


def test_a_scorer_that_nobody_serves_stops_the_run_at_once(tmp_path: Path) -> None:
    settings = GenSettings(backend="scripted", backend_options={"replies": [reply("look")]}, limit=1, group_size=2)
    options = {**GAME, "vrcli": "discrete", "scorer_url": "http://127.0.0.1:9/v1"}
    planned = build_plan(settings, "textworld", options, get_registry())
    with pytest.raises(BackendError):
        run_gen(planned, folder=tmp_path / "run", registry=get_registry())
