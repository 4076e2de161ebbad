"""The baselines: what they know, what they choose, and how they play through the real engine."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from atropos_authoring import BackendContract
from atropos_textworld.agent.blocks import extract_memory
from atropos_textworld.policies import table
from atropos_textworld.policies.backends import (
    AdmissibleRandomBackend,
    OracleBackend,
    PolicyBackend,
    PolicyConfig,
    RandomBackend,
)
from atropos_textworld.policies.choices import last_observation, prediction, random_command, reply
from atropos_textworld.policies.table import TABLE, Table, conversation_key
from atropos_textworld.replies import find_command

from atropos_cli.sdk import Message, TokenSpan, assistant, parse_tool_calls, system, user
from atropos_cli.sdk.backends import FatalBackendError, GenerateRequest, RequestRejected

RULES = system("The game knows these commands: dial NUMBER on THING, insert THING into THING, look, open THING.")
SCREEN = user("-= Cellar =-\nYou see a maroon safe and a brass keypad; the note says 4711.\n\nYou can: open brass door")
TALK = (RULES, SCREEN)
PLAN = ("open maroon safe", "take flask from maroon safe", "go north")


class Told(OracleBackend):
    """An oracle that was told of the contract's conversation."""

    async def open(self, *, workers: int = 1, request_timeout: float = 600.0) -> None:
        await super().open()
        table.publish(BackendContract.messages, commands=["look"], plan=PLAN, played=[])


class TestOracle(BackendContract):
    obeys_max_tokens = False

    def make(self) -> PolicyBackend:
        return Told()


class TestOracleWithTokens(BackendContract):
    obeys_max_tokens = False

    def make(self) -> PolicyBackend:
        return Told(PolicyConfig(token_ids=True))


class TestRandom(BackendContract):
    obeys_max_tokens = False

    def make(self) -> PolicyBackend:
        return RandomBackend()


async def commands_of(backend: PolicyBackend, messages: tuple[Message, ...], n: int = 1, seed: int = 1) -> list[str]:
    """The commands in n replies."""
    generation = await backend.generate(GenerateRequest(messages=messages, n=n, seed=seed))
    found = [find_command(completion.message) for completion in generation.completions]
    assert all(isinstance(command, str) for command in found)
    return [str(command) for command in found]


async def test_the_oracle_plays_the_rest_of_the_plan() -> None:
    backend = OracleBackend()
    await backend.open()
    try:
        for played in range(3):
            table.publish(TALK, commands=["look"], plan=PLAN, played=PLAN[:played])
            assert await commands_of(backend, TALK, n=3) == [PLAN[played]] * 3
    finally:
        await backend.close()
    assert len(TABLE) == 0


async def test_the_oracle_refuses_a_game_that_left_its_plan() -> None:
    backend = OracleBackend()
    await backend.open()
    try:
        table.publish(TALK, commands=["look"], plan=PLAN, played=["go south"])
        with pytest.raises(RequestRejected, match="left its plan"):
            await commands_of(backend, TALK)
        with pytest.raises(RequestRejected, match="no game with this conversation"):
            await commands_of(backend, (*TALK, assistant("> look"), user("A cellar.")))
    finally:
        await backend.close()


async def test_without_a_game_the_run_stops_with_a_hint() -> None:
    backend = AdmissibleRandomBackend()
    await backend.open()
    with pytest.raises(FatalBackendError) as raised:
        await commands_of(backend, TALK)
    assert raised.value.hint == "atropos gen textworld --backend textworld-admissible-random"
    await backend.close()


async def test_admissible_random_is_uniform_and_the_same_for_the_same_request() -> None:
    backend = AdmissibleRandomBackend()
    await backend.open()
    try:
        commands = ("go north", "look", "open safe")
        table.publish(TALK, commands=commands, plan=PLAN, played=[])
        drawn = await commands_of(backend, TALK, n=600)
        counts = Counter(drawn)
        assert set(counts) == set(commands)
        # 3 standard deviations of a third of 600 are 35.
        assert all(abs(count - 200) < 50 for count in counts.values())
        assert await commands_of(backend, TALK, n=600) == drawn
        assert await commands_of(backend, TALK, n=600, seed=2) != drawn
    finally:
        await backend.close()


