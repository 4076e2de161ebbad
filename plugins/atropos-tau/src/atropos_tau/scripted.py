"""A user without a model: it states its case, uses its tools when asked, and leaves when it is done."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from atropos_tau.checks import STOP, TRANSFER
from atropos_tau.user import Execute, Said


@dataclass(slots=True)
class ScriptedUser:
    """Says in turn: its reason, its details, and that it is done. Between, it does what the agent names.

    A tool counts as named when its name is in the agent's message, with underscores or spaces: "please toggle roaming".
    Arguments are those of the ground truth. transferred: was it handed over to a human meanwhile?
    """

    facts: Mapping[str, str]
    tools: Sequence[Mapping[str, Any]]
    gold: Sequence[Mapping[str, Any]]
    execute: Execute
    transferred: bool = False
    most_calls: int = 10
    counts: Counter[str] = field(default_factory=Counter)
    _told: int = 0
    _used: Counter[str] = field(default_factory=Counter)

    async def reply(self, said: str) -> Said:
        """See User."""
        if self.transferred:
            return Said(TRANSFER, stop=True)
        if asked := self._named(said):
            return Said("\n".join([await self._do(name) for name in asked[: self.most_calls]]))
        self._told += 1
        if self._told == 1:
            return Said(self.facts["reason"])
        if self._told == 2 and self.facts["details"]:
            return Said(self.facts["details"])
        return Said(f"That is all, thank you. {STOP}", stop=True)

    def _named(self, said: str) -> list[str]:
        names = sorted((_name(tool) for tool in self.tools), key=len, reverse=True)
        if not names:
            return []
        either = "|".join(re.escape(name).replace("_", "[_ ]") for name in names)
        found = re.findall(rf"(?<![a-z0-9_])(?:{either})(?![a-z0-9_])", said.lower())
        return [name.replace(" ", "_") for name in found]

    async def _do(self, name: str) -> str:
        known = [action["arguments"] for action in self.gold if action["name"] == name]
        number = self._used[name]
        self._used[name] += 1
        arguments = known[min(number, len(known) - 1)] if known else {}
        if not known and _required(self.tools, name):
            return f"{name}: I do not know what to enter."
        self.counts["user_calls"] += 1
        return f"{name}: {await self.execute(name, arguments)}"


def _name(tool: Mapping[str, Any]) -> str:
    return str(tool["function"]["name"])


def _required(tools: Sequence[Mapping[str, Any]], name: str) -> bool:
    tool = next(tool["function"] for tool in tools if _name(tool) == name)
    return bool(tool.get("parameters", {}).get("required"))
