"""The memories of one episode: what is found for an observation, and what is written down after a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from atropos_cli.sdk import GroupContext, user
from atropos_textworld import prompts
from atropos_textworld.agent.blocks import MAX_CHARACTERS, extract_memory
from atropos_textworld.agent.memory import Hit, MemoryStore, open_store, share_used
from atropos_textworld.agent.options import AgentOptions
from atropos_textworld.agent.reply import as_text

_SUMMARY_TOKENS = 120


class Notebook:
    """Made by `await Notebook.open(...)`; empty and silent when the agent has no memory."""

    def __init__(self, options: AgentOptions, store: MemoryStore | None, episode: str) -> None:
        self._options = options
        self._store = store
        self._episode = episode
        self._summaries = 0
        self._used: list[float] = []

    @classmethod
    async def open(cls, options: AgentOptions, episode: str) -> Notebook:
        """Raises ConfigError when a package is missing, DataError for a bad file."""
        store = await asyncio.to_thread(open_store, options.memory_options) if options.memory else None
        return cls(options, store, episode)

    def find(self, observation: str) -> Sequence[Hit]:
        """What fits an observation."""
        return self._store.search(observation) if self._store is not None else ()

    async def note(self, context: GroupContext, turn: int, memory: str | None, told: tuple[str, str, str]) -> None:
        """Write down a turn's memory; told: (before, command, after), for a summary where there is no memory."""
        if self._store is None:
            return
        if memory is None and self._options.memory_summary:
            memory = await self._summary(context, told)
        if memory is not None:
            self._store.add(memory, episode=self._episode, turn=turn)

    async def _summary(self, context: GroupContext, told: tuple[str, str, str]) -> str | None:
        """A memory made by the model, by the same rules as one that stands in a reply."""
        before, command, after = told
        text = prompts.SUMMARY.format(before=before, command=command, after=after)
        sampling = context.sampling.model_copy(update={"max_tokens": _SUMMARY_TOKENS})
        completion = (await context.generate([user(text)], sampling=sampling))[0]
        self._summaries += 1
        answer = as_text(completion.message).rpartition("</think>")[2].strip()
        block = extract_memory(f"<memory>{answer[:MAX_CHARACTERS]}</memory>")
        return block.memory

    def used(self, hits: Sequence[Hit], reply: str, observation: str) -> None:
        """Count how many of the memories that were shown the reply takes up."""
        if hits:
            self._used.append(share_used(hits, reply, observation))

    def stats(self) -> dict[str, float]:
        """Counts of the episode."""
        if self._store is None:
            return {}
        stats = self._store.stats()
        if self._used:
            stats["memory_used"] = sum(self._used) / len(self._used)
        if self._options.memory_summary:
            stats["memory_summaries"] = float(self._summaries)
        return stats

    async def close(self) -> None:
        """Keep what is to be kept."""
        if self._store is not None:
            await asyncio.to_thread(self._store.close)
