"""TextWorld's knowledge bases, loaded once for each process, and a faster `set_walkthrough`.

A knowledge base costs 0.2 to 0.3 CPU seconds to load, and the challenges load theirs for every
game; games share them, so one copy is enough. Files are read in sorted order, because the order
ends up in the games' source and would differ between file systems.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

LOGIC = Path(__file__).parent / "logic"
"""Our additions to the default knowledge base, one file for each."""


@cache
def knowledge_base(name: str) -> Any:
    """The default knowledge base, or the default one with games/logic/NAME.twl added."""
    from textworld.generator.data import LOGIC_DATA_PATH, TEXT_GRAMMARS_PATH

    extra = () if name == "default" else (LOGIC / f"{name}.twl",)
    return _load(Path(LOGIC_DATA_PATH), TEXT_GRAMMARS_PATH, extra)


@cache
def _load(logic: Path, grammar: str, extra: tuple[Path, ...] = ()) -> Any:
    from textworld.generator.data import KnowledgeBase
    from textworld.logic import GameLogic

    base = KnowledgeBase(GameLogic.load([str(path) for path in (*sorted(logic.glob("*.twl")), *extra)]), grammar)
    base.logic_path = str(logic)
    return base


def share_knowledge_bases() -> None:
    """Make `KnowledgeBase.load` give one object for each folder. For a builder process, at its start."""
    from textworld.generator.data import LOGIC_DATA_PATH, TEXT_GRAMMARS_PATH, KnowledgeBase

    def load(target_dir: Any = None, logic_path: Any = None, grammar_path: Any = None) -> Any:
        if target_dir:
            logic_path, grammar_path = Path(target_dir, "logic"), str(Path(target_dir, "text_grammars"))
        return _load(Path(logic_path or LOGIC_DATA_PATH), str(grammar_path or TEXT_GRAMMARS_PATH))

    KnowledgeBase.load = staticmethod(load)


@contextmanager
def walkthroughs(*, trace: bool) -> Iterator[list[str]]:
    """While open, `GameMaker.set_walkthrough` does not compile and play the game (0.6 CPU seconds).

    With trace it asks TextWorld's tracker which actions trigger which event, and comes to the same.
    Without, the game has no text that describes the steps. The list holds the last walkthrough set.
    """
    from textworld import GameMaker

    original = GameMaker.set_walkthrough
    last: list[str] = []

    def set_walkthrough(maker: Any, commands: list[str]) -> None:
        last[:] = commands
        if trace:
            _set_walkthrough(maker, commands)

    GameMaker.set_walkthrough = set_walkthrough
    try:
        yield last
    finally:
        GameMaker.set_walkthrough = original


def _set_walkthrough(maker: Any, commands: list[str]) -> None:
    tracer = Tracer(maker.build())
    events = [event for quest in tracer.progress.quest_progressions for event in quest.win_events]
    actions: list[Any] = []
    triggered: list[tuple[Any, list[Any], list[str]]] = []
    for count, command in enumerate(commands, start=1):
        waiting = [event for event in events if not event.triggered]
        action = tracer.perform(command)
        if action is None:
            raise ValueError(f"the walkthrough's command {command!r} is not possible")
        actions.append(action)
        triggered += [(e.event, list(actions), list(commands[:count])) for e in waiting if e.triggered]
    for event, its_actions, its_commands in triggered:
        event.actions, event.commands = its_actions, its_commands


def command_forms(game: Any) -> tuple[str, ...]:
    """The commands a game knows, with capitals for what is to be filled in: "put THING on THING"."""
    forms = {
        re.sub(r"\{(\w+)\}", lambda match: "NUMBER" if match[1] == "number" else "THING", command)
        for command in game.kb.inform7_commands.values()
    }
    return tuple(sorted(forms))


class Tracer:
    """Plays a game by its logic alone: no text, no compiled file, about 1 ms a command."""

    def __init__(self, game: Any) -> None:
        from textworld.generator.game import GameProgression
        from textworld.generator.inform7 import Inform7Game

        self.progress = GameProgression(game)
        self._texts = Inform7Game(game)

    def perform(self, command: str) -> Any:
        """Do one command; the action it was, or None when it is not possible now.

        Several actions may share a command; the one with most preconditions is meant, which is
        also how TextWorld reads the compiled game.
        """
        actions = self.progress.valid_actions
        named = [
            action
            for action, text in zip(actions, self._texts.gen_commands_from_actions(actions), strict=True)
            if text == command
        ]
        if not named:
            return None
        action = max(named, key=lambda action: len(action.preconditions))
        self.progress.update(action)
        return action
