"""The simulated user by strategy, with a model that says what the test gives it; and the one without a model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from atropos_tau.environment import TauEnvironment
from atropos_tau.scripted import ScriptedUser
from atropos_tau.user import Persona, Said, SimulatedUser

from atropos_cli.sdk import JsonDict, Message, assistant, user
from atropos_cli.sdk.backends import Completion

TOOLS: list[JsonDict] = [
    {"type": "function", "function": {"name": "toggle_data", "parameters": {"type": "object", "properties": {}}}},
    {
        "type": "function",
        "function": {
            "name": "set_mode",
            "parameters": {"type": "object", "properties": {"mode": {"type": "string"}}, "required": ["mode"]},
        },
    },
]


class Model:
    """Gives out its replies in turn, and keeps what it was asked."""

    def __init__(self, *replies: str | Message) -> None:
        self.replies = list(replies)
        self.asked: list[list[Message]] = []
        self.tools: list[Any] = []

    async def generate(self, messages: Sequence[Message], *, tools: Any = None, **_: Any) -> Sequence[Completion]:
        self.asked.append(list(messages))
        self.tools.append(tools)
        reply = self.replies.pop(0)
        return [Completion(message=assistant(reply) if isinstance(reply, str) else reply, finish_reason="stop")]


def made(model: Model, strategy: Any = "llm", tools: Sequence[JsonDict] = (), **how: Any) -> SimulatedUser:
    async def execute(name: str, arguments: JsonDict) -> str:
        return f"{name} {json.dumps(arguments)} done"

    persona = Persona(TauEnvironment.prompt, strategy, "Be brief.", "You lost a hat.", tools, **how)
    return SimulatedUser(model, persona, execute)  # type: ignore[arg-type]


def says(person: Any, *heard: str) -> list[Said]:
    async def all_of_it() -> list[Said]:
        return [await person.reply(text) for text in heard]

    return asyncio.run(all_of_it())


def test_an_llm_user_sees_its_scenario_and_the_conversation_from_its_side() -> None:
    model = Model("I lost a hat.", "A red one. ###STOP###")
    said = says(made(model), "Hello!", "Which one?")
    assert said == [Said("I lost a hat."), Said("A red one. ###STOP###", stop=True)]
    assert "You lost a hat." in model.asked[1][0].text
    assert [(m.role, m.text) for m in model.asked[1][1:]] == [
        ("user", "Hello!"),
        ("assistant", "I lost a hat."),
        ("user", "Which one?"),
    ]


def test_what_was_said_before_is_turned_round_without_the_calls_of_the_agent() -> None:
    model = Model("Thanks.")
    person = made(model)
    call: Any = [{"id": "1", "function": {"name": "find", "arguments": "{}"}}]
    person.before = [user("a hat"), Message(role="assistant", tool_calls=call), Message(role="tool", content="1")]
    person.__post_init__()
    says(person, "Found it.")
    assert [(m.role, m.text) for m in model.asked[0][-2:]] == [("assistant", "a hat"), ("user", "Found it.")]


def test_a_thought_never_reaches_the_agent_and_stays_in_the_users_own_history() -> None:
    model = Model("Thought: I wait\nUser Response: Hm.", "no form", "Thought: x\nUser Response: Fine.")
    person = made(model, "react")
    assert says(person, "Hello!", "And?") == [Said("Hm."), Said("Fine.")]
    assert model.asked[1][-2].text == "Thought: I wait\nUser Response: Hm."
    assert person.counts["user_retries"] == 1


def test_a_user_that_keeps_to_no_form_ends_the_conversation_with_a_reason() -> None:
    assert says(made(Model("a", "b", "c"), "react"), "Hello!") == [Said(error="invalid_user_format")]
    assert says(made(Model("<think>never", "", " ")), "Hello!") == [Said(error="empty_user_message")]


def test_verify_takes_the_first_message_that_passes_and_keeps_that_one() -> None:
    model = Model("I am a cat.", "False", "I lost a hat.", "It fits.\ntrue", "Red.", "true")
    person = made(model, "verify")
    assert says(person, "Hello!", "Which?") == [Said("I lost a hat."), Said("Red.")]
    assert [m.text for m in model.asked[4][1:]] == ["Hello!", "I lost a hat.", "Which?"]
    assert "<message>\nI am a cat.\n</message>" in model.asked[1][0].text
    assert len(model.asked[1]) == 1


def test_verify_gives_up_after_three_messages_and_says_the_last() -> None:
    model = Model("one", "false", "two", "no verdict", "three")
    person = made(model, "verify")
    assert says(person, "Hello!") == [Said("three")]
    assert (model.replies, person.counts["user_retries"]) == ([], 2)


def test_reflection_replaces_the_message_and_nothing_of_it_is_in_the_history() -> None:
    model = Model(
        "I am a cat.", "false", "Reflection:\nnot a cat\n\nUser Response:\nI lost a hat.", "true", "Red.", "true"
    )
    person = made(model, "reflection")
    assert says(person, "Hello!", "Which?") == [Said("I lost a hat."), Said("Red.")]
    assert [(m.role, m.text) for m in model.asked[4][1:]] == [
        ("user", "Hello!"),
        ("assistant", "I lost a hat."),
        ("user", "Which?"),
    ]
    assert "customer: I lost a hat.\nagent: Which?" in model.asked[5][0].text


def test_reflection_without_a_better_message_says_the_first() -> None:
    model = Model("mine", "false", "no form", "false", "no form")
    assert says(made(model, "reflection"), "Hello!") == [Said("mine")]
    assert model.replies == []


@pytest.mark.parametrize("written", [True, False], ids=["in the text", "by the server"])
def test_calls_of_the_user_are_executed_before_the_message(written: bool) -> None:
    text = '<tool_call>{"name": "set_mode", "arguments": {"mode": "4g"}}</tool_call>'
    call: Any = [{"id": "c1", "function": {"name": "set_mode", "arguments": '{"mode": "4g"}'}}]
    model = Model(assistant(text) if written else Message(role="assistant", tool_calls=call), "Done.")
    person = made(model, tools=TOOLS)
    assert says(person, "Set the mode, please.") == [Said("Done.")]
    assert model.tools == [TOOLS, TOOLS]
    assert (model.asked[1][-1].role, model.asked[1][-1].text) == ("tool", 'set_mode {"mode": "4g"} done')
    assert person.counts == {"user_calls": 1}


def test_a_call_that_cannot_be_read_is_told_and_endless_calls_end() -> None:
    broken = '<tool_call>{"name": "toggle_data", "argu'
    model = Model(broken, "Sorry.")
    assert says(made(model, tools=TOOLS), "Do it.") == [Said("Sorry.")]
    assert "cannot be read" in model.asked[1][-1].text
    again = '<tool_call>{"name": "toggle_data", "arguments": {}}</tool_call>'
    assert says(made(Model(*[again] * 3), tools=TOOLS, most_calls=2), "Do it.") == [Said(error="too_many_user_calls")]


def test_tools_in_the_prompt_are_described_there_and_not_in_the_request() -> None:
    model = Model('<tool_call>{"name": "toggle_data", "arguments": {}}</tool_call>', "Done.")
    assert says(made(model, tools=TOOLS, tools_in_prompt=True), "Toggle.") == [Said("Done.")]
    assert "set_mode" in model.asked[0][0].text
    assert model.tools == [None, None]
    assert model.asked[1][-1].role == "user"


def test_a_scripted_user_does_what_it_is_told_and_leaves() -> None:
    async def execute(name: str, arguments: JsonDict) -> str:
        return json.dumps(arguments)

    gold: list[JsonDict] = [{"name": "set_mode", "arguments": {"mode": "4g"}}]
    person = ScriptedUser({"reason": "No data.", "details": "I am Jo."}, TOOLS, gold, execute)
    heard = ("Hi!", "Your name?", "Please set mode, then toggle_data and toggle data.", "Anything else?")
    said = says(person, *heard)
    assert [item.text for item in said[:3]] == [
        "No data.",
        "I am Jo.",
        'set_mode: {"mode": "4g"}\ntoggle_data: {}\ntoggle_data: {}',
    ]
    assert said[3].stop
    unknown = ScriptedUser({"reason": "No data.", "details": ""}, TOOLS, [], execute)
    assert says(unknown, "set_mode!")[0].text == "set_mode: I do not know what to enter."
    unknown.transferred = True
    assert says(unknown, "You are handed over.") == [Said("###TRANSFER###", stop=True)]
