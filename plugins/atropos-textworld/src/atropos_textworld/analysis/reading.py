"""Episodes and replies, as they are read from stored groups of either form.

A group of whole games (group_by episode) holds an episode in each rollout. Where a group is one turn (group_by
turn), its rollouts are alternatives for one reply, the one that was played on says `executed`, and that of the
game's last turn carries how the game went. Values come from files: what is missing or odd is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atropos_cli.sdk import split_thinking, thought_text
from atropos_cli.sdk.analysis import AnalyzedRollout
from atropos_textworld.agent.blocks import extract_memory

_LONGEST_TEXT = 200_000


@dataclass(frozen=True, slots=True)
class Reply:
    """thinking: characters of it. memory: the status of its memory block ("ok", "missing", "too_short", ...)."""

    thinking: int
    memory: str
    full_form: bool


@dataclass(frozen=True, slots=True)
class Game:
    """How an episode ended. score: the share of points reached. sparse: there was one point to reach."""

    id: str
    kind: str
    difficulty: str
    won: bool
    lost: bool
    score: float
    sparse: bool
    steps: int
    plan: int
    metrics: Mapping[str, float]

    @property
    def cut_off(self) -> bool:
        """Neither won nor lost: its turns were used up."""
        return not self.won and not self.lost


def game_of(rollout: AnalyzedRollout) -> Game | None:
    """The finished game that a rollout reports; None when it reports none."""
    info = rollout.info
    if rollout.failed or not isinstance(info.get("won"), bool):
        return None
    most = number(info.get("max_score")) or 1.0
    return Game(
        id=str(info.get("game", ""))[:200],
        kind=str(info.get("kind", "?"))[:100],
        difficulty=str(info.get("difficulty", "?"))[:100],
        won=bool(info["won"]),
        lost=info.get("lost") is True,
        score=(number(info.get("score")) or 0.0) / max(most, 1.0),
        sparse=most <= 1,
        steps=int(number(info.get("steps")) or 0),
        plan=int(number(info.get("plan_length")) or 0),
        metrics=numbers(rollout.metrics),
    )


def replies_of(messages: Sequence[Mapping[str, Any]]) -> list[Reply]:
    """The assistant's messages."""
    return [reply_of(message) for message in messages if message.get("role") == "assistant"]


def reply_of(message: Mapping[str, Any]) -> Reply:
    """What an assistant's message consists of."""
    content, reasoning = message.get("content"), message.get("reasoning")
    text = content[:_LONGEST_TEXT] if isinstance(content, str) else ""
    thinking, _ = split_thinking(text)
    length = len(thought_text(thinking))
    if isinstance(reasoning, str):
        length += len(reasoning)
        text = f"<think>{reasoning[:_LONGEST_TEXT]}</think>{text}"
    memory = extract_memory(text)
    return Reply(length, memory.status, memory.format_ok)


def number(value: Any) -> float | None:
    """A finite number, else None. True and False are none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < float("inf"):
        return None
    return float(value)


def numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """The entries that are numbers."""
    return {name: found for name, value in values.items() if (found := number(value)) is not None}
