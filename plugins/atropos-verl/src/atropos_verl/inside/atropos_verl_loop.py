"""The agent loop of verl that plays our episodes: verl's servers and tokens, our engine's environments and rewards.

It is copied into the run beside `atropos_episodes`, and runs in verl's workers. verl's own builder merges the tokens:
sampled ids stay as they were sampled, and the tokens of the environment are masked. Where an environment rewrites
earlier messages, the next reply begins a sequence of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import Any
from uuid import uuid4

from atropos_episodes import TRIES, Engine, EngineLost, Episode, EpisodeFailed, Fatal, failed
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput


class Sequence:
    """One training sequence while it grows. ids: all tokens; mask and logprobs: of those behind the prompt."""

    def __init__(self, prompt: list[int], messages: list[dict[str, Any]]) -> None:
        self.ids = prompt
        self.mask: list[int] = []
        self.logprobs: list[float] | None = None
        self.messages = messages
        self.reply = ""
        self.extra: dict[str, Any] = {}

    def goes_on(self, messages: list[dict[str, Any]]) -> bool:
        """Do these messages begin with those that are known, and the reply to them as it was sampled?"""
        known = len(self.messages)
        return (
            len(messages) > known + 1
            and messages[:known] == self.messages
            and messages[known]["role"] == "assistant"
            and messages[known].get("content", "") == self.reply
        )


class AtroposAgentLoop(AgentLoopBase):  # type: ignore[misc]
    """folder: what `atropos train --trainer verl` has prepared."""

    def __init__(self, *args: Any, folder: str, tools: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.engine = Engine.of(folder)

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> Any:
        """See AgentLoopBase. Raises EpisodeFailed after some tries: verl leaves the group out then."""
        item, step = json.loads(row["atropos"]), int(row.get("global_steps") or 0)
        for attempt in range(TRIES):
            try:
                return await Play(self, sampling_params).run(item, step)
            except (EngineLost, EpisodeFailed):
                if attempt == TRIES - 1:
                    raise
        raise AssertionError("not reached")


class Play:
    """One episode."""

    def __init__(self, loop: AtroposAgentLoop, sampling: dict[str, Any]) -> None:
        self._loop = loop
        self._sampling = sampling
        self._request = uuid4().hex
        self._builder = loop.continuous_token_builder
        self._done: list[Sequence] = []
        self._now: Sequence | None = None
        self._model_s = 0.0
        ends = loop.tokenizer.eos_token_id
        self._ends = set(ends) if isinstance(ends, list) else {ends}

    async def run(self, item: dict[str, Any], step: int) -> Any:
        began = time.monotonic()
        # Where the process has to be started first, verl's loop goes on meanwhile.
        episode = await asyncio.to_thread(self._loop.engine.begin, item, step=step)
        try:
            said = await asyncio.wrap_future(episode.next)
            while "ask" in said:
                said = await self._answer(episode, said["ask"])
        except BaseException:
            episode.cancel()
            raise
        if "fatal" in said:
            raise Fatal(said["fatal"])
        if "failed" in said:
            raise EpisodeFailed(failed(said))
        return self._outputs(said["done"], time.monotonic() - began)

    async def _answer(self, episode: Episode, asked: dict[str, Any]) -> dict[str, Any]:
        config, tools = self._loop.rollout_config, asked["tools"]
        now = await self._ready(asked["messages"], tools)
        room = config.response_length - len(now.mask)
        if room < 1 or (not now.mask and len(now.ids) > config.prompt_length):
            return await asyncio.wrap_future(episode.reply(overflow=True))
        most = min(room, asked["sampling"].get("max_tokens") or room)
        began, prompt = time.monotonic(), list(now.ids)
        output = await self._loop.server_manager.generate(
            request_id=self._request, prompt_ids=prompt, sampling_params={**self._sampling, "max_tokens": most}
        )
        self._model_s += time.monotonic() - began
        ids, logprobs = list(output.token_ids), output.log_probs
        if not ids:
            raise EpisodeFailed("generate: the server gave no token")
        now.extra = {**output.extra_fields, **{k: v for k, v in now.extra.items() if k == "min_global_steps"}}
        if logprobs is not None and now.logprobs is None:
            now.logprobs = [0.0] * len(now.mask)
        self._merge(now, self._builder.merge_assistant_tokens(now.ids, ids), logprobs)
        now.messages = asked["messages"]
        now.reply = self._loop.tokenizer.decode(ids, skip_special_tokens=True)
        cut = len(ids) >= most and ids[-1] not in self._ends
        said = episode.reply(
            text=now.reply, ids=ids, logprobs=logprobs, prompt_ids=prompt, finish_reason="length" if cut else "stop"
        )
        return await asyncio.wrap_future(said)

    async def _ready(self, messages: list[dict[str, Any]], tools: Any) -> Sequence:
        """The sequence, with the tokens of the new messages."""
        now = self._now
        if now is not None:
            if now.goes_on(messages):
                known, merge = messages[: len(now.messages) + 1], self._builder.merge_context_tokens
                with contextlib.suppress(ValueError):  # messages that verl's builder cannot append
                    self._merge(now, await asyncio.to_thread(merge, known, messages, now.ids, tools=tools), None)
                    return now
            self._done.append(now)
        prompt = await asyncio.to_thread(self._builder.build_initial_tokens, messages, tools=tools)
        self._now = Sequence(list(prompt), messages)
        return self._now

    def _merge(self, now: Sequence, merged: Any, logprobs: list[float] | None) -> None:
        now.mask, now.logprobs = self._builder.align_response_metadata(
            merged, now.mask, now.logprobs, assistant_logprobs=logprobs
        )
        now.ids = list(merged.token_ids)

    def _outputs(self, done: dict[str, Any], seconds: float) -> Any:
        sequences = [one for one in (*self._done, self._now) if one is not None and any(one.mask)]
        if not sequences:
            raise EpisodeFailed("environment: none: the episode ended without a reply of the model")
        info = {"score": done["reward"], "truncated": float(done["truncated"])}
        spent = AgentLoopMetrics(generate_sequences=self._model_s, tool_calls=max(0.0, seconds - self._model_s))
        outputs = [self._output(one, done, info, spent) for one in sequences]
        return outputs if len(outputs) > 1 else outputs[0]

    def _output(self, one: Sequence, done: dict[str, Any], info: dict[str, float], spent: Any) -> Any:
        most = self._loop.rollout_config.response_length
        prompt, response = one.ids[: -len(one.mask)], one.ids[-len(one.mask) :]
        return AgentLoopOutput(
            prompt_ids=prompt,
            response_ids=response[:most],
            response_mask=one.mask[:most],
            response_logprobs=None if one.logprobs is None else one.logprobs[:most],
            reward_score=done["reward"],
            num_turns=done["turns"],
            metrics=spent,
            extra_fields={**one.extra, "turn_scores": [], "tool_rewards": [], "reward_extra_info": dict(info)},
        )
