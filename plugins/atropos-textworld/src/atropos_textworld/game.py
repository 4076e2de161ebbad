"""One game being played, whoever plays it: turns, limits, what went wrong, and how it ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from atropos_cli.sdk import JsonDict, Message
from atropos_textworld import prompts
from atropos_textworld.commands import REFUSALS, Refused
from atropos_textworld.config import TextWorldConfig
from atropos_textworld.engine.cache import GameRecord
from atropos_textworld.engine.fleet import Session
from atropos_textworld.engine.observation import Observation
from atropos_textworld.games.spec import GameSpec
from atropos_textworld.policies.table import publish
from atropos_textworld.replies import FAULTS, Found, Malformed

SHORTEST_LIMIT = 20
PLANS_PER_LIMIT = 3

Play = Callable[[GameSpec], Awaitable[tuple[GameRecord, Session]]]


class PlayedGame:
    """`play` starts the game. Every reply costs one turn, also one that holds no command.

    form: what a model is told to write when its reply held no command.
    """

    def __init__(self, spec: GameSpec, config: TextWorldConfig, play: Play, *, form: str) -> None:
        self.spec = spec
        self.config = config
        self.form = form
        self.seen = Observation("")
        self.turns = 0
        self.limit = 0
        self.commands: list[str] = []
        self.record: GameRecord | None = None
        self.session: Session | None = None
        self._play = play
        self._counts: Counter[str] = Counter()

    async def start(self) -> GameRecord:
        """Start the game. Raises EngineError."""
        self.record, self.session = await self._play(self.spec)
        self.seen = self.session.last
        self.limit = self.config.max_steps or max(SHORTEST_LIMIT, PLANS_PER_LIMIT * len(self.record.plan))
        return self.record

    @property
    def over(self) -> bool:
        """Whether the game ended, or its turns are used up."""
        return self.seen.done or self.turns >= self.limit

    @property
    def cut_off(self) -> bool:
        """Whether its turns were used up before it ended."""
        return self.over and not self.seen.done

    @property
    def max_score(self) -> int:
        """The most points there are, at least 1."""
        return max(self.record.max_score, 1) if self.record is not None else 1

    async def act(self, found: Found) -> str:
        """Play what was found in a reply; what came of it, as text. Raises EngineError."""
        self.turns += 1
        if not isinstance(found, str):
            self._counts[found.name] += 1
            return self.refusal(found)
        assert self.session is not None
        self.seen = await self.session.step(found)
        self.commands.append(found)
        self._counts["invalid"] += not self.seen.acted
        return self.seen.text

    async def peek(self, commands: Sequence[str]) -> list[Observation]:
        """What each command would lead to; nothing is played. Raises EngineError."""
        assert self.session is not None
        return await self.session.peek(commands)

    def refusal(self, found: Malformed | Refused) -> str:
        """What a reply without a playable command is answered."""
        if isinstance(found, Malformed):
            return prompts.MALFORMED[found.fault].format(form=self.form)
        return prompts.REFUSED[found.kind]

    def publish(self, messages: Sequence[Message]) -> None:
        """Let a baseline know which state a model is about to be asked in with these messages."""
        plan = self.record.plan if self.record is not None else ()
        publish(messages, commands=self.seen.commands, plan=plan, played=self.commands)

    def screen(self, text: str) -> str:
        """What the model is shown, with what the options add."""
        return prompts.screen(
            text,
            self.seen,
            commands=self.config.show_commands or self.config.pick_from_admissible,
            score=f"Score: {self.seen.score}/{self.max_score}" if self.config.show_score else "",
            turns=f"Turns left: {self.limit - self.turns}" if self.config.show_turns else "",
        )

    def result(self) -> JsonDict:
        """How the game went; empty before it has started."""
        if self.record is None:
            return {}
        return {
            "game": self.spec.id,
            "kind": self.spec.kind,
            "difficulty": self.spec.difficulty,
            "seed": self.spec.seed,
            "won": self.seen.won,
            "lost": self.seen.lost,
            "score": self.seen.score,
            "max_score": self.record.max_score,
            "steps": self.turns,
            "plan_length": len(self.record.plan),
            "commands": list(self.commands),
            "last_observation": self.seen.text,
        }

    def metrics(self) -> dict[str, float]:
        """Turns, and how many of them were wasted in which way."""
        if self.record is None:
            return {}
        faults = {name: self._counts[name] for name in map("malformed_{}".format, FAULTS)}
        refusals = {name: self._counts[name] for name in map("refused_{}".format, REFUSALS)}
        return {
            "steps": self.turns,
            "score": self.seen.score / self.max_score,
            "invalid_commands": self._counts["invalid"],
            "malformed": sum(faults.values()),
            "refused": sum(refusals.values()),
            **faults,
            **refusals,
        }

    async def close(self) -> None:
        """Free the game."""
        if self.session is not None:
            await self.session.close()


def answer_to(reply: Message, text: str) -> tuple[Message, ...]:
    """The messages that follow a reply: to each tool call its answer, else one from the user."""
    if not reply.tool_calls:
        return (Message(role="user", content=text),)
    answers = [text] + ["Only the first command of a turn is played."] * (len(reply.tool_calls) - 1)
    return tuple(
        Message(role="tool", content=answer, tool_call_id=call.id, name=call.function.name)
        for call, answer in zip(reply.tool_calls, answers, strict=True)
    )
