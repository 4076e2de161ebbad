"""What an episode asks of the next reply: tools, a text it begins with, texts it is one of; and who can give such."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import TypedDict

from atropos_cli.domain.base import JsonDict
from atropos_cli.domain.messages import Message
from atropos_cli.errors import FatalBackendError
from atropos_cli.ports.backend import GenerateRequest, Generation, InferenceBackend
from atropos_cli.ports.environment import Episode
from atropos_cli.rollout.stopping import Abort


class Wishes(TypedDict, total=False):
    """What an episode asks of the next reply, as `sample` takes it. seed: of this reply; else the next one in order."""

    prefill: str
    choices: Sequence[str]
    tools: Sequence[JsonDict] | None
    seed: int | None


def wishes(episode: Episode, seed: int | None = None) -> Wishes:
    """What it asks of the next reply."""
    asked: Wishes = {"prefill": episode.prefill, "choices": episode.choices}
    if episode.tools and not episode.tools_in_prompt:
        asked["tools"] = tuple(episode.tools)
    return asked if seed is None else {**asked, "seed": seed}


def turn_seed(seed: int, rollout: int, messages: int) -> int:
    """Of a rollout's later turn: the same in every run, whatever the order in which rollouts come to ask."""
    # Not random.Random: to seed one takes ten times as long, and this is done for every request.
    return int.from_bytes(blake2b(f"{seed}/{rollout}/{messages}".encode(), digest_size=4).digest(), "big") >> 1


def check_wishes(backend: InferenceBackend, request: GenerateRequest) -> None:
    """End the run where the backend cannot give a reply of this form: it would answer something else."""
    if request.tools and backend.capabilities.tools is False:
        raise Abort(
            FatalBackendError(
                f"backend {backend.name!r} cannot offer tools to the model",
                hint="--tools-in prompt, where the environment has this option, or use a backend that can: openai",
            )
        )
    if request.prefill and not backend.capabilities.prefill:
        raise Abort(
            FatalBackendError(
                f"backend {backend.name!r} cannot continue an unfinished reply",
                hint="leave out --prefill, or use a backend that can: openai, local",
            )
        )
    if request.choices and not backend.capabilities.choices:
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
