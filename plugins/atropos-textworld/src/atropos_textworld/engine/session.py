"""Rollouts of games inside a worker process. Those at the same game share one interpreter and its memory."""

from __future__ import annotations

import string
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from atropos_textworld.engine.interpreter import Interpreter
from atropos_textworld.engine.observation import Observation, clean

ALLOWED = frozenset(string.ascii_lowercase + string.digits + " '-")
LONGEST_COMMAND = 120
_SUCCEEDED = " - succeeded]"


class UnsafeCommand(ValueError):
    """A command that could hang or crash the interpreter; callers sanitise before they ask."""


class Library:
    """Game files read so far, and the games being played."""

    def __init__(self, size: int = 32) -> None:
        self._size = size
        self._games: OrderedDict[str, Any] = OrderedDict()
        self._playing: dict[Path, Interpreter] = {}
        # Parsing a logic that was not seen before uses a parser that the whole process shares.
        self._lock = threading.Lock()

    def warm(self) -> None:
        """Import TextWorld and parse the logic that most games share, before a game waits for it."""
        from textworld.logic import GameLogic

        from atropos_textworld.games.knowledge import knowledge_base

        GameLogic.deserialize(knowledge_base("default").logic.serialize())

    def load(self, path: Path) -> Any:
        """A TextWorld environment of the compiled game, not yet reset."""
        from textworld import EnvInfos
        from textworld.envs import JerichoEnv, TWInform7
        from textworld.generator.game import Game

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

    def enter(self, path: Path) -> Interpreter:
        """The interpreter of a game, shared by all who play it now; leave() ends one's part in it."""
        with self._lock:
            interpreter = self._playing.get(path)
            if interpreter is None:
                interpreter = self._playing[path] = Interpreter(self.load(path))
            interpreter.rollouts += 1
            return interpreter

    def leave(self, path: Path, interpreter: Interpreter) -> None:
        """Free the interpreter when nobody plays on."""
        with self._lock:
            interpreter.rollouts -= 1
            if interpreter.rollouts == 0:
                del self._playing[path]
                interpreter.close()


class GameSession:
    """One rollout of a game. Methods are called one at a time; several sessions may run in threads."""

    def __init__(self, library: Library, path: Path) -> None:
        """Raises FileNotFoundError when the game is not there."""
        self._library = library
        self._path = path
        self._game = library.enter(path)
        self._saved = self._game.beginning
        self.last = _observe(self._game.first, acted=True)

    def step(self, command: str) -> Observation:
        """Play one command. After the end the last observation is given again, and nothing is played.

        Raises UnsafeCommand for anything but lower-case ASCII words of at most 120 characters.
        """
        _check(command)
        if not self.last.done:
            with self._game.lock:
                self._take_over()
                self.last = self._play(command)
        return self.last

    def peek(self, commands: Sequence[str], done: Callable[[], object] = bool) -> list[Observation]:
        """What each of the commands would lead to, from here; nothing is changed. `done` is called after each."""
        for command in commands:
            _check(command)
        if self.last.done:
            return [self.last] * len(commands)
        seen = []
        with self._game.lock:
            self._take_over()
            here = self._game.snapshot()
            try:
                for command in commands:
                    seen.append(self._play(command))
                    self._game.restore(here)
                    done()
            except BaseException:
                self._game.restore(here)
                raise
        return seen

    def _take_over(self) -> None:
        """Put the interpreter into this rollout's state, and its present one aside for whose it is."""
        holder = self._game.holder
        if holder is self:
            return
        if isinstance(holder, GameSession):
            holder._saved = self._game.snapshot()
        self._game.restore(self._saved)
        self._game.holder = self

    def _play(self, command: str) -> Observation:
        state, _, _ = self._game.env.step(command)
        return _observe(state, acted=_SUCCEEDED in (state.raw or ""))

    def close(self) -> None:
        """End the rollout."""
        with self._game.lock:
            if self._game.holder is self:
                self._game.holder = None
        self._library.leave(self._path, self._game)


def _check(command: str) -> None:
    if not command or len(command) > LONGEST_COMMAND or not ALLOWED.issuperset(command):
        raise UnsafeCommand(f"unsafe command {command[:40]!r}")


def _observe(state: Any, acted: bool) -> Observation:
    return Observation(
        text=clean(state.feedback),
        commands=tuple(sorted(command.lower() for command in state.admissible_commands)),
        score=int(state.score or 0),
        won=bool(state.won),
        lost=bool(state.lost),
        acted=acted,
    )
