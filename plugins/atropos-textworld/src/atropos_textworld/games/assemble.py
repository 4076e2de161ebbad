"""Turns a blueprint into a TextWorld game."""

from __future__ import annotations

from typing import Any

from atropos_textworld.games.blueprint import INVENTORY, PLAYER, Blueprint, Door, Entity, Fact, Goal, Item, Room
from atropos_textworld.games.knowledge import knowledge_base
from atropos_textworld.games.spec import GameError


def assemble(blueprint: Blueprint, text_seed: int) -> Any:
    """A textworld.Game of the blueprint; `text_seed` chooses the wording of descriptions.

    Goals become quests with conditions and no actions: with actions TextWorld would look for a
    policy of its own, which does not always end.
    """
    from textworld import GameMaker, GameOptions

    options = GameOptions()
    options.seeds = text_seed
    options.kb = knowledge_base(blueprint.knowledge)
    return _Assembly(blueprint, GameMaker(options)).game()


class _Assembly:
    def __init__(self, blueprint: Blueprint, maker: Any) -> None:
        self.blueprint = blueprint
        self.maker = maker
        self.made: dict[Entity, Any] = {PLAYER: maker.player, INVENTORY: maker.inventory}

    def game(self) -> Any:
        """Everything in a fixed order, so that equal blueprints give equal games."""
        self._map()
        self._things()
        for name, entities in self.blueprint.facts:
            self.maker.add_fact(name, *(self.made[entity] for entity in entities))
        self.maker.set_player(self.made[self.blueprint.start])
        self.maker.quests = [self._quest(goal) for goal in self.blueprint.goals]
        game = self.maker.build()
        game.objective = self.blueprint.objective
        return game

    def _map(self) -> None:
        for room in self.blueprint.rooms:
            self.made[room] = self.maker.new_room(room.name)
        paths = {}
        for room in self.blueprint.rooms:
            for direction, other in room.exits.items():
                if room.index < other.index:
                    back = next(d for d, r in other.exits.items() if r is room)
                    ends = (self.made[room].exits[direction], self.made[other].exits[back])
                    paths[frozenset((room, other))] = self.maker.connect(*ends)
        for door in self.blueprint.doors:
            made = self.maker.new_door(paths[frozenset(door.rooms)], name=door.name)
            made.add_property(door.state)
            self.made[door] = made

    def _things(self) -> None:
        for item in self.blueprint.items:
            made = self.maker.new(type=item.type, name=item.name, desc=item.description)
            if item.type == "c":
                if item.state not in ("open", "closed", "locked"):
                    raise GameError(f"container {item.name!r} is {item.state!r}, not open, closed or locked")
                made.add_property(item.state)
            for name in ("edible", *item.properties) if item.type == "f" else item.properties:
                made.add_property(name)
            self.made[item] = made
        for item in self.blueprint.items:
            self._place(item)
        owners: list[Door | Item] = [*self.blueprint.doors, *self.blueprint.items]
        for owner in owners:
            if owner.key is not None:
                self.maker.add_fact("match", self.made[owner.key], self.made[owner])

    def _place(self, item: Item) -> None:
        if item.place is None:
            self.maker.nowhere.append(self.made[item])
        elif isinstance(item.place, Room | Item) or item.place == INVENTORY:
            self.made[item.place].add(self.made[item])
        else:
            raise GameError(f"{item.name} cannot be at {item.place!r}")

    def _quest(self, goal: Goal) -> Any:
        from textworld.generator.game import Event, Quest

        event = Event(conditions=[self._fact(fact) for fact in goal.facts])
        if goal.fails:
            return Quest(fail_events=[event])
        return Quest(win_events=[event], reward=goal.reward)

    def _fact(self, fact: Fact) -> Any:
        name, entities = fact
        return self.maker.new_fact(name, *(self.made[entity] for entity in entities))
