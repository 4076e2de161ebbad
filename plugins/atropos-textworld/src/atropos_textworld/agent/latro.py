"""LaTRO: how probable the walkthrough's next command is to the model itself, after the thinking of a reply.

Chen and others 2024 (arXiv 2411.04282), equation 3, by the run's own model and for each token: r = log p(y | x, z) / T,
where x is the prompt, z the reply's thinking and y, of T tokens, the next command of a plan that wins. The paper has
the sum, on whose scale a long command would outweigh every other term. Its KL term is the trainer's, not the reward's.
As long as what was played leaves that plan possible there is a y; afterwards there is none and the term is 0 for all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from atropos_textworld.agent.scoring import Model, Spent
from atropos_textworld.agent.vrcli import UnscorableError, check_logprobs

TRUNCATION = 2.0
"""A reply that was cut off gets so many times the mean of its group, which is a penalty since rewards are negative."""
_HARMLESS = ("look", "inventory", "examine ", "goal")


class Plan:
    """The winning commands that are left, as long as what is played keeps to them."""

    def __init__(self, commands: Sequence[str]) -> None:
        self._left: list[str] | None = list(commands)

    @property
    def next(self) -> str | None:
        """The next winning command, or None when the game has left the plan."""
        return self._left[0] if self._left else None

    def played(self, command: str | None, acted: bool) -> None:
        """Note what was played; None for a reply that held no command."""
        if self._left is None or command is None or not acted or command.startswith(_HARMLESS):
            return
        self._left = self._left[1:] if self._left and command == self._left[0] else None


async def answer_logprob(model: Model, prompt_ids: Sequence[int], thinking: str, answer: str, spent: Spent) -> float:
    """The mean log-probability of the answer's tokens, at most 0. Raises ValueError for what has none: a mean of
    nothing, 0, would be the best reward there is, and one of minus infinity could not be compared."""
    before = f"<think>{thinking}</think>\n" + '<tool_call>{"name": "execute_command", "arguments": {"command": "'
    prefix = (*prompt_ids, *await model.tokenize(before))
    ids = tuple(await model.tokenize(f'{answer}"'))
    if not ids:
        raise ValueError("the answer has no tokens")
    values = await model.score_logprobs(prefix, ids)
    spent.requests += 1
    spent.tokens += len(prefix) + len(ids)
    check_logprobs(values)
    if len(values) != len(ids):
        raise UnscorableError("token_count_mismatch", f"{len(values)} log-probabilities for {len(ids)} tokens")
    if -math.inf in values:
        raise UnscorableError("impossible_answer", "a token of the answer has probability 0")
    return min(0.0, math.fsum(values) / len(values))


def with_truncation(rewards: Sequence[float], finished: Sequence[bool]) -> list[float]:
    """Replies that were cut off get TRUNCATION times the mean of all."""
    mean = math.fsum(rewards) / len(rewards) if rewards else 0.0
    return [value if done else TRUNCATION * mean for value, done in zip(rewards, finished, strict=True)]
