"""Games of OpenSpiel: two players, in turn, zero or constant sum. The package is imported when one is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from random import Random
from typing import Any

from atropos_cli.sdk import ConfigError
from atropos_games.rules import Position, Rules


class State(Position):
    """A state of OpenSpiel. Chance events are drawn from the seed and the history, so a position is the same again."""

    def __init__(self, state: Any, seed: str) -> None:
        self._state = state
        self._seed = seed
        while state.is_chance_node():
            rng = Random(f"{seed}:{state.history()}")
            actions, weights = zip(*state.chance_outcomes(), strict=True)
            state.apply_action(rng.choices(actions, weights)[0])
        self._actions = {} if state.is_terminal() else self._named()

    @property
    def mover(self) -> int:
        return max(0, int(self._state.current_player()))

    def moves(self) -> tuple[str, ...]:
        return tuple(self._actions)

    def after(self, move: str) -> State:
        state = self._state.clone()
        state.apply_action(self._actions[move])
        return State(state, self._seed)

    def payoffs(self) -> tuple[float, float] | None:
        if not self._state.is_terminal():
            return None
        first, second = self._state.returns()
        return float(first), float(second)

    def view(self, seat: int) -> Mapping[str, str]:
        kind = self._state.get_game().get_type()
        if kind.provides_observation_string:
            board = self._state.observation_string(seat)
        elif kind.provides_information_state_string:
            board = self._state.information_state_string(seat)
        else:
            board = str(self._state)  # checked: a game of perfect information
        board = str(board).strip()
        return {"board": board, "line": " ".join(board.split())}

    def _named(self) -> dict[str, int]:
        """Legal actions by the text that players write. Names that occur twice get their number."""
        found: dict[str, int] = {}
        for action in self._state.legal_actions():
            name = " ".join(self._state.action_to_string(self.mover, action).split())
            name = name.replace("[", "(").replace("]", ")")[:60] or str(action)
            if name.casefold() in {other.casefold() for other in found}:
                name = f"{name} #{action}"
            found[name] = action
        return found


def rules_of(name: str) -> Rules:
    """A game by OpenSpiel's name, with parameters if any: `leduc_poker`, `go(board_size=5)`. Raises ConfigError."""
    try:
        import pyspiel
    except ImportError as error:
        raise ConfigError(
            f"openspiel:{name} needs the package open-spiel", hint="pip install 'atropos-games[openspiel]'"
        ) from error
    base, known = name.partition("(")[0], list(pyspiel.registered_names())
    if base not in known:
        close = get_close_matches(base, known, n=3)
        raise ConfigError(
            f"OpenSpiel has no game {base!r}", hint=f"did you mean {', '.join(close)}?" if close else None
        )
    try:
        game = pyspiel.load_game(name)
        kind = game.get_type()
    except (pyspiel.SpielError, RuntimeError, ValueError) as error:
        raise ConfigError(f"OpenSpiel cannot load {name!r}: {error}", hint="check its parameters") from error
    _check(pyspiel, name, game, kind)

    def start(rng: Random) -> Position:
        return State(game.new_initial_state(), str(rng.getrandbits(64)))

    unit = max(abs(float(game.max_utility())), abs(float(game.min_utility())))
    return Rules(f"openspiel:{name}", kind.long_name, start, unit=unit or 1.0)


def _check(pyspiel: Any, name: str, game: Any, kind: Any) -> None:
    """Raises ConfigError for a game that cannot be played here, and says why."""
    sums = (pyspiel.GameType.Utility.ZERO_SUM, pyspiel.GameType.Utility.CONSTANT_SUM)
    shown = kind.provides_observation_string or kind.provides_information_state_string
    why = None
    if game.num_players() != 2:
        why = f"it has {game.num_players()} players"
    elif kind.dynamics != pyspiel.GameType.Dynamics.SEQUENTIAL:
        why = "its players move at the same time"
    elif kind.utility not in sums:
        why = "one player's gain is not the other's loss"
    elif not shown and kind.information != pyspiel.GameType.Information.PERFECT_INFORMATION:
        why = "it has no text of what a player knows"
    if why is not None:
        raise ConfigError(f"openspiel:{name} cannot be played here: {why}", hint="for example openspiel:leduc_poker")
