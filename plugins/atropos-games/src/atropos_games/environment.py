"""The environment `games`: two-player games, one rollout for each side that the policy plays."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from random import Random

from pydantic import model_validator

from atropos_cli.sdk import (
    Config,
    ConfigError,
    Field,
    GameEnvironment,
    GroupContext,
    JsonDict,
    Rollout,
    ScoredGroup,
    Task,
    TaskStream,
    reward,
)
from atropos_cli.sdk.prompts import packaged_prompt
from atropos_games import connectfour, kuhn, tictactoe
from atropos_games.match import Match, Pairing
from atropos_games.rules import SEATS, Rules, opened
from atropos_games.tables import PERFECT, RANDOM, RulesTable, Table, check_script

SELF = "self"
OWN = {module.RULES.name: module.RULES for module in (tictactoe, connectfour, kuhn)}
TEXTARENA, OPENSPIEL = "textarena", "openspiel"


class GamesConfig(Config):
    """Which game, against whom."""

    game: str = Field(
        default="tictactoe",
        description="tictactoe, connectfour, kuhn, textarena:ID (such as textarena:SimpleNegotiation-v0) or "
        "openspiel:NAME (such as openspiel:leduc_poker).",
    )
    opponent: tuple[str, ...] = Field(
        default=(SELF,),
        min_length=1,
        description="self, random, perfect (tictactoe, kuhn), or the name of a role with a model, --role.NAME.model; "
        "several take turns.",
    )
    opening_plies: int = Field(
        default=0, ge=0, le=20, description="Random moves before a game begins (tictactoe, connectfour)."
    )
    max_turns: int = Field(
        default=50, ge=1, description="Moves of both players, after which a game ends with reward 0 for both."
    )
    data_seed: int = Field(default=0, description="Another seed gives other deals, openings and scripted moves.")

    @model_validator(mode="after")
    def _of_this_game(self) -> GamesConfig:
        family, colon, _ = self.game.partition(":")
        if self.game not in OWN and (family not in (TEXTARENA, OPENSPIEL) or not colon):
            raise ValueError(f"game {self.game!r} is none of {', '.join(OWN)}, textarena:ID, openspiel:NAME")
        if self.opening_plies and not (self.game in OWN and OWN[self.game].opens):
            raise ValueError("opening_plies is for tictactoe and connectfour")
        names = {SELF, RANDOM, PERFECT, *SEATS}
        for name in self.opponent:
            if name in SEATS or (name not in names and not name.isidentifier()):
                raise ValueError(f"opponent {name!r} is none of self, random, perfect and no name for a role")
        return self


@reward(name="games_payoff")
def payoff(task: Task, rollout: Rollout) -> float:
    """What the game paid this side: 1 won, -1 lost, 0 drawn or cut off; -1.5 and 0.5 after an invalid move."""
    value = rollout.info.get("payoff")
    return float(value) if isinstance(value, int | float) else 0.0


class GamesEnvironment(GameEnvironment):
    """Games by number; against others than itself the policy plays each start once from each seat."""

    name = "games"
    Config = GamesConfig
    rewards = (payoff,)
    splits = ("train", "test")
    prompt = packaged_prompt(__file__)
    config: GamesConfig

    def __init__(self, config: GamesConfig) -> None:
        super().__init__(config)
        family, _, name = config.game.partition(":")
        self._rules: Rules | None = OWN.get(config.game)
        if family == OPENSPIEL:
            from atropos_games.openspiel import rules_of

            self._rules = rules_of(name)
        elif family == TEXTARENA:
            from atropos_games.arena import check_game

            check_game(name)
        for kind in config.opponent:
            if kind in (RANDOM, PERFECT) and self._rules is not None:
                check_script(self._rules, kind)
            elif kind in (RANDOM, PERFECT):
                raise ConfigError(
                    f"opponent {kind}: textarena does not say which moves are legal",
                    hint="use the opponent self, or a role with a model",
                )
        self._seats = [(name, seat) for name in config.opponent for seat in ((0,) if name == SELF else (0, 1))]

    @classmethod
    def varied_groups(cls, config: GamesConfig, others: Collection[str]) -> str | None:
        """Against itself the policy plays both sides, unless a seat has a model of its own."""
        alone = SELF not in config.opponent or not {*SEATS}.isdisjoint(others)
        return None if alone else "a game against itself makes two rollouts"

    def tasks(self, split: str) -> TaskStream:
        """Task i depends on the seed, the split and i, and on nothing else."""
        return TaskStream(lambda index: self._task(split, index))

    def game(self, task: Task) -> Match:
        """A game from the task's start."""
        name, key = str(task.info["opponent"]), str(task.info["key"])
        seat = str(task.info.get("seat", SEATS[0]))
        own = SEATS.index(seat)
        players = [*SEATS]
        scripted = None
        if name in (RANDOM, PERFECT):
            scripted = (1 - own, name)
        elif name != SELF:
            players[1 - own] = name
        told = str(task.info.get("opponent_model") or name)
        pairing = Pairing((players[0], players[1]), told, scripted, f"{key}:{seat}", self.config.max_turns)
        return Match(self._table(key), pairing)

    async def roll_group(self, task: Task, context: GroupContext) -> AsyncIterator[ScoredGroup]:
        """As for any game; the task says which model the opponent is."""
        name = str(task.info["opponent"])
        if name not in (SELF, RANDOM, PERFECT) and name not in context.opponents():
            raise ConfigError(
                f"opponent {name}: the role has no model of its own; --role.{name}.model MODEL gives it one",
                hint=f"in train, --role.{name}.refresh N has an earlier policy play it",
            )
        roles = [role for role in (name, *SEATS) if role in context.opponents()]
        if roles:
            model = context.models[roles[0]].describe().get("model")
            task = task.replace(info={**task.info, "opponent_model": str(model or roles[0])})
        async for group in context.roll_games(self, task):
            yield group

    def _task(self, split: str, index: int) -> Task:
        name, seat = self._seats[index % len(self._seats)]
        start = index // len(self._seats)
        info: JsonDict = {
            # A player meets other odds against another opponent: averages by game and role are kept apart.
            "task_name": self.config.game if name == SELF else f"{self.config.game} against {name}",
            "game": self.config.game,
            "opponent": name,
            **({} if name == SELF else {"seat": SEATS[seat]}),
            "key": f"{self.config.data_seed}:{split}:{start}",
        }
        where = "" if name == SELF else f"-{name}-{SEATS[seat]}"
        return Task(id=f"{self.config.game}-{split}-{start}{where}", info=info)

    def _table(self, key: str) -> Table:
        if self._rules is not None:
            return RulesTable(self._rules, opened(self._rules, Random(key), self.config.opening_plies), self.prompt)
        from atropos_games.arena import ArenaTable

        return ArenaTable(self.config.game.partition(":")[2], Random(key).randrange(2**31), self.prompt)
