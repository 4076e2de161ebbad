"""VR-CLI in play: does a prediction help a frozen scorer to expect what really happened?

The scorer reads a transcript: earlier turns, what was seen, the command. Then, in one of two passes, the
prediction; then, in both, the outcome y. All parts are turned into tokens apart, so that the passes differ in
the prediction's tokens and in nothing else:

    base    transcript > command                          What happens: y
    cond    transcript > command  I expect: <prediction>  What happens: y

All predictions about one command are scored together with one base pass; equal passes are made once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from atropos_textworld.agent.options import AgentOptions
from atropos_textworld.agent.vrcli import VrcliScore, vrcli

BLANK = VrcliScore(None, 0.0, 0.0, "empty_prediction")
"""The score of a reply that predicts nothing, or whose command was not played."""

_OPENING = "A text adventure game.\n\n"
_CLOSING = "What happens:\n"


class Model(Protocol):
    """What scores: the run's own backend, or another one."""

    async def tokenize(self, text: str) -> Sequence[int]:
        """The ids of a text."""

    async def score_logprobs(self, prefix_ids: Sequence[int], continuation_ids: Sequence[int]) -> Sequence[float]:
        """Log-probabilities of the continuation."""


@dataclass(slots=True)
class Spent:
    """What scoring has cost."""

    requests: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """A command that was tried in a situation, and what the game said."""

    before: str
    command: str
    after: str


@dataclass(slots=True)
class Judged:
    """scores: by prediction. noise: improvement in percent that the base pass shows over itself, when asked for."""

    scores: dict[str, VrcliScore] = field(default_factory=dict)
    noise: float | None = None


class OutcomeScorer:
    """Scores predictions for one run. Raises what the model raises, and UnscorableError."""

    def __init__(self, options: AgentOptions) -> None:
        self._options = options
        self._constant: dict[str, Sequence[int]] = {}

    async def judge(
        self, model: Model, outcome: Outcome, predictions: Sequence[str], spent: Spent, *, repeat: bool = False
    ) -> Judged:
        """Score predictions of one outcome; a blank one stands for no prediction block at all.

        repeat: make the base pass twice, to see how much a pass differs from itself.
        """
        wanted = list(dict.fromkeys(predictions))
        transcript, after, opening, closing, *blocks = await asyncio.gather(
            model.tokenize(outcome.before + f"\n\n> {outcome.command}\n"),
            model.tokenize(outcome.after),
            self._fixed(model, _OPENING),
            self._fixed(model, _CLOSING),
            *(model.tokenize(f"I expect: {text}\n") for text in wanted if text),
        )
        y = tuple(after)[: self._options.vrcli_tokens]
        head = (*opening, *transcript)
        ids = dict(zip([text for text in wanted if text], blocks, strict=True))
        prefixes = {text: (*head, *ids.get(text, ()), *closing) for text in ("", *wanted)}
        passes = [*dict.fromkeys(prefixes.values())]
        if repeat:
            passes.append(prefixes[""])
        values = await asyncio.gather(*(model.score_logprobs(prefix, y) for prefix in passes))
        spent.requests += len(passes)
        spent.tokens += sum(len(prefix) + len(y) for prefix in passes)
        found = dict(zip(passes[: len(passes) - repeat], values, strict=False))
        base = found[prefixes[""]]
        judged = Judged({text: self._compare(base, found[prefixes[text]]) for text in wanted})
        if repeat:
            judged.noise = self._compare(base, values[-1]).improvement_pct
        return judged

    def _compare(self, base: Sequence[float], cond: Sequence[float]) -> VrcliScore:
        return vrcli(base, cond, thresholds=self._options.vrcli_thresholds)

    async def _fixed(self, model: Model, text: str) -> Sequence[int]:
        """Tokens of a text that every pass has."""
        ids = self._constant.get(text)
        if ids is None:
            ids = self._constant[text] = tuple(await model.tokenize(text))
        return ids

    def value(self, score: VrcliScore) -> float:
        """The score as it is rewarded."""
        value = score.discrete if self._options.vrcli == "discrete" else score.continuous
        return value or 0.0


def transcript(first: str, turns: Sequence[tuple[str, str]], newest: int) -> str:
    """What was seen lately: the last `newest` turns as (command or "", what followed), from the first screen on."""
    shown = turns[len(turns) - newest :] if newest and len(turns) > newest else turns if newest else []
    start = first
    left_out = len(turns) - len(shown)
    if left_out:
        start = turns[left_out - 1][1]
    return "\n\n".join([start, *(f"> {command}\n{after}" if command else after for command, after in shown)])
