"""Episodes as the engine runs them: messages, turns, the end, results, rewards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from atropos_textworld import rewards
from atropos_textworld.config import TextWorldConfig
from atropos_textworld.environment import TextWorldEnvironment
from atropos_textworld.games.spec import GameSpec
from pydantic import ValidationError

from atropos_cli.sdk import FunctionCall, Message, Rollout, Task, ToolCall, assistant

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def plan_of(environment: TextWorldEnvironment, task: Task) -> tuple[str, ...]:
    """The commands that win."""
    assert environment._runtime is not None
    return (await environment._runtime.pool.get(GameSpec.from_json(task.info))).plan


def rollout(info: dict[str, Any]) -> Rollout:
    """A rollout that reports this."""
    return Rollout(id="r", task_id="t", messages=(), info=info)


async def test_a_won_game(shared: Any, make_task: Callable[..., Task]) -> None:
    environment = shared()
    task = make_task("quest-fetch")
    plan = await plan_of(environment, task)
    episode = environment.episode(task)
    first = await episode.reset()
    assert [message.role for message in first] == ["system", "user"]
    assert "-= " in first[1].text
    for command in plan[:-1]:
        (answer,) = await episode.step(assistant(f"<think>easy</think>\n> {command}"))
        assert answer.role == "user"
    assert await episode.step(assistant(plan[-1])) is None
    assert episode.stop_reason is None
    result = episode.result()
    assert result["won"] is True
    assert result["lost"] is False
    assert result["score"] == result["max_score"] == 2
    assert result["steps"] == result["plan_length"] == len(plan)
    assert result["commands"] == list(plan)
    assert result["game"] == task.id
    assert result["last_observation"].endswith("*** The End ***")
    assert episode.metrics()["score"] == 1.0
    assert episode.metrics()["invalid_commands"] == 0
    total = [reward(task, rollout(result)) for reward in (rewards.score, rewards.won, rewards.lost)]
    assert total == [1.0, 1.0, 0.0]
    await episode.close()


async def test_a_lost_game(shared: Any, make_task: Callable[..., Task]) -> None:
    environment = shared()
    task = make_task("tw-simple", "medium")
    plan = await plan_of(environment, task)
    food = plan[-1].removeprefix("put ").removesuffix(" on stove")
    episode = environment.episode(task)
    await episode.reset()
    for command in plan[:-1]:
        await episode.step(assistant(command))
    assert await episode.step(assistant(f"eat {food}")) is None
    result = episode.result()
    assert (result["won"], result["lost"]) == (False, True)
    assert result["last_observation"].endswith("*** You lost! ***")
    assert 0 < result["score"] < result["max_score"]
    assert rewards.lost(task, rollout(result)) == -1.0
    assert 0 < rewards.score(task, rollout(result)) < 1
    await episode.close()


async def test_the_step_limit_is_truncation(shared: Any, make_task: Callable[..., Task]) -> None:
    environment = shared(max_steps=3)
    episode = environment.episode(make_task("quest-fetch"))
    await episode.reset()
    for reply in ("look", "<think>"):
        assert await episode.step(assistant(reply)) is not None
    assert await episode.step(assistant("look")) is None
    assert episode.stop_reason == "step_limit"
    assert (episode.result()["won"], episode.result()["lost"]) == (False, False)
    await episode.close()


async def test_winning_with_the_last_step_is_no_truncation(shared: Any, make_task: Callable[..., Task]) -> None:
    task = make_task("quest-fetch")
    plan = await plan_of(shared(), task)
    environment = shared(max_steps=len(plan))
    episode = environment.episode(task)
    await episode.reset()
    for command in plan:
        last = await episode.step(assistant(command))
    assert last is None
    assert episode.stop_reason is None
    assert episode.result()["won"]
    await episode.close()


async def test_the_limit_follows_the_plan(shared: Any, make_task: Callable[..., Task]) -> None:
    environment = shared(show_turns=True)
    for difficulty, seed in (("easy", 7), ("medium", 7)):
        task = make_task("quest-fetch", difficulty, seed)
        expected = max(20, 3 * len(await plan_of(environment, task)))
        episode = environment.episode(task)
        assert (await episode.reset())[1].text.endswith(f"Turns left: {expected}")
        await episode.close()


async def test_replies_without_a_command_cost_a_turn_and_say_why(shared: Any, make_task: Callable[..., Task]) -> None:
    environment = shared()
    episode = environment.episode(make_task("quest-fetch"))
    await episode.reset()
    expected = {
        "": "Your reply is empty.",
        "<think>hm": "Your reply ends inside <think>.",
        "<tool_call>look</tool_call>": "cannot be read",
        '<tool_call>{"name": "fly", "arguments": {}}</tool_call>': "There is no such tool",
        '<tool_call>{"name": "execute_command", "arguments": {}}</tool_call>': 'no text "command"',
        "word " * 50: "too long",
        "open box. go north": "One command at a time",
        "restore": "not a command of this game",
        "☕": "You say nothing.",
    }
    for reply, words in expected.items():
        assert words in (await episode.step(assistant(reply)))[0].text
    assert "can't" in (await episode.step(assistant("take unicorn")))[0].text
    metrics = episode.metrics()
    assert metrics["steps"] == len(expected) + 1
    assert metrics["malformed"] == 6
    assert all(metrics[f"malformed_{fault}"] == 1 for fault in ("empty", "bad_tool_call", "wrong_tool", "too_long"))
    assert metrics["refused"] == 3
    assert metrics["refused_chain"] == metrics["refused_system"] == metrics["refused_empty"] == 1
    assert metrics["invalid_commands"] == 1
    assert episode.result()["commands"] == ["take unicorn"]
    await episode.close()


async def test_again_repeats_the_last_command(shared: Any, make_task: Callable[..., Task]) -> None:
    environment = shared()
    episode = environment.episode(make_task("quest-fetch"))
    await episode.reset()
    assert (await episode.step(assistant("again")))[0].text == "You say nothing."
    looked = (await episode.step(assistant("look")))[0].text
    assert (await episode.step(assistant("g")))[0].text == looked
    await episode.close()


async def test_what_can_be_shown(shared: Any, make_task: Callable[..., Task]) -> None:
    environment = shared(show_commands=True, show_score=True, max_steps=9, show_turns=True)
    episode = environment.episode(make_task("quest-fetch"))
    text = (await episode.reset())[1].text
    assert "Score: 0/2   Turns left: 9\n\nYou can: " in text
    assert ", inventory, look" in text
    await episode.close()
    plain = shared().episode(make_task("quest-fetch"))
    text = (await plain.reset())[1].text
    assert not any(word in text for word in ("Score", "Turns left", "You can:"))
    await plain.close()


async def test_tool_calls_are_answered_one_by_one(shared: Any, make_task: Callable[..., Task]) -> None:
    environment = shared()
    episode = environment.episode(make_task("quest-fetch"))
    await episode.reset()
    function = FunctionCall(name="execute_command", arguments='{"command": "inventory"}')
    calls = (ToolCall(id="a", function=function), ToolCall(id="b", function=function))
    first, second = await episode.step(Message(role="assistant", tool_calls=calls))
    assert (first.role, first.tool_call_id, first.text) == ("tool", "a", "You are carrying nothing.")
    assert second.tool_call_id == "b"
    assert "first command" in second.text
    assert episode.result()["commands"] == ["inventory"]
    await episode.close()


async def test_many_games_at_once(shared: Any, make_task: Callable[..., Task]) -> None:
    """Different games interleaved over few processes do not mix."""
    environment = shared()
    tasks = [make_task("quest-fetch", "easy", seed) for seed in (7, 0)] + [make_task("tw-simple", "medium")]

    async def play(task: Task) -> dict[str, Any]:
        episode = environment.episode(task)
        await episode.reset()
        for command in await plan_of(environment, task):
            await episode.step(assistant(command))
        await episode.close()
        return episode.result()

    results = await asyncio.gather(*(play(task) for task in tasks * 4))
    assert all(result["won"] for result in results)
    assert [result["game"] for result in results] == [task.id for task in tasks * 4]
    assert all(seat.sessions == 0 for seat in environment._runtime.fleet._seats)


async def test_the_next_games_are_built_while_one_is_played(shared: Any) -> None:
    environment = shared(game_type="quest-fetch", difficulty="easy", game_seed=99)
    tasks = environment.tasks("train")
    pool = environment._runtime.pool
    following = [GameSpec.from_json(tasks[index].info) for index in (1, 2)]
    before = pool.built
    await asyncio.sleep(0.1)
    assert pool.built == before
    assert not pool._wanted
    environment.episode(tasks[0])
    # A game is in the cache a moment before it is counted.
    while pool.built < before + 2 or any(pool.cache.find(spec) is None for spec in following):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    assert pool.built == before + 2
    environment.episode(tasks[0])
    await asyncio.sleep(0.1)
    assert not pool._wanted


async def test_games_start_when_the_environment_was_not_opened(make_task: Callable[..., Task]) -> None:
    environment = TextWorldEnvironment(TextWorldConfig())
    try:
        assert await environment.validate(make_task("quest-fetch"))
    finally:
        await environment.close()


async def test_a_reply_can_be_held_to_the_admissible_commands(shared: Any, make_task: Callable[..., Task]) -> None:
    task = make_task("quest-fetch")
    plain, held = shared().episode(task), shared(pick_from_admissible=True).episode(task)
    rules, screen = await held.reset()
    assert "one of these commands" in rules.text
    assert "goal" not in rules.text  # it is no admissible command
    await plain.reset()
    assert plain.choices == ()
    for _ in range(3):
        assert len(held.choices) > 1
        assert screen.text.endswith("You can: " + ", ".join(held.choices))
        (screen,) = await held.step(assistant(held.choices[-1]))
        assert held.metrics()["invalid_commands"] == 0
    await plain.close()
    await held.close()


async def test_turns_as_groups_refuse_replies_that_are_commands_alone() -> None:
    with pytest.raises(ValidationError, match="pick_from_admissible needs group_by episode"):
        TextWorldConfig(pick_from_admissible=True, group_by="turn")
