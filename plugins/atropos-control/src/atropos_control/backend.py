"""The backend `policy`: what plans name where a policy plays by itself. It answers no request of a language model."""

from __future__ import annotations

from typing import ClassVar

from atropos_cli.sdk.backends import Capabilities, FatalBackendError, GenerateRequest, Generation, InferenceBackend


class PolicyBackend(InferenceBackend):
    """See the module."""

    name: ClassVar[str] = "policy"
    capabilities = Capabilities(logprobs=False, token_ids=False, tools=False, n=False)

    async def generate(self, request: GenerateRequest) -> Generation:
        raise FatalBackendError(
            "a policy chooses actions and writes no replies",
            hint="atropos eval gymnasium:ID --policy RUN/model; for a language model: --model NAME",
        )
