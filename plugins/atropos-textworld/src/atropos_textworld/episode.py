"""One game as an episode: the model sees what happens and answers with a command, turn by turn."""

from __future__ import annotations

from collections.abc import Sequence

from atropos_cli.sdk import Episode, JsonDict, Message, Task, user
from atropos_cli.sdk.prompts import Prompt
from atropos_textworld import prompts
from atropos_textworld.config import TextWorldConfig
from atropos_textworld.game import Play, PlayedGame, answer_to
from atropos_textworld.games.spec import GameSpec
from atropos_textworld.replies import read_command


class GameEpisode(Episode):
    """`play` starts the game."""

    def __init__(self, task: Task, config: TextWorldConfig, play: Play, prompt: Prompt = prompts.PROMPT) -> None:
        self._prompt = prompt
        self.game = PlayedGame(GameSpec.from_json(task.info), config, play, form=prompts.FORM)
        self._told: list[Message] = []

    async def reset(self) -> Sequence[Message]:
        """Start the game and show its first screen. Raises EngineError."""
        record = await self.game.start()
        rules = "pick" if self.game.config.pick_from_admissible else "system"
        opening = prompts.instructions(self._prompt, rules, record.forms)
        return self._tell(*opening, user(self.game.screen(self.game.seen.text)))

    async def step(self, reply: Message) -> Sequence[Message] | None:
        """Play the reply's command. Raises EngineError."""
        commands = self.game.commands
        text = await self.game.act(read_command(reply, commands[-1] if commands else None))
        if not self.game.over:
            self._told.append(reply)
            return self._tell(*answer_to(reply, self.game.screen(text)))
        if self.game.cut_off:
            self.stop_reason = "step_limit"
        return None

    def _tell(self, *messages: Message) -> Sequence[Message]:
        """Send messages, and let a baseline know what they are about."""
        self._told += messages
        if self.game.config.pick_from_admissible:
            self.choices = self.game.seen.commands
        self.game.publish(self._told)
        return messages

    def result(self) -> JsonDict:
        """How the game went; empty before it has started."""
        return self.game.result()

    def metrics(self) -> dict[str, float]:
        """Turns, and how many of them were wasted in which way."""
        return self.game.metrics()

    async def close(self) -> None:
        """Free the game."""
        await self.game.close()
