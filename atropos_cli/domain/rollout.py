"""A rollout: one complete or failed play of a task."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, PrivateAttr

from atropos_cli.domain.base import Frozen, JsonDict
from atropos_cli.domain.finish import TRUNCATED, StopReason
from atropos_cli.domain.messages import Message
from atropos_cli.domain.tokendata import Logprobs, TokenIds
from atropos_cli.redaction import redacted

Stage = Literal["reset", "generate", "environment", "score", "timeout"]


class RolloutFailure(Frozen):
    """Where and why a rollout failed. A failed rollout has no reward: it is data, never a 0.0.

    place: FILE:LINE of the code that raised, where known; of this machine, so it is not written with the rollout.
    """

    stage: Stage
    type: str
    message: Annotated[str, AfterValidator(redacted)]
    _place: str | None = PrivateAttr(default=None)

    @property
    def place(self) -> str | None:
        return self._place

    def at(self, place: str | None) -> Self:
        """The same failure, with its place."""
        self._place = place
        return self


class Usage(Frozen):
    """What a rollout cost. Token counts are the server's own, None when it gave none.

    requests counts HTTP requests (or batch entries) begun for this rollout alone; a request that
    made all rollouts of a group is counted on the first of them. retries counts repeats among them.
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    requests: int = 0
    retries: int = 0


class Rollout(Frozen):
    """One rollout of a task.

    rewards: each reward's raw value by name. reward: their weighted sum, None when failed.
    metrics: values worth reporting that train nothing. info: what the episode reports at its end.
    role: whose side it is, in a game of several players.
    parse_failures: calls of tools that could not be read or do not fit their schemas, by kind; None for none.
    """

    id: str
    task_id: str
    role: str | None = None
    messages: tuple[Message, ...]
    rewards: dict[str, float] = Field(default_factory=dict)
    reward: float | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    info: JsonDict = Field(default_factory=dict)
    usage: Usage = Field(default_factory=Usage)
    parse_failures: dict[str, int] | None = None
    stop_reason: StopReason | None = None
    failure: RolloutFailure | None = None

    @property
    def truncated(self) -> bool:
        """True when the rollout was cut off rather than ended."""
        return self.stop_reason in TRUNCATED

    @property
    def completion(self) -> Message | None:
        """The last assistant message, or None."""
        for message in reversed(self.messages):
            if message.role == "assistant":
                return message
        return None

    @property
    def text(self) -> str:
        """The content of the last assistant message; empty when there is none."""
        message = self.completion
        return message.text if message is not None else ""


class TokenSequence(Frozen):
    """One training sequence of a rollout. All fields have the same length; logprobs is 0.0 where mask is False.

    whole: does it begin with its prompt? Where the first token is trained, the prompt's ids are missing, and
    what is trained would be predicted from nothing. versions: of the weights that sampled each token; None: not known.
    """

    ids: TokenIds
    mask: tuple[bool, ...]
    logprobs: Logprobs | None
    versions: tuple[int | None, ...] | None = None

    @property
    def whole(self) -> bool:
        return not (self.mask and self.mask[0])


def token_sequences(rollout: Rollout) -> tuple[TokenSequence, ...]:
    """Join the rollout's token spans into training sequences; empty when a message lacks its tokens.

    A span marked `restart` begins a new sequence. logprobs is None for a sequence in which any
    trained token lacks its value.
    """
    sequences: list[TokenSequence] = []
    ids: list[int] = []
    mask: list[bool] = []
    logprobs: list[float] = []
    versions: list[int | None] = []
    known = True

    def flush() -> None:
        if ids and any(mask):
            sequences.append(
                TokenSequence(
                    ids=tuple(ids),
                    mask=tuple(mask),
                    logprobs=tuple(logprobs) if known else None,
                    versions=None if set(versions) <= {None} else tuple(versions),
                )
            )

    for message in rollout.messages:
        span = message.tokens
        if span is None:
            continue
        if span.restart:
            flush()
            ids, mask, logprobs, versions, known = [], [], [], [], True
        n = len(span.ids)
        trained = (span.mask,) * n if isinstance(span.mask, bool) else span.mask
        ids.extend(span.ids)
        mask.extend(trained)
        versions.extend([span.version] * n)
        if span.logprobs is not None:
            logprobs.extend(span.logprobs)
        else:
            logprobs.extend([0.0] * n)
            known = known and not any(trained)
    flush()
    return tuple(sequences)
