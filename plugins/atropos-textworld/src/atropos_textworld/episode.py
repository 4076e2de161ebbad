"""One game played by a model, turn by turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from atropos_cli.sdk import Episode, JsonDict, Message, Task, system, user
from atropos_textworld import prompts
from atropos_textworld.commands import REFUSALS, Refused, sanitise
from atropos_textworld.config import TextWorldConfig
from atropos_textworld.engine.cache import GameRecord
from atropos_textworld.engine.fleet import Session
from atropos_textworld.engine.observation import Observation
from atropos_textworld.games.spec import GameSpec
from atropos_textworld.replies import FAULTS, Malformed, find_command

SHORTEST_LIMIT = 20
PLANS_PER_LIMIT = 3

Play = Callable[[GameSpec], Awaitable[tuple[GameRecord, Session]]]


class GameEpisode(Episode):
    """`play` starts the game. Every reply costs one turn, also one that holds no command."""

    def __init__(self, task: Task, config: TextWorldConfig, play: Play) -> None:
        self.spec = GameSpec.from_json(task.info)
        self.config = config
        self._play = play
        self._record: GameRecord | None = None
        self._session: Session | None = None
        self._seen = Observation("")
        self._limit = 0
        self._turns = 0
        self._commands: list[str] = []
        self._counts: Counter[str] = Counter()

    async def reset(self) -> Sequence[Message]:
        """Start the game and show its first screen. Raises EngineError."""
        self._record, self._session = await self._play(self.spec)
        self._seen = self._session.last
        self._limit = self.config.max_steps or max(SHORTEST_LIMIT, PLANS_PER_LIMIT * len(self._record.plan))
        return [system(prompts.instructions(self._record.forms)), user(self._screen(self._seen.text))]

    async def step(self, reply: Message) -> Sequence[Message] | None:
        """Play the reply's command. Raises EngineError."""
        self._turns += 1
        text = await self._answer(reply)
        if self._seen.done:
            return None
        if self._turns >= self._limit:
            self.stop_reason = "step_limit"
            return None
        return _message(reply, self._screen(text))

    async def _answer(self, reply: Message) -> str:
        """What the reply leads to, as text."""
        found = find_command(reply)
        if isinstance(found, Malformed):
            self._counts[f"malformed_{found.fault}"] += 1
            return prompts.MALFORMED[found.fault]
        command = sanitise(found)
        if command in ("g", "again"):
            command = self._commands[-1] if self._commands else Refused("empty")
        if isinstance(command, Refused):
            self._counts[f"refused_{command.kind}"] += 1
            return prompts.REFUSED[command.kind]
        assert self._session is not None
        self._seen = await self._session.step(command)
        self._commands.append(command)
        self._counts["invalid"] += not self._seen.acted
        return self._seen.text

    def _screen(self, text: str) -> str:
        assert self._record is not None
        return prompts.screen(
            text,
            self._seen,
            commands=self.config.show_commands,
            score=f"Score: {self._seen.score}/{self._record.max_score}" if self.config.show_score else "",
            turns=f"Turns left: {self._limit - self._turns}" if self.config.show_turns else "",
        )

    def result(self) -> JsonDict:
        """How the game went; empty before it has started."""
        if self._record is None:
            return {}
        return {
            "game": self.spec.id,
            "kind": self.spec.kind,
            "difficulty": self.spec.difficulty,
            "seed": self.spec.seed,
            "won": self._seen.won,
            "lost": self._seen.lost,
            "score": self._seen.score,
            "max_score": self._record.max_score,
            "steps": self._turns,
            "plan_length": len(self._record.plan),
            "commands": list(self._commands),
            "last_observation": self._seen.text,
        }

    def metrics(self) -> dict[str, float]:
        """Turns, and how many of them were wasted in which way."""
        if self._record is None:
            return {}
        faults = {name: self._counts[name] for name in map("malformed_{}".format, FAULTS)}
        refusals = {name: self._counts[name] for name in map("refused_{}".format, REFUSALS)}
        return {
            "steps": self._turns,
            "score": self._seen.score / max(self._record.max_score, 1),
            "invalid_commands": self._counts["invalid"],
            "malformed": sum(faults.values()),
            "refused": sum(refusals.values()),
            **faults,
            **refusals,
        }

    async def close(self) -> None:
        """Free the game."""
        if self._session is not None:
            await self._session.close()


def _message(reply: Message, text: str) -> Sequence[Message]:
    """The next message: to each tool call its answer, else one from the user."""
    if not reply.tool_calls:
        return [user(text)]
    answers = [text] + ["Only the first command of a turn is played."] * (len(reply.tool_calls) - 1)
    return [
        Message(role="tool", content=answer, tool_call_id=call.id, name=call.function.name)
        for call, answer in zip(reply.tool_calls, answers, strict=True)
    ]
