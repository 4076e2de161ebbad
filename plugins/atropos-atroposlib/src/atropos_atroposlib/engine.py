"""In the place of atroposlib's model servers: requests go to the engine, whose token ids and logprobs come back.

Loaded by `worker` under the environment's own Python.
"""

from __future__ import annotations

import contextvars
import time
import uuid
from contextlib import asynccontextmanager
from typing import Any, ClassVar

CALL: contextvars.ContextVar[Any] = contextvars.ContextVar("call")
REMEMBERED = 512


class State:
    """Of this process. vocabulary: do the environment's tokenizer and the model have the same? None: not known yet."""

    env: Any = None
    bytes_only = False
    vocabulary: bool | None = None
    prompts: ClassVar[dict[str, list[Any]]] = {}


class Replies:
    """What the engine answered during one request."""

    def __init__(self) -> None:
        self.made: list[tuple[list[Any], dict[str, Any]]] = []

    def sampled(self) -> set[tuple[int, ...]]:
        return {tuple(choice["ids"]) for _, choice in self.made if "ids" in choice}


async def no_wait(self: Any, is_training: bool) -> None:
    """The engine decides how many requests are in flight."""


def engine_server() -> Any:
    """The class of servers whose requests go to the engine: no retries, health checks or limits of their own."""
    from atroposlib.envs.server_handling.server_baseline import APIServer

    class EngineServer(APIServer):  # type: ignore[misc]
        async def check_server_status_task(self, chat_completion: bool = True) -> None:
            self.server_healthy = True

        async def chat_completion(self, **kwargs: Any) -> Any:
            return chat_answer(await asked(kwargs))

        async def completion(self, **kwargs: Any) -> Any:
            return text_answer(await asked(as_chat(kwargs)))

        async def tokens_and_logprobs_completion(self, **kwargs: Any) -> Any:
            choices = await asked(as_chat(kwargs))
            if any("ids" not in choice or choice["logprobs"] is None for choice in choices):
                raise RuntimeError("the backend gives no token ids and logprobs, which the environment asks for")
            ids, logprobs = [c["ids"] for c in choices], [c["logprobs"] for c in choices]
            return choices[0]["prompt_ids"], ids, logprobs, [c["finish_reason"] for c in choices]

        async def get_logprobs(self, **kwargs: Any) -> Any:
            ids = kwargs.get("input_ids") or State.env.tokenizer.encode(kwargs.get("prompt", ""))
            values = await CALL.get()[0].ask(kind="logprobs", ids=ids)
            return {
                "prompt_tokens": ids,
                "prompt_topk_token_ids": [[token] for token in ids],
                "prompt_topk_logprobs": [[value] for value in values],
            }

        _chat_completion_wrapper = _completion_wrapper = _tokens_and_logprobs_completion_wrapper = chat_completion

    return EngineServer


async def asked(kwargs: dict[str, Any]) -> list[dict[str, Any]]:
    """The choices that the engine gives for a chat request."""
    if (found := CALL.get(None)) is None:
        raise RuntimeError("the environment asks the model outside a group, in setup() for example: the engine cannot")
    call, replies = found
    messages = [plain_message(item) for item in kwargs.get("messages") or ()]
    answer = await call.ask(**{**kwargs, "kind": "chat", "messages": messages})
    choices: list[dict[str, Any]] = answer["choices"]
    prefill = kwargs.get("prefill") or ""
    for choice in choices:
        replies.made.append((messages, choice))
        if State.vocabulary is None and "ids" in choice and choice["content"] and not prefill:
            read = State.env.tokenizer.decode(choice["ids"], skip_special_tokens=True)
            State.vocabulary = read.strip() == choice["content"].strip()
    return [{**choice, "content": choice["content"].removeprefix(prefill)} for choice in choices]


def as_chat(kwargs: dict[str, Any]) -> dict[str, Any]:
    """A request with a text as one with messages, where the text is what the chat template made of them.

    The rest of the text, such as a tag that opens thinking, begins the reply.
    """
    text = kwargs.get("prompt", "")
    known = max((made for made in State.prompts if text.startswith(made)), key=len, default=None)
    if known is None:
        raise RuntimeError("completion() of a text that is not a templated conversation: only chats go to the engine")
    left = {key: value for key, value in kwargs.items() if key not in ("prompt", "input_ids")}
    return {**left, "messages": State.prompts[known], "prefill": text[len(known) :]}


def remember_templates(env: Any) -> None:
    """Keep which conversation each templated prompt was made of."""
    tokenizer = env.tokenizer
    template = tokenizer.apply_chat_template

    def apply(conversation: Any, *given: Any, **options: Any) -> Any:
        made = template(conversation, *given, **options)
        if isinstance(made, str) and isinstance(conversation, (list, tuple)):
            if len(State.prompts) >= REMEMBERED:
                del State.prompts[next(iter(State.prompts))]
            State.prompts[made] = [plain_message(item) for item in conversation]
        return made

    tokenizer.apply_chat_template = apply


def chat_answer(choices: list[dict[str, Any]]) -> Any:
    """The choices as the openai package has them."""
    from openai.types.chat.chat_completion import ChatCompletion

    made = []
    for index, choice in enumerate(choices):
        message = {"role": "assistant", "content": choice["content"]}
        if choice.get("tool_calls"):
            message["tool_calls"] = [
                {**item, "id": item["id"] or f"call_{uuid.uuid4().hex[:8]}"} for item in choice["tool_calls"]
            ]
        if choice.get("reasoning") is not None:
            message["reasoning_content"] = choice["reasoning"]
        made.append({"index": index, "message": message, "finish_reason": choice["finish_reason"], "logprobs": None})
    return ChatCompletion.model_validate({**head("chat.completion"), "choices": made})


