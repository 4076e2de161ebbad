"""The baselines as inference backends: `--backend textworld-oracle`, `textworld-admissible-random`, `textworld-random`.

With `token_ids` each reply carries token ids and log-probabilities by the rule of the core's scripted backend (one id
per byte, then 256), so that scoring and training on tokens can be rehearsed.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import ClassVar

from atropos_cli.sdk import Config, Field, Message, TokenSpan
from atropos_cli.sdk.backends import (
    Capabilities,
    Completion,
    FatalBackendError,
    GenerateRequest,
    Generation,
    InferenceBackend,
    RequestRejected,
)
from atropos_textworld.policies.choices import random_command, reply
from atropos_textworld.policies.table import TABLE, State, conversation_key

END = 256
_ROLES = {"system": 257, "developer": 258, "user": 259, "assistant": 260, "tool": 261}


class PolicyConfig(Config):
    """Options of all baselines."""

    token_ids: bool = Field(default=False, description="Give each reply token ids (its bytes) and made-up logprobs.")


class PolicyBackend(InferenceBackend):
    """Chooses one command for each reply asked for. The same request gives the same replies, in any order."""

    Config: ClassVar[type[PolicyConfig]] = PolicyConfig
    needs_state: ClassVar[bool] = True

    def __init__(self, config: PolicyConfig | None = None, *, model: str | None = None) -> None:
        super().__init__(config or PolicyConfig(), model=model or self.name)
        tokens = self.config.token_ids
        self.capabilities = Capabilities(
            logprobs=tokens, token_ids=tokens, prompt_logprobs=tokens, tools=True, n=True, choices=self.needs_state
        )
        self._open = False

    async def open(self, *, workers: int = 1, request_timeout: float = 600.0) -> None:
        """Ask the episodes to publish what they know."""
        if not self._open:
            TABLE.open()
            self._open = True

    async def close(self) -> None:
        """Episodes publish no more."""
        if self._open:
            TABLE.close()
            self._open = False

    async def generate(self, request: GenerateRequest) -> Generation:
        """n replies. Raises RequestRejected for a conversation that no game belongs to."""
        if request.logprobs == "require" and not self.config.token_ids:
            raise FatalBackendError(
                f"logprobs are required, but the backend {self.name} gives none", hint="--backend.token-ids"
            )
        state = TABLE.find(request.messages) if self.needs_state else None
        if state is None and self.needs_state:
            self._unknown()
        key = conversation_key(request.messages)
        texts = []
        for number in range(request.n):
            seed = hashlib.blake2b(f"{request.seed}/{number}/".encode() + key, digest_size=16).digest()
            command, thought = self.choose(request.messages, state, random.Random(seed))
            texts.append(command if request.choices else reply(request.messages, command, thought))
        prompt = _prompt_ids(request.messages) if self.config.token_ids and request.logprobs != "off" else None
        return Generation(
            completions=tuple(_completion(text, tokens=prompt is not None) for text in texts),
            prompt_ids=prompt,
            prompt_tokens=len(prompt) if prompt is not None else None,
        )

    def choose(self, messages: Sequence[Message], state: State | None, rng: random.Random) -> tuple[str, str]:
        """A command, and the thought that leads to it."""
        raise FatalBackendError(f"backend {self.name!r} chooses nothing")

    def _unknown(self) -> None:
        if not len(TABLE):
            raise FatalBackendError(
                f"the backend {self.name} plays the games of the environment textworld and knows nothing else",
                hint=f"atropos gen textworld --backend {self.name}",
            )
        raise RequestRejected(f"the backend {self.name} knows no game with this conversation")

    async def score(self, prefix_ids: Sequence[int], continuation_ids: Sequence[int]) -> Sequence[float]:
        """The made-up logprobs that the ids would have had as a reply."""
        if not self.config.token_ids:
            raise FatalBackendError(
                f"the backend {self.name} scores tokens only with token_ids", hint="--backend.token-ids"
            )
        return _logprobs(continuation_ids)

    async def tokenize(self, text: str) -> Sequence[int]:
        """The bytes of the text."""
        return tuple(text.encode("utf-8"))


class OracleBackend(PolicyBackend):
    """Plays the plan that the game was made with, and so wins."""

    name: ClassVar[str] = "textworld-oracle"

    def choose(self, messages: Sequence[Message], state: State | None, rng: random.Random) -> tuple[str, str]:
        """The plan's next command. Raises RequestRejected for a game that has left its plan."""
        if state is None or not state.plan:
            raise RequestRejected(f"the game has left its plan, so {self.name} does not know how to go on")
        return state.plan[0], f"The plan has {len(state.plan)} commands left; the next one is {state.plan[0]}."


class AdmissibleRandomBackend(PolicyBackend):
    """Any admissible command, all equally likely."""

    name: ClassVar[str] = "textworld-admissible-random"

    def choose(self, messages: Sequence[Message], state: State | None, rng: random.Random) -> tuple[str, str]:
        """One of the admissible commands; "look" where a game has none."""
        commands = state.commands if state is not None else ()
        return rng.choice(commands or ("look",)), f"Any of {len(commands)} commands is possible here."


class RandomBackend(PolicyBackend):
    """Any verb with any words of the observation. Knows what a model knows."""

    name: ClassVar[str] = "textworld-random"
    needs_state: ClassVar[bool] = False

    def choose(self, messages: Sequence[Message], state: State | None, rng: random.Random) -> tuple[str, str]:
        """A form of the system message, filled in."""
        return random_command(messages, rng), "Any words may do."


def _completion(text: str, *, tokens: bool) -> Completion:
    ids = (*text.encode("utf-8"), END)
    span = TokenSpan(ids=ids, mask=True, logprobs=_logprobs(ids)) if tokens else None
    message = Message(role="assistant", content=text, finish_reason="stop", tokens=span)
    return Completion(message=message, finish_reason="stop", completion_tokens=len(ids) if tokens else None)


def _prompt_ids(messages: Sequence[Message]) -> tuple[int, ...]:
    ids: list[int] = []
    for message in messages:
        ids += [_ROLES.get(message.role, _ROLES["user"]), *message.text.encode("utf-8"), END]
    return (*ids, _ROLES["assistant"])


def _logprobs(ids: Sequence[int]) -> tuple[float, ...]:
    return tuple(-((token * 37) % 101 + 1) / 100 for token in ids)
