"""One game being played inside a worker process."""

from __future__ import annotations

import string
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

from atropos_textworld.engine.observation import Observation, clean

ALLOWED = frozenset(string.ascii_lowercase + string.digits + " '-")
LONGEST_COMMAND = 120
_SUCCEEDED = " - succeeded]"


class UnsafeCommand(ValueError):
    """A command that could hang or crash the interpreter; callers sanitise before they ask."""


class Library:
    """Game files read so far, so that the rollouts of a group parse their game once."""

    def __init__(self, size: int = 32) -> None:
        self._size = size
        self._games: OrderedDict[str, Any] = OrderedDict()
        # Parsing a logic that was not seen before uses a parser that the whole process shares.
        self._lock = threading.Lock()

    def warm(self) -> None:
        """Import TextWorld and parse the logic that most games share, before a game waits for it."""
        from textworld.logic import GameLogic

        from atropos_textworld.games.knowledge import knowledge_base

        GameLogic.deserialize(knowledge_base("default").logic.serialize())

    def start(self, path: Path) -> Any:
        """A TextWorld environment of the compiled game, not yet reset."""
        from textworld import EnvInfos
        from textworld.envs import JerichoEnv, TWInform7
        from textworld.generator.game import Game

        with self._lock:
            game = self._games.pop(path.stem, None) or Game.load(str(path.with_suffix(".json")))
            self._games[path.stem] = game
            while len(self._games) > self._size:
                self._games.popitem(last=False)
            interpreter = JerichoEnv(EnvInfos(admissible_commands=True))
            # The wrappers take the game from here instead of reading its file again.
            interpreter._game = game
            env = TWInform7(interpreter)
            env.load(str(path))
            return env


class GameSession:
    """A started game. Methods are called one at a time; several sessions may run in threads."""

    def __init__(self, library: Library, path: Path) -> None:
        """Raises FileNotFoundError when the game is not there."""
        self._env = library.start(path)
        state = self._env.reset()
        self.last = self._observe(state, clean(state.feedback), acted=True)

    def step(self, command: str) -> Observation:
        """Play one command. After the end the last observation is given again, and nothing is played.

        Raises UnsafeCommand for anything but lower-case ASCII words of at most 120 characters.
        """
        if not command or len(command) > LONGEST_COMMAND or not ALLOWED.issuperset(command):
            raise UnsafeCommand(f"unsafe command {command[:40]!r}")
        if self.last.done:
            return self.last
        state, _, _ = self._env.step(command)
        self.last = self._observe(state, clean(state.feedback), acted=_SUCCEEDED in (state.raw or ""))
        return self.last

    def _observe(self, state: Any, text: str, acted: bool) -> Observation:
        return Observation(
            text=text,
            commands=tuple(sorted(command.lower() for command in state.admissible_commands)),
            score=int(state.score or 0),
            won=bool(state.won),
            lost=bool(state.lost),
            acted=acted,
        )

    def close(self) -> None:
        """Free the interpreter."""
        self._env.close()
