"""One turn of a game that has several alternatives for its reply: what they hold, led to, and are worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from atropos_cli.sdk import JsonDict, Message, Rollout, RolloutFailure, Task, TokenSpan, Usage, stop_reason_of
from atropos_cli.sdk.backends import Completion, Generation
from atropos_textworld.agent.credit import discounted_returns
from atropos_textworld.agent.memory import Hit
from atropos_textworld.agent.reply import AgentReply
from atropos_textworld.agent.scoring import Spent
from atropos_textworld.agent.vrcli import VrcliScore
from atropos_textworld.commands import REFUSALS
from atropos_textworld.engine.observation import Observation
from atropos_textworld.replies import FAULTS

_KINDS = (*(f"malformed_{fault}" for fault in FAULTS), *(f"refused_{kind}" for kind in REFUSALS))


@dataclass(slots=True)
class Alternative:
    """One reply. outcome: what its command led to or would lead to; None when nobody found out.

    vrcli: None when there was nothing to score. value: the VR-CLI reward. control: that of the control.
    """

    number: int
    generation: Generation
    completion: Completion
    message: Message
    reply: AgentReply
    outcome: Observation | None = None
    executed: bool = False
    vrcli: VrcliScore | None = None
    value: float = 0.0
    control: VrcliScore | None = None
    latro: float | None = None
    failure: RolloutFailure | None = None

    @property
    def nothing(self) -> bool:
        """Whether it leaves the game as it is, for sure: it holds no command, or one that did not work."""
        if self.reply.command is None:
            return True
        return self.outcome is not None and not self.outcome.acted and not self.outcome.done

    @property
    def known(self) -> bool:
        """Whether there is an outcome to reward."""
        return self.outcome is not None or self.reply.command is None

    @property
    def truncated(self) -> bool:
        """Whether the reply was cut off."""
        return stop_reason_of(self.completion.finish_reason) != "done"


@dataclass(slots=True)
class Turn:
    """before: what the model saw. transcript: the same and the turns before, as the scorer reads them."""

    number: int
    prompt: tuple[Message, ...]
    generations: tuple[Generation, ...]
    alternatives: list[Alternative]
    before: Observation
    transcript: str
    answer: str | None = None
    hits: Sequence[Hit] = ()
    spent: Spent = field(default_factory=Spent)
    noise: float | None = None

    @property
    def chosen(self) -> Alternative | None:
        """The alternative that was played."""
        return next((alternative for alternative in self.alternatives if alternative.executed), None)

    @property
    def prompt_ids(self) -> tuple[int, ...] | None:
        """The tokens of the prompt, as the model saw it."""
        return self.generations[0].prompt_ids

    @property
    def prompt_tokens(self) -> int | None:
        """How many tokens the prompt had."""
        first = self.generations[0]
        if first.prompt_tokens is not None:
            return first.prompt_tokens
        return len(first.prompt_ids) if first.prompt_ids is not None else None


class Credit:
    """Discounted credit of an episode's turns: points, winning and losing apart, so that rewards can weigh them.

    A turn's credit is its own points and gamma times what the game brought from then on; the end counts as what
    follows the last turn. An alternative that was tried but not played on is credited with the same future,
    since nothing else is known of it and being chosen is no merit; one that left the game as it was has a turn
    less for that future.
    """

    def __init__(self, turns: Sequence[Turn], last: Observation, *, max_score: int, gamma: float) -> None:
        self._gamma = gamma
        self._max_score = max_score
        points = [self._points(turn, turn.chosen) for turn in turns]
        nothing = [0.0] * len(turns)
        self._futures = {
            "score": self._returns([*points, 0.0]),
            "won": self._returns([*nothing, float(last.won)]),
            "lost": self._returns([*nothing, float(last.lost)]),
        }

    def _returns(self, rewards: Sequence[float]) -> list[float]:
        return discounted_returns(rewards, self._gamma)

    def _points(self, turn: Turn, alternative: Alternative | None) -> float:
        if alternative is None or alternative.outcome is None:
            return 0.0
        return (alternative.outcome.score - turn.before.score) / self._max_score

    def of(self, turn: Turn, alternative: Alternative) -> dict[str, float]:
        """{"score", "won", "lost"}, each at least 0 but for lost points."""
        chosen = turn.chosen
        outcome = alternative.outcome
        credit = {}
        for name, future in self._futures.items():
            if outcome is not None and outcome.done and not alternative.executed:
                following = float(getattr(outcome, name)) if name != "score" else 0.0
            elif alternative.nothing and chosen is not None and not chosen.nothing:
                following = future[turn.number]
            else:
                following = future[turn.number + 1]
            own = self._points(turn, alternative) if name == "score" else 0.0
            credit[name] = own + self._gamma * following
        return credit


def rollout(task: Task, group_id: str, turn: Turn, alternative: Alternative, credit: dict[str, float]) -> Rollout:
    """An alternative as a rollout: the prompt it answers, with the tokens of both as they were sampled."""
    reply, prompt = alternative.reply, list(turn.prompt)
    prompt_ids = alternative.generation.prompt_ids
    if prompt_ids is not None:
        prompt[-1] = prompt[-1].model_copy(update={"tokens": TokenSpan(ids=prompt_ids)})
    first = alternative.number == 0
    info: JsonDict = {
        "game": task.id,
        "kind": task.info.get("kind"),
        "difficulty": task.info.get("difficulty"),
        "turn": turn.number,
        "command": reply.command,
        "fault": None if isinstance(reply.found, str) else reply.found.name,
        "prediction": reply.prediction,
        "memory": reply.memory.memory,
        "executed": alternative.executed,
    }
    if alternative.outcome is not None:
        info["observation"] = alternative.outcome.text
    if alternative.known:
        info["credit"] = dict(credit)
        info["format"] = reply.format
    if alternative.vrcli is not None:
        info["vrcli"] = _vrcli_info(alternative)
    return Rollout(
        id=f"{group_id}.{turn.number}/{alternative.number}",
        task_id=task.id,
        messages=(*prompt, alternative.message),
        info=info,
        metrics=_metrics(alternative),
        usage=Usage(
            prompt_tokens=turn.prompt_tokens if first else None,
            completion_tokens=alternative.completion.completion_tokens,
            requests=len(turn.generations) + turn.spent.requests if first else 0,
        ),
        stop_reason=stop_reason_of(alternative.completion.finish_reason),
        failure=alternative.failure,
    )


def _vrcli_info(alternative: Alternative) -> JsonDict:
    score = alternative.vrcli
    assert score is not None
    info: JsonDict = {"value": alternative.value, "improvement": _finite(score.improvement_pct)}
    if score.flag is not None:
        info["flag"] = score.flag
    if alternative.control is not None:
        info["control"] = _finite(alternative.control.improvement_pct)
    return info


def _metrics(alternative: Alternative) -> dict[str, float]:
    """What is worth a mean over alternatives."""
    metrics = {
        "format": alternative.reply.format,
        "prediction_given": float(bool(alternative.reply.prediction)),
        "memory_valid": float(alternative.reply.memory.memory is not None),
        "thinking_characters": float(len(alternative.reply.thinking)),
    }
    if alternative.vrcli is not None:
        metrics["vrcli_zero"] = float(alternative.value == 0)
        if alternative.value:
            metrics["vrcli_nonzero"] = alternative.value
        improvement = _finite(alternative.vrcli.improvement_pct)
        if improvement is not None:
            metrics["vrcli_improvement"] = improvement
    if alternative.control is not None:
        control = _finite(alternative.control.improvement_pct)
        if control is not None:
            metrics["vrcli_control_improvement"] = control
        metrics["vrcli_control"] = alternative.control.discrete or 0.0
    return metrics


def turn_metrics(turn: Turn) -> dict[str, float]:
    """What is counted once a turn, on the alternative that was played."""
    faults = [a.reply.found.name for a in turn.alternatives if not isinstance(a.reply.found, str)]
    commands = {a.reply.command for a in turn.alternatives if a.reply.command is not None}
    size = len(turn.alternatives)
    metrics = {f"alternatives_{kind}": faults.count(kind) / size for kind in _KINDS}
    metrics["alternatives_without_command"] = len(faults) / size
    metrics["alternatives_distinct"] = float(len(commands))
    metrics["scoring_requests"] = float(turn.spent.requests)
    metrics["scoring_tokens"] = float(turn.spent.tokens)
    if turn.noise is not None:
        metrics["vrcli_noise"] = abs(turn.noise)
    return metrics


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
