"""Tools from a source, in environments that have none, some, or the same ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from support import Adding, Bench, CountingEnvironment, exact

from atropos_cli.domain.base import JsonDict
from atropos_cli.errors import ConfigError, UsageError
from atropos_cli.sdk import Environment, GameEnvironment, Message, Task
from atropos_cli.sdk.backends import Completion, GenerateRequest, Generation
from atropos_cli.sdk.tools import ToolEnvironment, ToolResult, ToolSession, ToolSource


def schema(name: str) -> JsonDict:
    parameters: JsonDict = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    return {"type": "function", "function": {"name": name, "description": "Add one.", "parameters": parameters}}


class Adder(ToolSource):
    """plus_one, which a real process would offer; and one that breaks."""

    name = "adder"
    closed: ClassVar[list[str]] = []

    async def open(self, *, workers: int) -> Sequence[JsonDict]:
        return [schema("plus_one"), schema("broken")]

    def session(self) -> ToolSession:
        return _Session()

    async def close(self) -> None:
        Adder.closed.append("source")


class _Session(ToolSession):
    async def call(self, name: str, arguments: JsonDict) -> ToolResult:
        if name == "broken":
            raise OSError("the server has ended")
        if arguments["n"] == 13:
            raise TimeoutError
        return ToolResult(str(int(arguments["n"]) + 1), error=arguments["n"] == 7)  # type: ignore[call-overload,arg-type]

    async def close(self) -> None:
        Adder.closed.append("session")


def plus_two(n: int) -> int:
    """Add two."""
    return n + 2


class OwnTools(ToolEnvironment):
    name = "own-tools"
    rewards = (exact,)
    tools = (plus_two,)

    def tasks(self, split: str) -> Sequence[Task]:
        return [Adding(None).tasks("train")[i] for i in range(4)]


def saying(text: str) -> Generation:
    return Generation(completions=(Completion(message=Message(role="assistant", content=text), finish_reason="stop"),))


def calls(*named: tuple[str, Any]) -> str:
    made = [json.dumps({"name": name, "arguments": {"n": n}}) for name, n in named]
    return "".join(f"<tool_call>{call}</tool_call>" for call in made)


def uses(*replies: str) -> Any:
    """Replies in order; $N is the number of the question, $R the text of the last message."""

    def answer(request: GenerateRequest) -> Generation:
        turn = sum(message.role == "assistant" for message in request.messages)
        number = next(m.text for m in request.messages if m.role == "user").partition("+")[0]
        text = replies[min(turn, len(replies) - 1)]
        return saying(text.replace('"$N"', number).replace("$R", request.messages[-1].text))

    return answer


@pytest.fixture
def sourced(bench: Bench) -> Bench:
    bench.registry.components["toolset", "adder"] = Adder
    Adder.closed.clear()
    return bench


def test_a_single_turn_environment_gets_tools(sourced: Bench) -> None:
    sourced.answer(uses(calls(("plus_one", "$N")), "$R"))
    sourced.run(sourced.plan(tools=("adder:here",), group_size=1))
    rollout = sourced.groups()[0]["rollouts"][0]
    assert [message["role"] for message in rollout["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert rollout["reward"] == 1.0
    (record,) = rollout["info"]["calls_of_sources"]
    assert (record["source"], record["tool"], record["outcome"]) == ("adder:here", "plus_one", "ok")
    assert [tool["function"]["name"] for tool in sourced.groups()[0]["task"]["info"]["tools"]] == ["plus_one", "broken"]
    assert [tool["function"]["name"] for tool in sourced.requests[0].tools or ()] == ["plus_one", "broken"]
    assert Adder.closed.count("session") == 4
    assert Adder.closed[-1] == "source"


def test_without_a_call_nothing_changes(sourced: Bench) -> None:
    sourced.answer(uses("0"))
    sourced.run(sourced.plan(tools=("adder:here",), group_size=1))
    assert all(len(group["rollouts"][0]["messages"]) == 2 for group in sourced.groups())
    assert "session" not in Adder.closed


@pytest.mark.parametrize(
    ("reply", "result", "metric"),
    [
        (calls(("plus_one", 7)), "error: 8", "tool_error"),
        (calls(("plus_one", 13)), "error: plus_one took longer than 30 s", "tool_timeout"),
        (calls(("minus", 1)), "error: there is no tool 'minus'; there are: plus_one, broken", "tool_refused"),
    ],
)
def test_what_the_model_reads(sourced: Bench, reply: str, result: str, metric: str) -> None:
    sourced.answer(uses(reply, "done"))
    sourced.run(sourced.plan(tools=("adder:here",), group_size=1, limit=1))
    rollout = sourced.groups()[0]["rollouts"][0]
    assert rollout["messages"][2]["content"] == result
    assert rollout["metrics"][metric] == 1.0


def test_a_broken_source_fails_the_rollout_alone(sourced: Bench) -> None:
    def answer(request: GenerateRequest) -> Generation:
        name = "broken" if request.messages[0].text == "1+1" else "plus_one"
        return saying("x" if request.messages[-1].role == "tool" else calls((name, 1)))

    sourced.answer(answer)
    sourced.run(sourced.plan(tools=("adder:here",), group_size=1))
    (failed,) = sourced.failures()
    assert failed["message"].startswith("the server has ended")
    assert len(sourced.groups()) == 3


def test_an_unreadable_call_is_told_and_counts(sourced: Bench) -> None:
    sourced.answer(uses('<tool_call>{"name": "plus_one", ', "done"))
    sourced.run(sourced.plan(tools=("adder:here",), group_size=1, limit=1))
    rollout = sourced.groups()[0]["rollouts"][0]
    assert "cannot be read (truncated)" in rollout["messages"][2]["content"]
    assert rollout["parse_failures"] == {"truncated": 1}


def test_the_number_of_turns_with_calls_is_limited(sourced: Bench) -> None:
    sourced.answer(uses(calls(("plus_one", 1))))
    options = {"adder": {"max_turns": 3}}
    sourced.run(sourced.plan(tools=("adder:here",), tools_options=options, group_size=1, limit=1))
    rollout = sourced.groups()[0]["rollouts"][0]
    assert rollout["stop_reason"] == "step_limit"
    assert sum(message["role"] == "assistant" for message in rollout["messages"]) == 3


def test_an_environment_with_tools_keeps_its_own(sourced: Bench) -> None:
    sourced.use(OwnTools)
    sourced.answer(uses(calls(("plus_one", 1), ("plus_two", 1)), "done"))
    sourced.run(sourced.plan(tools=("adder:here",), group_size=1, limit=1))
    rollout = sourced.groups()[0]["rollouts"][0]
    assert [message.get("content") for message in rollout["messages"][2:4]] == ["2", "3"]
    assert rollout["metrics"]["tool_calls"] == 2.0
    assert rollout["info"]["tools_used"] == {"plus_two": 1}


def test_episodes_of_several_turns_go_on_after_calls(sourced: Bench) -> None:
    sourced.use(CountingEnvironment)
    sourced.answer(lambda request: saying(calls(("plus_one", 1)) if len(request.messages) == 3 else "ok"))
    sourced.run(sourced.plan(tools=("adder:here",), group_size=1, limit=1))
    rollout = sourced.groups()[0]["rollouts"][0]
    assert rollout["metrics"] == {"turns": 3.0, "tool_calls": 1.0}


def test_tools_in_the_prompt(sourced: Bench) -> None:
    sourced.answer(uses(calls(("plus_one", "$N")), "$R"))
    options = {"adder": {"tools_in": "prompt", "only": ["plus_one"]}}
    sourced.run(sourced.plan(tools=("adder:here",), tools_options=options, group_size=1, limit=1))
    messages = sourced.groups()[0]["rollouts"][0]["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user", "assistant"]
    assert '"plus_one"' in messages[0]["content"]
    assert "broken" not in messages[0]["content"]
    assert sourced.requests[0].tools is None


class Clash(OwnTools):
    name = "clash"

    def toolbox(self, task: Task) -> Any:
        def plus_one(n: int) -> int:
            """Add one."""
            return n + 1

        return [plus_one]


def test_a_tool_of_the_environments_own_name_fails_the_rollout(sourced: Bench) -> None:
    sourced.use(Clash)
    sourced.answer(uses("done"))
    sourced.run(sourced.plan(tools=("adder:here",), group_size=1, limit=1))
    assert "both have a tool 'plus_one'" in sourced.failures()[0]["message"]


class Game(GameEnvironment):
    name = "game"

    def tasks(self, split: str) -> Sequence[Task]:
        return []

    def game(self, task: Task) -> Any:
        raise AssertionError


@pytest.mark.parametrize(
    ("environment", "tools", "options", "error", "said"),
    [
        (Game, ("adder:here",), {}, UsageError, "is a game"),
        (Adding, ("adder",), {}, UsageError, "names no target"),
        (Adding, ("adder:here", "adder:here"), {}, UsageError, "given twice"),
        (Adding, ("adder:here",), {"adder": {"max_turn": 1}}, ConfigError, "did you mean max_turns"),
    ],
)
def test_plans_that_cannot_be(
    sourced: Bench, environment: type[Environment], tools: Any, options: Any, error: type[Exception], said: str
) -> None:
    sourced.use(environment)
    with pytest.raises(error, match=said):
        sourced.plan(tools=tools, tools_options=options)


@pytest.mark.parametrize(
    ("tools", "only", "said"),
    [(("adder:here",), ["plus_three"], "has no tool 'plus_three'"), (("adder:a", "adder:b"), [], "two sources")],
)
def test_runs_that_do_not_begin(sourced: Bench, tools: Any, only: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        sourced.run(sourced.plan(tools=tools, tools_options={"adder": {"only": only}}))


def test_the_plan_and_its_digest(sourced: Bench) -> None:
    plain, here, there = (sourced.plan(tools=tools) for tools in ((), ("adder:here",), ("adder:there",)))
    assert len({plain.digest, here.digest, there.digest}) == 3
    assert "tools" not in plain.model_dump()
