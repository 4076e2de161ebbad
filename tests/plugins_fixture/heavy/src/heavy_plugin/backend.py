"""The component that needs the large library, at import time on purpose."""

import torch

from atropos_cli.sdk import assistant
from atropos_cli.sdk.backends import Completion, GenerateRequest, Generation, InferenceBackend


class HeavyBackend(InferenceBackend):
    """Replies with a number that torch adds up."""

    name = "heavy"

    async def generate(self, request: GenerateRequest) -> Generation:
        text = str(int(torch.ones(2).sum()))
        return Generation(completions=(Completion(message=assistant(text), finish_reason="stop"),) * request.n)
