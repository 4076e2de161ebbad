"""An environment as atroposlib's users write them; it runs with the package from PyPI and with the stand-in."""

# ruff: noqa: ASYNC222, ASYNC230, ASYNC240, ASYNC251 - it is to hang and to end

import asyncio
import os
import random
import sys
import time
from typing import Literal

from atroposlib.envs.base import APIServerConfig, BaseEnv, BaseEnvConfig, ScoredDataGroup
from atroposlib.utils.tokenize_for_trainer import tokenize_for_trainer
from pydantic import Field


class QuestionsConfig(BaseEnvConfig):
    way: Literal["chat", "turns", "managed", "completion", "edited", "several", "none", "number", "ragged"] = Field(
        default="chat", description="How groups are made."
    )
    raise_at: int = Field(default=-1, description="Item that raises.")
    cancel_at: int = Field(default=-1, description="Item that awaits a task which is cancelled.")
    fork: bool = Field(default=False, description="Each item forks a process that ends with 7.")
    hang_at: int = Field(default=-1, description="Item that hangs.")
    kill_at: int = Field(default=-1, description="Item that kills the process.")
    once: str = Field(default="", description="File that remembers the first kill.")
    items: int = Field(default=1000, description="How many items there are.")


class QuestionsEnv(BaseEnv):
    """Questions with numbers."""

    name = "questions"
    env_config_cls = QuestionsConfig

    @classmethod
    def config_init(cls):
        servers = [APIServerConfig(model_name="m", base_url="http://127.0.0.1:1/v1", api_key="x")]
        return QuestionsConfig(tokenizer_name="bytes", group_size=16), servers

    async def setup(self):
        self.drawn = -1

    async def get_next_item(self):
        self.drawn += 1
        if self.drawn >= self.config.items:
            return None
        return (self.drawn, (frozenset({"role": "user", "content": f"{random.randint(0, 10**9)}?"}.items()),))

    async def collect_trajectories(self, item):
        number, prompt = item
        print("not data", number)
        os.write(1, b"\x00\xff{]\n")
        if number == self.config.raise_at:
            raise ValueError("this item raises")
        if self.config.fork:
            child = os.fork()
            if not child:
                sys.exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        if number == self.config.cancel_at:
            waiting = asyncio.ensure_future(asyncio.sleep(60))
            asyncio.get_running_loop().call_soon(waiting.cancel)
            await waiting
        if number == self.config.hang_at:
            time.sleep(1000)
        if number == self.config.kill_at and not (self.config.once and os.path.exists(self.config.once)):
            if self.config.once:
                open(self.config.once, "w").close()
            os.kill(os.getpid(), 9)
        if self.config.way == "turns":
            return await super().collect_trajectories(item)
        if self.config.way in ("none", "number"):
            return (None if self.config.way == "none" else 7), []
        return await getattr(self, self.config.way)([dict(message) for message in prompt]), []

    async def collect_trajectory(self, item):
        messages = [dict(message) for message in item[1]]
        for _ in range(2):
            answer = await self.server.chat_completion(messages=messages, n=1, max_tokens=50, temperature=0.5)
            messages.append({"role": "assistant", "content": answer.choices[0].message.content.strip()})
            messages.append({"role": "user", "content": "more"})
        messages.pop()
        made = tokenize_for_trainer(self.tokenizer, messages, train_on_all_assistant_turns=True)
        return {**made, "scores": float(len(messages)), "messages": messages}, []

    def group(self, prompt, texts):
        group = ScoredDataGroup(tokens=[], masks=[], scores=[], messages=[], overrides=[])
        for number, text in enumerate(texts):
            messages = [*prompt, {"role": "assistant", "content": text}]
            made = tokenize_for_trainer(self.tokenizer, messages)
            group["tokens"].append(made["tokens"])
            group["masks"].append(made["masks"])
            group["scores"].append(float(number % 2))
            group["messages"].append(messages)
            group["overrides"].append({"set_advantage_to_zero": number == 0})
        return group

    async def chat(self, prompt):
        answer = await self.server.chat_completion(messages=prompt, n=self.config.group_size, presence_penalty=1.0)
        return self.group(prompt, [choice.message.content for choice in answer.choices])

    async def edited(self, prompt):
        answer = await self.server.chat_completion(messages=prompt, n=self.config.group_size)
        return self.group(prompt, [choice.message.content + " (edited)" for choice in answer.choices])

    async def ragged(self, prompt):
        group = await self.chat(prompt)
        group["scores"].append(1.0)
        return group

    async def several(self, prompt):
        return [await self.chat(prompt), None, await self.chat(prompt)]

    async def completion(self, prompt):
        text = self.tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
        answer = await self.server.completion(prompt=text, n=self.config.group_size, max_tokens=9)
        return self.group(prompt, [choice.text for choice in answer.choices])

    async def managed(self, prompt):
        async with self.server.managed_server(tokenizer=self.tokenizer) as managed:
            await managed.chat_completion(messages=prompt, n=self.config.group_size, max_tokens=50)
            nodes = managed.get_state()["nodes"]
        group = ScoredDataGroup(tokens=[], masks=[], scores=[], inference_logprobs=[])
        for number, node in enumerate(nodes):
            group["tokens"].append(node.tokens)
            group["masks"].append(node.masked_tokens)
            group["inference_logprobs"].append(node.logprobs)
            group["scores"].append(number)
        return group

    async def evaluate(self, *args, **kwargs):
        asked = [{"role": "user", "content": "held out"}]
        answer = await self.server.chat_completion(messages=asked, n=2, temperature=0.0, split="eval")
        texts = [choice.message.content for choice in answer.choices]
        samples = [{"messages": [*asked, {"role": "assistant", "content": t}], "score": t == "yes"} for t in texts]
        await self.evaluate_log({"eval/percent_correct": 0.5, "eval/name": "x"}, samples=samples)


if __name__ == "__main__":
    QuestionsEnv.cli()
