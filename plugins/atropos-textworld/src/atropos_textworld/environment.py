"""The `textworld` environment."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection

from atropos_cli.sdk import ConfigError, Environment, Episode, GroupContext, ScoredGroup, Task, TaskStream
from atropos_textworld import rewards
from atropos_textworld.agent.judge import Judge
from atropos_textworld.agent.loop import TurnLoop
from atropos_textworld.agent.memory import open_store
from atropos_textworld.config import TextWorldConfig
from atropos_textworld.drawing import draw
from atropos_textworld.engine.cache import GameRecord
from atropos_textworld.engine.fleet import Session
from atropos_textworld.engine.runtime import Runtime
from atropos_textworld.episode import GameEpisode
from atropos_textworld.games.spec import SPLITS, GameSpec
from atropos_textworld.prompts import PROMPT

FEWEST_AHEAD = 2
"""Games built before they are asked for, at least."""
REMEMBERED = 4096


class TextWorldEnvironment(Environment):
    """Endless text games, built in the background some tasks ahead of those being played."""

    name = "textworld"
    Config = TextWorldConfig
    rewards = (rewards.score, rewards.won, rewards.lost)
    splits = SPLITS
    prompt = PROMPT
    config: TextWorldConfig

    def __init__(self, config: TextWorldConfig) -> None:
        super().__init__(config)
        self._runtime: Runtime | None = None
        self._opening = asyncio.Lock()
        self._ahead = FEWEST_AHEAD
        self._places: OrderedDict[str, tuple[str, int]] = OrderedDict()
        self._built_to: dict[str, int] = {}
        self._judge = Judge(config)

    async def open(self, *, workers: int = 1, seed: int = 0) -> None:
        """Be ready to start processes, which the first game does. The games depend on `game_seed`, not on `seed`.

        Raises ConfigError when the agent's memory lacks a package, BackendError when the scorer cannot be reached.
        """
        if self.config.memory:
            # Loads the embeddings, and finds out now whether they can be loaded.
            (await asyncio.to_thread(open_store, self.config.memory_options)).close()
        await self._judge.open(workers)
        self._ahead = max(FEWEST_AHEAD, workers // 4)
        self._runtime = await Runtime.open(
            workers=workers,
            processes=self.config.processes,
            cache_bytes=self.config.cache_mb * 2**20,
            step_deadline=self.config.step_timeout,
        )

    async def close(self) -> None:
        """End the processes and remove their files."""
        await self._judge.close()
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            await runtime.close()

    def tasks(self, split: str) -> TaskStream:
        """An endless stream. Making a task does not make its game."""
        if split not in SPLITS:
            raise ConfigError(f"textworld has no split {split!r}", hint=f"--split {' | '.join(SPLITS)}")

        def make(index: int) -> Task:
            spec = draw(self.config, split, index)
            self._places[spec.id] = split, index
            while len(self._places) > REMEMBERED:
                self._places.popitem(last=False)
            return Task(id=spec.id, info={"task_name": spec.kind, **spec.as_json()})

        return TaskStream(make)

    def episode(self, task: Task) -> Episode:
        """A fresh game. The games of the tasks that follow are built meanwhile."""
        self._build_ahead(task)
        return GameEpisode(task, self.config, self._play, self.prompt)

    def roll_group(self, task: Task, context: GroupContext) -> AsyncIterator[ScoredGroup]:
        """Independent games, or one game with a group for each turn."""
        if self.config.group_by == "episode":
            return context.roll_independent(self, task)
        self._build_ahead(task)
        loop = TurnLoop(task, self.config, self._play, context, self._judge)
        loop.prompt = self.prompt
        return loop.groups()

    @classmethod
    def varied_groups(cls, config: TextWorldConfig, others: Collection[str]) -> str | None:
        """By turn there are as many groups as the game has turns."""
        return None if config.group_by == "episode" else "each turn of a game makes a group (group_by turn)"

    def requests_at_once(self, group_size: int) -> int:
        """One game asks for all alternatives of a turn in one request."""
        return group_size if self.config.group_by == "episode" else 1

    def _build_ahead(self, task: Task) -> None:
        place = self._places.get(task.id)
        if place is not None and self._runtime is not None:
            split, index = place
            first = max(index + 1, self._built_to.get(split, 0))
            self._built_to[split] = max(first, index + 1 + self._ahead)
            self._runtime.prefetch(draw(self.config, split, i) for i in range(first, self._built_to[split]))

    async def _play(self, spec: GameSpec) -> tuple[GameRecord, Session]:
        async with self._opening:
            if self._runtime is None:
                await self.open()
        assert self._runtime is not None
        return await self._runtime.play(spec)

    async def validate(self, task: Task) -> bool:
        """Does the game's own plan win its compiled file, with full score?"""
        record, session = await self._play(GameSpec.from_json(task.info))
        try:
            for command in record.plan:
                await session.step(command)
            return session.last.won and session.last.score == record.max_score
        finally:
            await session.close()