def text_answer(choices: list[dict[str, Any]]) -> Any:
    """The same for completion()."""
    from openai.types.completion import Completion

    made = [
        {"index": i, "text": choice["content"], "finish_reason": finish_of(choice), "logprobs": None}
        for i, choice in enumerate(choices)
    ]
    return Completion.model_validate({**head("text_completion"), "choices": made})


def finish_of(choice: dict[str, Any]) -> str:
    """completion() knows fewer reasons."""
    return choice["finish_reason"] if choice["finish_reason"] in ("stop", "length") else "stop"


def head(kind: str) -> dict[str, Any]:
    return {"id": uuid.uuid4().hex, "created": int(time.time()), "model": "engine", "object": kind}


class Managed:
    """In the place of atroposlib's ManagedServer: nodes are made of the engine's own ids, logprobs and masks."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._nodes: list[Any] = []

    async def chat_completion(self, **kwargs: Any) -> Any:
        choices = await asked(kwargs)
        self._track(kwargs.get("messages") or [], choices)
        return chat_answer(choices)

    async def completion(self, **kwargs: Any) -> Any:
        chat = as_chat(kwargs)
        choices = await asked(chat)
        self._track(chat["messages"], choices)
        return text_answer(choices)

    def get_state(self) -> dict[str, Any]:
        return {"nodes": list(self._nodes)}

    def reset(self) -> None:
        self._nodes.clear()

    def _track(self, messages: list[Any], choices: list[dict[str, Any]]) -> None:
        from atroposlib.envs.server_handling.managed_server import SequenceNode

        before = list(self._nodes)
        for choice in choices:
            prompt, ids, logprobs = self._tokens(messages, choice)
            node = SequenceNode(
                full_text=str(self._tokenizer.decode(prompt + ids)),
                tokens=prompt + ids,
                masked_tokens=[-100] * len(prompt) + ids,
                logprobs=[1.0] * len(prompt) + logprobs,
                metadata={"finish_reason": choice["finish_reason"]},
            )
            earlier = next((n for n in before if prompt[: len(n.tokens)] == n.tokens), None)
            if earlier is not None and len(choices) == 1:
                size = len(earlier.tokens)
                node.masked_tokens[:size] = earlier.masked_tokens
                node.logprobs[:size] = earlier.logprobs
                self._nodes[self._nodes.index(earlier)] = node
            else:
                self._nodes.append(node)

    def _tokens(self, messages: list[Any], choice: dict[str, Any]) -> tuple[list[int], list[int], list[float]]:
        """The engine's, or the environment's tokenizer's where the backend gives no ids: without logprobs (1.0)."""
        if "ids" in choice:
            return choice["prompt_ids"], choice["ids"], choice["logprobs"] or [1.0] * len(choice["ids"])
        made = [plain_message(item) for item in messages]
        prompt = self._tokenizer.apply_chat_template(made, add_generation_prompt=True, tokenize=True)
        reply = [{"role": "assistant", "content": choice["content"]}]
        whole = self._tokenizer.apply_chat_template(made + reply, tokenize=True)
        return list(prompt), list(whole[len(prompt) :]), [1.0] * (len(whole) - len(prompt))


@asynccontextmanager
async def managed_server(self: Any, tokenizer: Any = None, *given: Any, **options: Any) -> Any:
    """ServerManager.managed_server for us."""
    yield Managed(tokenizer or State.env.tokenizer)


class ByteTokenizer:
    """For environments that need a tokenizer only to fill their groups: a byte is a token, a chat is ChatML.

    Its ids are never kept.
    """

    bos_token = eos_token = pad_token = "<|im_end|>"  # noqa: S105 - a token of a text
    bos_token_id = eos_token_id = pad_token_id = 256
    chat_template = "chatml"
    all_special_ids = (256,)
    vocab_size = 257

    @classmethod
    def from_pretrained(cls, *given: Any, **options: Any) -> ByteTokenizer:
        return cls()

    def encode(self, text: str, **options: Any) -> list[int]:
        return list(text.encode())

    def tokenize(self, text: str, **options: Any) -> list[int]:
        return self.encode(text)

    def decode(self, ids: Any, **options: Any) -> str:
        return bytes(token for token in ids if token < 256).decode(errors="replace")

    def __call__(self, text: str, **options: Any) -> dict[str, list[int]]:
        ids = self.encode(text)
        return {"input_ids": ids, "attention_mask": [1] * len(ids)}

    def apply_chat_template(
        self, chat: Any, tokenize: bool = True, add_generation_prompt: bool = False, **options: Any
    ) -> Any:
        text = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in map(plain_message, chat))
        text += "<|im_start|>assistant\n" if add_generation_prompt else ""
        return self.encode(text) if tokenize else text


def is_message(item: Any) -> bool:
    return isinstance(item, (dict, frozenset)) and "role" in dict(item)


def plain_message(item: Any) -> dict[str, Any]:
    """A message as a dict: atroposlib's own habit is a frozenset of pairs."""
    made = dict(item) if not hasattr(item, "model_dump") else item.model_dump(exclude_none=True)
    return {key: value for key, value in made.items() if key != "reward"}
