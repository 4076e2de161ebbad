"""What every inference backend must do, as tests. Subclass BackendContract and define `make`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, TypeVar

from atropos_cli.sdk import Message, user
from atropos_cli.sdk.authoring import check_component
from atropos_cli.sdk.backends import BackendError, GenerateRequest, Generation, InferenceBackend, Sampling

T = TypeVar("T")


class BackendContract:
    """Define `make`; it may skip the tests when the server or the model is not there.

    messages: what to ask. secret: a secret that the backend was given, which must not be reported.
    obeys_max_tokens: False for a backend whose replies are not cut (scripted ones).
    """

    messages: ClassVar[tuple[Message, ...]] = (user("Say hello."),)
    max_tokens: ClassVar[int] = 8
    secret: ClassVar[str | None] = None
    obeys_max_tokens: ClassVar[bool] = True

    def make(self) -> InferenceBackend:
        """A backend that is not open yet."""
        raise AssertionError("define make(self) -> InferenceBackend")

    def test_the_class_is_complete(self) -> None:
        cls = type(self.make())
        check_component("backend", cls.name, cls, origin="the tests")

    def test_opening_tells_the_models_name(self) -> None:
        async def check(backend: InferenceBackend) -> None:
            assert backend.model, "after open(), `model` is the served model's name"

        self._opened(check)

    def test_a_reply_is_well_formed(self) -> None:
        async def check(backend: InferenceBackend) -> None:
            self._check(await backend.generate(self._request()), 1)

        self._opened(check)

    def test_several_samples_of_one_prompt(self) -> None:
        """Fewer than n are allowed only for a backend that says so: capabilities.n is False."""

        async def check(backend: InferenceBackend) -> None:
            generation = await backend.generate(self._request(n=3))
            self._check(generation, 3)
            if len(generation.completions) < 3:
                assert backend.capabilities.n is False

        self._opened(check)

    def test_requests_at_the_same_time(self) -> None:
        async def check(backend: InferenceBackend) -> None:
            for generation in await asyncio.gather(*(backend.generate(self._request(seed=seed)) for seed in range(4))):
                self._check(generation, 1)

        self._opened(check)

    def test_required_logprobs_are_given_or_refused(self) -> None:
        async def check(backend: InferenceBackend) -> None:
            try:
                generation = await backend.generate(self._request(logprobs="require"))
            except BackendError:
                assert backend.capabilities.logprobs is not True, "it says that it can"
                return
            for completion in generation.completions:
                tokens = completion.message.tokens
                assert tokens is not None, "logprobs were required, none came, and nothing was said"
                assert tokens.logprobs is not None, "logprobs were required, none came, and nothing was said"

        self._opened(check)

    def test_given_tokens_are_scored_or_refused(self) -> None:
        async def check(backend: InferenceBackend) -> None:
            generation = await backend.generate(self._request())
            tokens = generation.completions[0].message.tokens
            prefix = generation.prompt_ids or (1,)
            continuation = tokens.ids if tokens is not None else (2,)
            try:
                scores = await backend.score(prefix, continuation)
            except BackendError:
                assert backend.capabilities.prompt_logprobs is not True, "it says that it can"
                return
            assert len(scores) == len(continuation)
            assert all(score <= 1e-6 for score in scores), f"a log-probability is not above 0: {scores}"

        self._opened(check)

    def test_probing_never_raises(self) -> None:
        async def check() -> None:
            backend = self.make()
            assert isinstance(await backend.probe(), bool)
            await backend.open(workers=2, request_timeout=60.0)
            try:
                assert await backend.probe() is True
            finally:
                await backend.close()

        asyncio.run(check())

    def test_the_description_is_json_without_secrets(self) -> None:
        async def check(backend: InferenceBackend) -> None:
            await backend.generate(self._request())
            text = json.dumps(backend.describe(), allow_nan=False)
            assert not (self.secret and self.secret in text), "the description holds the secret"

        self._opened(check)

    def _request(self, **changes: Any) -> GenerateRequest:
        fields = {"messages": self.messages, "sampling": Sampling(max_tokens=self.max_tokens), "seed": 0, **changes}
        return GenerateRequest(**fields)

    def _opened(self, use: Callable[[InferenceBackend], Awaitable[T]]) -> T:
        async def run() -> T:
            backend = self.make()
            await backend.open(workers=4, request_timeout=60.0)
            try:
                return await use(backend)
            finally:
                await backend.close()

        return asyncio.run(run())

    def _check(self, generation: Generation, most: int) -> None:
        assert 1 <= len(generation.completions) <= most, f"{len(generation.completions)} completions, {most} asked for"
        assert generation.prompt_tokens is None or generation.prompt_tokens > 0
        for completion in generation.completions:
            message = completion.message
            assert message.role == "assistant"
            assert message.content is not None or message.tool_calls, "a reply without content and tool calls"
            count = completion.completion_tokens
            if count is not None and self.obeys_max_tokens:
                assert count <= self.max_tokens, f"{count} tokens, at most {self.max_tokens} were asked for"
            tokens = message.tokens
            if tokens is None:
                continue
            assert generation.prompt_ids, "ids of the reply are of no use without those of the prompt"
            assert tokens.mask is True or (isinstance(tokens.mask, tuple) and any(tokens.mask)), (
                "the sampled tokens are what is trained on: mask must be True"
            )
            assert count is None or count == len(tokens.ids), f"{count} tokens counted, {len(tokens.ids)} ids"
            for logprob in tokens.logprobs or ():
                assert logprob <= 1e-6, f"a log-probability is not above 0: {logprob}"