def test_random_fills_the_known_forms_with_words_of_the_screen() -> None:
    drawn = {random_command(TALK, random.Random(seed)) for seed in range(2000)}
    assert {"dial 4711 on brass keypad", "open maroon safe", "look", "go west", "insert safe into keypad"} <= drawn
    assert not any("brass door" in command for command in drawn), "the list of admissible commands was read"
    assert not any("THING" in command or "NUMBER" in command or "DIRECTION" in command for command in drawn)
    assert random_command([], random.Random(0))


@pytest.mark.parametrize("command", [*PLAN, "dial 4711 on brass keypad", "inventory", "look", "put bell on rack"])
def test_replies_have_the_form_that_the_environment_asks_for(command: str) -> None:
    text = reply(TALK, command, "Fine.")
    assert extract_memory(text).format_ok
    assert extract_memory(text).memory == f"Cellar: I did {command}."
    (call,) = parse_tool_calls(text, "hermes").calls
    assert call.arguments == {"command": command, "expected_outcome": prediction(command)}
    assert find_command(assistant(text)) == command


def test_a_conversation_is_roles_and_texts_and_calls() -> None:
    tokens = TokenSpan(ids=(1,), mask=True)
    same = SCREEN.model_copy(update={"tokens": tokens, "finish_reason": "stop"})
    assert conversation_key((RULES, same)) == conversation_key(TALK)
    others = [
        (SCREEN, RULES),
        (RULES,),
        (RULES, SCREEN, SCREEN),
        (RULES, user(SCREEN.text + " ")),
        (RULES, assistant(SCREEN.text)),
        (system(RULES.text + "user" + SCREEN.text),),
    ]
    assert len({conversation_key(messages) for messages in [TALK, *others]}) == 1 + len(others)
    assert conversation_key([user("\ud800")])


def test_the_table_is_bounded_and_empty_while_nobody_reads() -> None:
    known = Table(size=10)
    known.publish(TALK, commands=["look"], plan=PLAN, played=[])
    assert len(known) == 0
    known.open()
    known.open()
    for number in range(50):
        known.publish([user(str(number))], commands=["look"], plan=PLAN, played=[])
    assert len(known) == 10
    assert known.find([user("49")]) is not None
    assert known.find([user("0")]) is None
    known.close()
    assert known.read
    assert len(known) == 10
    known.close()
    assert not known.read
    assert len(known) == 0


def test_the_last_observation_has_no_list_of_commands() -> None:
    assert last_observation([*TALK, assistant("> look")]).endswith("4711.\n\n")
    assert last_observation([RULES]) == ""


async def play(environment: Any, task: Any, backend: PolicyBackend, size: int) -> list[Any]:
    """Episodes played side by side, as the engine plays the rollouts of a group."""

    async def one(number: int) -> Any:
        episode = environment.episode(task)
        messages = list(await episode.reset())
        turn = 0
        while True:
            request = GenerateRequest(messages=tuple(messages), seed=100 * number + turn)
            said = (await backend.generate(request)).completions[0].message
            answer = await episode.step(said)
            turn += 1
            if answer is None:
                await episode.close()
                return episode
            messages += [said, *answer]

    return await asyncio.gather(*(one(number) for number in range(size)))


async def test_the_oracle_wins_real_games_and_chance_seldom_does(opened: Any, make_task: Any) -> None:
    environment = await opened(workers=4, processes=1, show_commands=True, show_turns=True)
    oracle, chance = OracleBackend(), AdmissibleRandomBackend()
    await oracle.open()
    await chance.open()
    try:
        for kind, difficulty in (("quest-fetch", "easy"), ("mixed-adventure", "hard"), ("tw-cooking", "easy")):
            task = make_task(kind, difficulty)
            results = [episode.result() for episode in await play(environment, task, oracle, 2)]
            assert [result["won"] for result in results] == [True, True]
            assert results[0]["score"] == results[0]["max_score"]
            assert results[0]["commands"] == results[1]["commands"]
        episodes = await play(environment, make_task("mixed-adventure", "hard"), chance, 4)
        assert not any(episode.result()["won"] for episode in episodes)
        assert all(episode.metrics()["malformed"] == episode.metrics()["invalid_commands"] == 0 for episode in episodes)
        assert len({tuple(episode.result()["commands"]) for episode in episodes}) > 1
    finally:
        await chance.close()
        await oracle.close()
