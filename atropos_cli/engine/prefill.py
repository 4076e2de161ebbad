"""Replies that begin with a text, or are one of several texts, of the environment's choice: who can give such."""

from __future__ import annotations

from atropos_cli.domain.messages import Message
from atropos_cli.engine.dispatch import Abort
from atropos_cli.errors import FatalBackendError
from atropos_cli.ports.backend import Generation, InferenceBackend


def check_prefill(backend: InferenceBackend) -> None:
    """End the run where the backend cannot continue a reply: it would answer something else."""
    if not backend.capabilities.prefill:
        raise Abort(
            FatalBackendError(
                f"backend {backend.name!r} cannot continue a reply that has begun",
                hint="leave out --prefill, or use a backend that can: openai, local",
            )
        )


def check_choices(backend: InferenceBackend) -> None:
    """End the run where the backend cannot be held to given replies: it would say anything."""
    if not backend.capabilities.choices:
        raise Abort(
            FatalBackendError(
                f"backend {backend.name!r} cannot choose among given replies",
                hint="leave out the option that asks for it (--pick-from-admissible), or use a backend that can: "
                "openai, local",
            )
        )


def whole(generation: Generation, prefill: str) -> Generation:
    """The generation with the prefill before each reply's text.

    The tokens of a reply stay those that were sampled: the prefill's are part of the prompt and not trained on.
    """

    def joined(message: Message) -> Message:
        return message.model_copy(update={"content": prefill + message.text})

    completions = tuple(
        completion.model_copy(update={"message": joined(completion.message)}) for completion in generation.completions
    )
    return generation.model_copy(update={"completions": completions})
