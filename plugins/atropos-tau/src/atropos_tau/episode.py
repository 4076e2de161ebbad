"""One conversation: the agent, its tools and the user, and the checks at its end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from atropos_cli.sdk import Episode, JsonDict, Message, RoleModel, Task, ToolCall, split_thinking, user
from atropos_cli.sdk.foreign import Data
from atropos_cli.sdk.prompts import Prompt
from atropos_cli.sdk.tools import introduced, results_as_user, unreadable
from atropos_tau import judge
from atropos_tau.bench import State
from atropos_tau.calls import arguments_of
from atropos_tau.checks import communicated, reward_of
from atropos_tau.config import TauConfig
from atropos_tau.scripted import ScriptedUser
from atropos_tau.user import Persona, Said, SimulatedUser, User

DONE = "done"
TRANSFER = "transfer_to_human_agents"
DONE_TOOL: JsonDict = {
    "type": "function",
    "function": {
        "name": DONE,
        "description": "Call this when you are done with the ticket.",
        "parameters": {"type": "object", "properties": {}},
    },
}
_ENDS = frozenset({"user_stop", "agent_stop"})
"""Ends of a conversation that is judged; all others have reward 0."""
_BASIS = {
    "DB": "db",
    "ENV_ASSERTION": "env_assertions",
    "ACTION": "actions",
    "COMMUNICATE": "communicate",
    "NL_ASSERTION": "nl_assertions",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """What all episodes of an environment share."""

    config: TauConfig
    prompt: Prompt
    about: Data


class TauEpisode(Episode):
    """A reply with calls has them executed; any other is a message to the user, whose answer comes next.

    termination says how it ended: user_stop, agent_stop (solo), max_turns, too_many_errors, agent_error (an empty
    reply, or in solo one without a call), user_error (no message from the user, see `user_fault`), or cut (by the
    engine, such as at the end of the context).
    """

    def __init__(self, task: Task, setting: Setting, state: State) -> None:
        self.task = task
        self._setting = setting
        self._config = setting.config
        self._state = state
        self._facts: Data = {}
        self._user: User | None = None
        self._said: list[str] = []
        self._talk: list[Message] = []
        self._turns = 0
        self._counts: Counter[str] = Counter()
        self._end: str | None = None
        self._fault: str | None = None
        self._found: JsonDict = {}
        self._reward = 0.0
        self.tools_in_prompt = self._config.tools_in == "prompt"

    async def reset(self) -> Sequence[Message]:
        """Policy, tools, earlier messages, and the first message of the user or the ticket."""
        self._facts = await self._state.bench.ask("task", task=self.task.id)
        tools = list(self._setting.about["tools"])
        if self._config.solo:
            tools += [*self._setting.about["user_tools"], DONE_TOOL]
        self.tools = tools
        messages = introduced(self.task.prompt, tools) if self.tools_in_prompt else list(self.task.prompt)
        if self._config.solo:
            return messages
        before = list(self.task.prompt[1:])
        self._talk = [message for message in before if message.text and not message.tool_calls]
        if before and before[-1].role != "assistant":
            self._user = self._make_user(before)
            return messages
        # What it answers now is said to it below.
        self._user = self._make_user(before[:-1])
        said = await self._ask_user(before[-1].text if before else self._setting.prompt.text("greeting"))
        return [*messages, user(said.text or "...")]

    async def step(self, reply: Message) -> Sequence[Message] | None:
        """See Episode. A conversation that the user has ended takes no reply."""
        self._turns += 1
        if self._end is None:
            messages = await (self._execute(reply.tool_calls) if reply.tool_calls else self._respond(reply))
            if self._end is None and self._turns >= self._config.max_turns:
                self._stop_at_limit()
            if self._end is None:
                return messages
        await self._close_case()
        return None

    async def malformed(self, reply: Message, fault: str) -> Sequence[Message] | None:
        """Nothing is executed and the user hears nothing: the agent reads the fault."""
        self._turns += 1
        if self._end is None and self._turns < self._config.max_turns:
            return unreadable(reply, fault, in_prompt=self.tools_in_prompt)
        if self._end is None:
            self._stop_at_limit()
        await self._close_case()
        return None

    def result(self) -> JsonDict:
        """How it ended, its reward, and the checks by kind, each a list of true and false."""
        calls: list[Any] = [
            {"name": call.name, "arguments": json.dumps(call.arguments), "result": call.text}
            for call in self._state.by("user")
        ]
        info: JsonDict = {"success": self._reward == 1.0, "reward": self._reward, "termination": self._end or "cut"}
        info |= self._found
        if calls:
            info["user_calls"] = calls
        if self._fault is not None:
            info["user_fault"] = self._fault
        if self._talk and self._talk[-1].role == "user":
            info["last_user_message"] = self._talk[-1].text
        return info

    def metrics(self) -> dict[str, float]:
        """Counts of both sides, and the shares of checks for which the task has something to check."""
        counts = self._counts + (self._user.counts if self._user else Counter())
        checks: Any = self._found.get("checks", {})
        shares = {f"tau_{name}": sum(map(bool, met)) / len(met) for name, met in checks.items() if met}
        return {"turns": float(self._turns), **{name: float(n) for name, n in counts.items()}, **shares}

    async def close(self) -> None:
        """Forget the state where it was not evaluated."""
        await self._state.close()

    def _stop_at_limit(self) -> None:
        self._end, self.stop_reason = "max_turns", "step_limit"

    def _make_user(self, before: Sequence[Message]) -> User:
        about, facts, config = self._setting.about, self._facts, self._config
        if config.user == "scripted":
            gold = [action for action in facts["gold"] if action["requestor"] == "user"]
            known = {"reason": facts["reason"], "details": facts["details"]}
            return ScriptedUser(known, about["user_tools"], gold, self._act, most_calls=config.user_calls)
        persona = Persona(
            prompt=self._setting.prompt,
            strategy=config.user_strategy,
            guidelines=about["guidelines"],
            scenario=facts["scenario"],
            tools=about["user_tools"],
            most_calls=config.user_calls,
            tools_in_prompt=self.tools_in_prompt,
        )
        return SimulatedUser(self.models["user"], persona, self._act, before)

    async def _act(self, name: str, arguments: JsonDict) -> str:
        """Execute a call of the user's."""
        record = await self._state.call("user", name, arguments)
        self._counts["user_call_errors"] += record.failed
        return record.text

    async def _execute(self, calls: Sequence[ToolCall]) -> Sequence[Message]:
        """The results of the agent's calls, in order; `done` ends the work on a ticket."""
        messages: list[Message] = []
        for call in calls:
            name, arguments = call.function.name, arguments_of(call)
            self._counts["tool_calls"] += 1
            if self._config.solo and name == DONE:
                self._end = "agent_stop"
                break
            if arguments is None:
                text, failed = "Error: the arguments are not a JSON object", True
            else:
                record = await self._state.call("assistant", name, arguments)
                text, failed = record.text, record.failed
            self._counts["tool_errors"] += failed
            messages.append(Message(role="tool", content=text, tool_call_id=call.id, name=name))
        if self._end is None and self._counts["tool_errors"] >= self._config.max_errors:
            self._end = "too_many_errors"
        return results_as_user(messages) if self.tools_in_prompt else messages

    async def _respond(self, reply: Message) -> Sequence[Message]:
        """The user's answer to a reply without a call."""
        text = (split_thinking(reply.text)[1] or "").strip()
        if self._config.solo or not text:
            self._end = "agent_error"
            return []
        self._said.append(text)
        self._talk.append(Message(role="assistant", content=text))
        return [user((await self._ask_user(text)).text)]

    async def _ask_user(self, text: str) -> Said:
        assert self._user is not None
        if isinstance(self._user, ScriptedUser):
            self._user.transferred = self._state.called(TRANSFER)
        said = await self._user.reply(text)
        if said.error is not None:
            self._end, self._fault = "user_error", said.error
            self._counts["user_errors"] += 1
            return said
        self._counts["user_messages"] += 1
        self._talk.append(user(said.text))
        if said.stop:
            self._end = "user_stop"
        return said

    async def _close_case(self) -> None:
        """Check state, calls and texts; ask the judge where the task needs one."""
        facts = self._facts
        found = await self._state.evaluate()
        facts_said: list[Any] = [communicated(fact, self._said) for fact in facts["communicate"]]
        checks: JsonDict = {
            "db": [found["db"]],
            "env_assertions": found["env_assertions"],
            "actions": found["actions"],
            "communicate": facts_said,
        }
        self._found = {"checks": checks, "basis": facts["basis"]}
        asserted = facts["nl_assertions"]
        if self._config.nl_assertions or "NL_ASSERTION" in facts["basis"]:
            checks["nl_assertions"] = await self._judged(self.models["judge"], asserted)
        met = {name: all(checks.get(part) or ()) for name, part in _BASIS.items()}  # type: ignore[arg-type]
        if self._found.get("judge") == "unreadable":
            met["NL_ASSERTION"] = False
        self._reward = reward_of(facts["basis"], met, done=self._end in _ENDS)

    async def _judged(self, model: RoleModel, asserted: Sequence[str]) -> list[Any]:
        """The judge's verdicts; none where its answer cannot be read, which is counted and costs no episode."""
        if not asserted:
            return []
        talk = judge.transcript(self._talk)
        found, unread = await judge.verdicts(model, self._setting.prompt, talk, asserted)
        if unread:
            self._counts["judge_unreadable"] += unread
        if found is None:
            self._found["judge"] = "unreadable"
        return list(found or ())
