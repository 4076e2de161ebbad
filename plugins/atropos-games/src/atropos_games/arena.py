"""Games of textarena, with its own texts. The package is imported when one of its games is asked for.

It gives each player messages; a move is any text. Its field `invalid_move` is not set by all games, so the reason that
it gives at the end is read as well. Its games draw from Python's global random numbers, which each table keeps apart.
"""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from atropos_cli.sdk import ConfigError, Message, system, user
from atropos_cli.sdk.prompts import Prompt
from atropos_games.reading import Fault
from atropos_games.rules import SEATS
from atropos_games.tables import Table

_RAW = "-raw"
"""The form of a game that gives each message once, instead of the whole conversation with each."""
_FORMAT = re.compile(
    r"invalid|format|not (?:a )?(?:valid|legal|allowed)|illegal|must (?:be|contain|use|provide|include)", re.I
)


def check_game(name: str) -> None:
    """Make the game once. Raises ConfigError where that fails, with the missing part."""
    made = _made(name)
    try:
        with _Chance(0).drawn():
            made.reset(num_players=2, seed=0)
    except Exception as error:
        raise _unplayable(name, error) from error


def _made(name: str) -> Any:
    try:
        import textarena
        from textarena.envs.registration import ENV_REGISTRY
    except ImportError as error:
        raise ConfigError(
            f"textarena:{name} needs the package textarena", hint="pip install 'atropos-games[textarena]'"
        ) from error
    base = name.removesuffix(_RAW)
    if base not in ENV_REGISTRY:
        known = [one for one in ENV_REGISTRY if not one.endswith((_RAW, "-train"))]
        close = get_close_matches(base, known, n=3, cutoff=0.4)
        hint = f"did you mean {', '.join(close)}?" if close else "names are as in SimpleNegotiation-v0"
        raise ConfigError(f"textarena has no game {base!r}", hint=hint)
    try:
        return textarena.make(base + _RAW)
    except Exception as error:
        raise _unplayable(name, error) from error


def _unplayable(name: str, error: Exception) -> ConfigError:
    """What keeps a game from being played, with a way out where one is known."""
    text = " ".join(str(error).split())[:200]
    hint = "use another game"
    if isinstance(error, SyntaxError):
        return ConfigError(
            f"textarena:{name} is written for a later Python: {text}", hint="use Python 3.12, or another game"
        )
    if isinstance(error, LookupError) and "nltk" in str(error).casefold():
        found = re.search(r"nltk\.download\('(\w+)'\)", str(error))
        corpus = found[1] if found else "words"
        return ConfigError(
            f"textarena:{name} needs the NLTK data {corpus!r}", hint=f"python -m nltk.downloader {corpus}"
        )
    if isinstance(error, ModuleNotFoundError):
        return ConfigError(f"textarena:{name} needs the package {error.name}", hint=f"pip install {error.name}")
    if isinstance(error, AssertionError) or "player" in text.casefold():
        return ConfigError(f"textarena:{name} is not a game of two players: {text or 'it refuses two'}", hint=hint)
    return ConfigError(f"textarena:{name} cannot be played: {type(error).__name__}: {text}", hint=hint)


class _Chance:
    """Random numbers of one game, in the place of the global ones while it computes."""

    def __init__(self, seed: int) -> None:
        self._state = random.Random(seed).getstate()

    @contextlib.contextmanager
    def drawn(self) -> Iterator[None]:
        outside = random.getstate()
        random.setstate(self._state)
        try:
            yield
        finally:
            self._state = random.getstate()
            random.setstate(outside)


class ArenaTable(Table):
    """A game of textarena."""

    def __init__(self, name: str, seed: int, prompt: Prompt) -> None:
        self._chance = _Chance(seed)
        with self._chance.drawn():
            self._env = _made(name)
            self._env.reset(num_players=2, seed=seed)
        self._prompt = prompt
        self._name = name
        self._end: tuple[float, float] | None = None
        self._closed = False

    def turn(self) -> int:
        return int(self._env.state.current_player_id)

    def opening(self, seat: int) -> Sequence[Message]:
        """A system message where the prompt has a text `textarena`; the game's own text comes with the first turn."""
        text = self._prompt.text("textarena", game=self._name, seat=SEATS[seat]).strip()
        return [*([system(text)] if text else []), *self._prompt.examples(game=self._name, seat=SEATS[seat])]

    def asked(self, seat: int) -> Message:
        """All that the game and the other player said since the player's last move."""
        _, seen = self._env.get_observation()
        told = [(int(one[0]), str(one[1]).strip()) for one in seen]
        shown = [text if who < 0 else f"The other player: {text}" for who, text in told if who != seat and text]
        board = "\n\n".join(shown) or "It is your turn."
        return user(self._prompt.text("turn", game=self._name, board=board, line=" ".join(board.split()), moves=[]))

    def play(self, text: str) -> Fault | None:
        mover = self.turn()
        with self._chance.drawn():
            done, _ = self._env.step(action=text)
        if not done:
            return None
        rewards, info = self._env.close()
        self._closed = True
        if self._offended(mover, rewards, info):
            return "illegal"
        self._end = tuple(max(-1.0, min(1.0, float((rewards or {}).get(seat, 0.0)))) for seat in (0, 1))  # type: ignore[assignment]
        return None

    def payoffs(self) -> tuple[float, float] | None:
        return self._end

    def scripted(self, kind: str, seed: str) -> str:
        raise AssertionError("checked before the run: no legal moves are known")

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._env.close()

    @staticmethod
    def _offended(mover: int, rewards: Any, info: Any) -> bool:
        """Did the mover lose by an invalid move?"""
        mine = (info or {}).get(mover) or {}
        lost = float((rewards or {}).get(mover, 0.0)) < 0
        return bool(mine.get("invalid_move")) or (lost and _says_format(mine.get("reason")))


def _says_format(reason: Any) -> bool:
    texts: Iterable[Any] = [reason] if isinstance(reason, str) else reason if isinstance(reason, list | tuple) else ()
    return any(_FORMAT.search(str(text)) for text in texts)
