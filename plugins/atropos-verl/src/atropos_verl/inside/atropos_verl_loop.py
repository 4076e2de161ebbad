"""The agent loop of verl that plays our episodes: verl's servers and tokens, our engine's environments and rewards.

It is copied into the run beside `atropos_episodes`, and runs in verl's workers. verl's own builder merges the tokens:
sampled ids stay as they were sampled, and the tokens of the environment are masked. Where an environment rewrites
earlier messages, the next reply begins a sequence of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any
from uuid import uuid4

from atropos_episodes import Engine, Play, Sequence, tried
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput


class VerlSequence(Sequence):  # type: ignore[misc]
    """messages: those of the last request; reply: what followed it. extra: what verl's server says of its tokens."""

    def __init__(self, prompt: list[int], messages: list[dict[str, Any]]) -> None:
        super().__init__(prompt)
        self.messages = messages
        self.reply = ""
        self.extra: dict[str, Any] = {}

    def extended_by(self, messages: list[dict[str, Any]]) -> bool:
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
        return await tried(lambda: VerlPlay(self, sampling_params).outputs(item, step))


class VerlPlay(Play):  # type: ignore[misc]
    """One episode."""

    def __init__(self, loop: AtroposAgentLoop, sampling: dict[str, Any]) -> None:
        config = loop.rollout_config
        super().__init__(loop.engine, config.prompt_length, config.response_length)
        self._loop = loop
        self._sampling = sampling
        self._request = uuid4().hex
        self._builder = loop.continuous_token_builder
        self._extra: dict[str, Any] = {}
        ends = loop.tokenizer.eos_token_id
        self._ends = set(ends) if isinstance(ends, list) else {ends}

    async def outputs(self, item: dict[str, Any], step: int) -> Any:
        """The episode as verl's agent loops give it."""
        done = await self.run(item, step)
        info = {"score": done["reward"], "truncated": float(done["truncated"])}
        tools = max(0.0, self.seconds - self.model_seconds)
        spent = AgentLoopMetrics(generate_sequences=self.model_seconds, tool_calls=tools)
        outputs = [self._output(one, done, info, spent) for one in self.sequences]
        return outputs if len(outputs) > 1 else outputs[0]

    async def ready(self, messages: list[dict[str, Any]], tools: Any) -> VerlSequence:
        """See Play: the tokens of new messages are made by verl's builder."""
        now: VerlSequence | None = self._now
        if now is not None and now.extended_by(messages):
            known, merge = messages[: len(now.messages) + 1], self._builder.merge_context_tokens
            with contextlib.suppress(ValueError):  # messages that verl's builder cannot append
                self._merge(now, await asyncio.to_thread(merge, known, messages, now.ids, tools=tools), None)
                return now
        prompt = await asyncio.to_thread(self._builder.build_initial_tokens, messages, tools=tools)
        made: VerlSequence = self._begin(VerlSequence(list(prompt), messages))
        return made

    async def sample(self, prompt: list[int], most: int) -> tuple[list[int], list[float] | None]:
        """By verl's servers."""
        output = await self._loop.server_manager.generate(
            request_id=self._request, prompt_ids=prompt, sampling_params={**self._sampling, "max_tokens": most}
        )
        self._extra = output.extra_fields
        return list(output.token_ids), output.log_probs

    def took(
        self, now: VerlSequence, messages: list[dict[str, Any]], ids: list[int], logprobs: list[float] | None
    ) -> str:
        """See Play."""
        now.extra = {**self._extra, **{k: v for k, v in now.extra.items() if k == "min_global_steps"}}
        if logprobs is not None and now.logprobs is None:
            now.logprobs = [0.0] * len(now.mask)
        self._merge(now, self._builder.merge_assistant_tokens(now.ids, ids), logprobs)
        now.messages = messages
        now.reply = self._loop.tokenizer.decode(ids, skip_special_tokens=True)
        return now.reply

    def ended(self, ids: list[int]) -> bool:
        """See Play."""
        return ids[-1] in self._ends

    def _merge(self, now: VerlSequence, merged: Any, logprobs: list[float] | None) -> None:
        now.mask, now.logprobs = self._builder.align_response_metadata(
            merged, now.mask, now.logprobs, assistant_logprobs=logprobs
        )
        now.ids = list(merged.token_ids)

    def _output(self, one: VerlSequence, done: dict[str, Any], info: dict[str, float], spent: Any) -> Any:
        most = self._loop.rollout_config.response_length
        return AgentLoopOutput(
            prompt_ids=one.prompt,
            response_ids=one.response[:most],
            response_mask=one.mask[:most],
            response_logprobs=None if one.logprobs is None else one.logprobs[:most],
            reward_score=done["reward"],
            num_turns=done["turns"],
            metrics=spent,
            extra_fields={**one.extra, "turn_scores": [], "tool_rewards": [], "reward_extra_info": dict(info)},
        )
