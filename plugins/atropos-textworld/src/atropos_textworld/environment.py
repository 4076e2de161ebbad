"""The `textworld` environment."""

from __future__ import annotations

import asyncio

from atropos_cli.sdk import ConfigError, Environment, Episode, Task, TaskStream
from atropos_textworld import rewards
from atropos_textworld.config import TextWorldConfig
from atropos_textworld.drawing import draw
from atropos_textworld.engine.cache import GameRecord
from atropos_textworld.engine.fleet import Session
from atropos_textworld.engine.runtime import Runtime
from atropos_textworld.episode import GameEpisode
from atropos_textworld.games.spec import SPLITS, GameSpec

FEWEST_AHEAD = 8


class TextWorldEnvironment(Environment):
    """Endless text games. Games are built in the background, some tasks ahead of those asked for."""

    name = "textworld"
    Config = TextWorldConfig
    rewards = (rewards.score, rewards.won, rewards.lost)
    splits = SPLITS
    config: TextWorldConfig

    def __init__(self, config: TextWorldConfig) -> None:
        super().__init__(config)
        self._runtime: Runtime | None = None
        self._opening = asyncio.Lock()
        self._ahead = FEWEST_AHEAD

    async def open(self, *, workers: int = 1, seed: int = 0) -> None:
        """Start the processes. The games depend on `game_seed` alone, not on `seed`."""
        self._ahead = max(FEWEST_AHEAD, workers // 2)
        self._runtime = await Runtime.open(
            workers=workers,
            processes=self.config.processes,
            cache_bytes=self.config.cache_mb * 2**20,
            step_deadline=self.config.step_timeout,
        )

    async def close(self) -> None:
        """End the processes and remove their files."""
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            await runtime.close()

    def tasks(self, split: str) -> TaskStream:
        """An endless stream. Asking for a task also has its game and some later ones built."""
        if split not in SPLITS:
            raise ConfigError(f"textworld has no split {split!r}", hint=f"--split {' | '.join(SPLITS)}")
        asked = -1

        def make(index: int) -> Task:
            nonlocal asked
            if self._runtime is not None:
                ahead = range(max(asked + 1, index), index + self._ahead + 1)
                self._runtime.prefetch(draw(self.config, split, i) for i in ahead)
                asked = max(asked, index + self._ahead)
            spec = draw(self.config, split, index)
            return Task(id=spec.id, info=dict(spec.as_json()))

        return TaskStream(make)

    def episode(self, task: Task) -> Episode:
        """A fresh game."""
        return GameEpisode(task, self.config, self._play)

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
