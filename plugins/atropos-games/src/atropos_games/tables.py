"""A table: one game while it is played, whatever library has its rules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from random import Random

from atropos_cli.sdk import ConfigError, JsonDict, Message, system, user
from atropos_cli.sdk.prompts import Prompt
from atropos_games.reading import Fault, read_move
from atropos_games.rules import SEATS, Position, Rules

RANDOM, PERFECT = "random", "perfect"


class Table(ABC):
    """One game of two players, 0 and 1, who write their moves as text."""

    @abstractmethod
    def turn(self) -> int:
        """Who moves."""

    @abstractmethod
    def opening(self, seat: int) -> Sequence[Message]:
        """The messages for a player before the game; may be none."""

    @abstractmethod
    def asked(self, seat: int) -> Message:
        """What a player sees before a move."""

    @abstractmethod
    def play(self, text: str) -> Fault | None:
        """Take the mover's reply. After a fault the table is not asked again."""

    @abstractmethod
    def payoffs(self) -> tuple[float, float] | None:
        """What the players get, from -1 to 1; None before the end."""

    @abstractmethod
    def scripted(self, kind: str, seed: str) -> str:
        """A move of a scripted player, as text."""

    def record(self, seat: int) -> JsonDict:
        """The facts of a player's side of the game that are worth keeping."""
        return {}

    def close(self) -> None:
        """Free its resources."""
        return None


class RulesTable(Table):
    """A game whose rules are known here, so that there are scripted players."""

    def __init__(self, rules: Rules, position: Position, prompt: Prompt) -> None:
        self.rules = rules
        self.position = position
        self.prompt = prompt
        self.moves: list[str] = []
        self._decisions: tuple[list[list[str]], list[list[str]]] = ([], [])

    def turn(self) -> int:
        return self.position.mover

    def opening(self, seat: int) -> Sequence[Message]:
        values = {"game": self.rules.title, "seat": SEATS[seat], **self.position.view(seat)}
        how = self.prompt.text(self.rules.name.partition(":")[0], **values)
        text = self.prompt.text("system", rules=how.strip(), **values).strip()
        return [*([system(text)] if text else []), *self.prompt.examples(rules=how.strip(), **values)]

    def asked(self, seat: int) -> Message:
        moves = [f"[{move}]" for move in self.position.moves()]
        return user(self.prompt.text("turn", game=self.rules.title, moves=moves, **self.position.view(seat)))

    def play(self, text: str) -> Fault | None:
        said = read_move(text)
        if said is None:
            return "unreadable"
        by_name = {" ".join(move.casefold().split()): move for move in self.position.moves()}
        if said.move not in by_name:
            return "illegal" if said.bracketed or said.move in self.rules.words else "unreadable"
        move, mover = by_name[said.move], self.position.mover
        if self.rules.decides:
            self._decisions[mover].append([self.position.knowledge(mover), move])
        self.moves.append(move)
        self.position = self.position.after(move)
        return None

    def payoffs(self) -> tuple[float, float] | None:
        found = self.position.payoffs()
        return None if found is None else (found[0] / self.rules.unit, found[1] / self.rules.unit)

    def scripted(self, kind: str, seed: str) -> str:
        """It depends on the seed and the moves so far, so that a run can be repeated."""
        rng = Random(f"{seed}:{'/'.join(self.moves)}")
        if kind == RANDOM:
            return f"[{rng.choice(self.position.moves())}]"
        assert self.rules.perfect is not None, "checked before the run"
        return f"[{self.rules.perfect(self.position, rng)}]"

    def record(self, seat: int) -> JsonDict:
        found: JsonDict = {"moves": list(self.moves)}
        if self.rules.decides:
            found["decisions"] = [list(pair) for pair in self._decisions[seat]]
        return found


def check_script(rules: Rules, kind: str) -> None:
    """Raises ConfigError where the game has no such player."""
    if kind == PERFECT and rules.perfect is None:
        raise ConfigError(f"no perfect player of {rules.name} is known here", hint="use the opponent random, or a role")
