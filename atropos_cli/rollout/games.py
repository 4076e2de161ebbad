"""Play games of several players: one rollout for each side that the policy plays."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, Unpack

from atropos_cli.domain.messages import Message
from atropos_cli.domain.plan import Sampling
from atropos_cli.domain.rollout import Rollout
from atropos_cli.domain.task import Task
from atropos_cli.errors import ContextOverflow, PluginError
from atropos_cli.ports.backend import Generation
from atropos_cli.ports.environment import Episode, Game, GameEnvironment, RoleModel
from atropos_cli.rollout.dispatch import GroupBudget
from atropos_cli.rollout.episodes import EpisodeState, together
from atropos_cli.rollout.prefill import Wishes, turn_seed
from atropos_cli.rollout.returned import game_of, seen_of

T = TypeVar("T")


class Roller(Protocol):
    """What a GroupRoller offers here."""

    group_id: str
    group_size: int
    seed: int
    budget: GroupBudget
    over: int

    def models_of(self, asker: int | str) -> Mapping[str, RoleModel]: ...

    def opponents(self) -> Sequence[str]: ...

    def sampling_of(self, role: str) -> Sampling: ...

    async def sample(
        self, messages: Sequence[Message], *, sampling: Sampling | None = None, **asked: Unpack[Wishes]
    ) -> list[Generation]: ...

    async def in_time(self, awaitable: Awaitable[T]) -> T: ...


class _Seat(Episode):
    """One player of a game, as far as the record of a rollout asks an episode."""

    def __init__(self, game: Game, player: str) -> None:
        self._game = game
        self._player = player

    def reset(self) -> Sequence[Message]:
        raise AssertionError("games are reset as a whole")

    def step(self, reply: Message) -> None:
        raise AssertionError("games go on as a whole")

    def result(self) -> Any:
        return self._game.result(self._player)

    def metrics(self) -> dict[str, float]:
        return self._game.metrics(self._player)


async def play_games(roller: Roller, environment: GameEnvironment, task: Task) -> list[Rollout]:
    """The rollouts of group_size games, by game and seat."""
    games: list[_Match] = []
    try:
        for number in range(roller.group_size):
            games.append(_Match(roller, number, game_of(environment, task)))
        await together(game.play() for game in games)
        return [state.rollout(roller.group_id, task) for game in games for state in game.states.values()]
    finally:
        await together(game.close() for game in games)


class _Match:
    """One game while it is played."""

    def __init__(self, roller: Roller, number: int, game: Game) -> None:
        players = list(game.players)
        others = set(roller.opponents())
        first = number * len(players)
        self.roller = roller
        self.game = game
        self.models = roller.models_of(first)
        self.states = {
            player: EpisodeState(first + seat, _Seat(game, player), role=player)
            for seat, player in enumerate(players)
            if player not in others
        }
        self.heard: dict[str, list[Message]] = {player: [] for player in players if player in others}
        if not self.states:
            raise PluginError(
                f"{type(game).__name__}: each player has a model of its own ({', '.join(players)}), so none is trained",
                hint=f"leave out --role.{players[0]}.model, so that the policy plays {players[0]}",
            )

    async def play(self) -> None:
        """Play to the end. What fails, fails for all sides."""
        try:
            self._tell("reset", await self._await(self.game.reset()))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin's error is these rollouts' failure
            self._fail("reset", error)
        while not self._over:
            player = ""
            try:
                player = self.game.turn()
                reply = await self._reply(player)
                if reply is None:
                    return
                seen = await self._await(self.game.step(player, reply))
                if seen is None:
                    self._end(player)
                    return
                self._tell("step", seen)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin's error is these rollouts' failure
                self._fail("environment", error)

    async def close(self) -> None:
        """Close the game; an error counts where nothing else went wrong."""
        try:
            await self._await(self.game.close())
        except (Exception, SystemExit) as error:  # noqa: BLE001 - too late to matter for rollouts that were recorded
            self._fail("environment", error)

    @property
    def _over(self) -> bool:
        return any(state.over for state in self.states.values())

    async def _reply(self, player: str) -> Message | None:
        """A player's reply; None where none came, which ends the game."""
        side = self._side(player, "turn")
        if not side or side[-1].role == "assistant":
            raise ValueError(f"turn() said {player!r}, who has seen nothing to reply to")
        if player in self.heard:
            return await self._opponent(player)
        state, before = self.states[player], self.roller.budget.retries
        try:
            asked = state.wishes(turn_seed(self.roller.seed, state.number, len(state.messages)))
            sampling = self.roller.sampling_of(player)
            generation = (await self.roller.sample(state.messages, sampling=sampling, **asked))[0]
        except ContextOverflow as error:
            self._overflow(state, error)
            return None
        except (Exception, SystemExit) as error:  # noqa: BLE001 - becomes the rollouts' failure
            self._fail("generate", error)
            return None
        finally:
            state.requests += 1
            state.retries += self.roller.budget.retries - before
        return state.take(generation, generation.completions[0], state.trail.prompt_span(generation.prompt_ids))

    async def _opponent(self, player: str) -> Message | None:
        try:
            reply = await self.models[player].reply(self.heard[player])
        except (Exception, SystemExit) as error:  # noqa: BLE001 - becomes the rollouts' failure
            self._fail("generate", error)
            return None
        self.heard[player].append(reply)
        return reply

    def _tell(self, method: str, seen: Any) -> None:
        for player, messages in seen_of(self.game, method, seen).items():
            self._side(player, method).extend(messages)

    def _side(self, player: str, method: str) -> list[Message]:
        """What a player has seen and said. Raises ValueError for a name that is none of theirs."""
        if player in self.states:
            return self.states[player].messages
        if player not in self.heard:
            players = ", ".join([*self.states, *self.heard])
            raise ValueError(f"{method}() said {player!r}, and the players are {players}")
        return self.heard[player]

    def _end(self, last: str) -> None:
        self.roller.over += len(self.states)
        for player, state in self.states.items():
            cut = state.stop if player == last else None
            state.over, state.stop = True, self.game.stop_reason or cut or "done"

    def _overflow(self, state: EpisodeState, error: ContextOverflow) -> None:
        """As in an episode: with turns the sides are kept, truncated; without any they fail."""
        if any(message.role == "assistant" for message in state.messages):
            for each in self.states.values():
                each.over, each.stop = True, "context_length"
            self.roller.over += len(self.states)
        else:
            self._fail("generate", error)

    def _fail(self, stage: Any, error: BaseException) -> None:
        for state in self.states.values():
            if state.failure is None:
                state.fail(stage, error, type(self.game).step if stage == "environment" else None)

    async def _await(self, value: Any) -> Any:
        return await self.roller.in_time(value) if inspect.isawaitable(value) else value
