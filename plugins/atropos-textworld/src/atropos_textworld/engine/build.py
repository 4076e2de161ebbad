"""Making a game from its spec: generate, prove that its plan wins, compile. Runs in a builder process."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from atropos_textworld.engine.cache import GameCache, GameRecord, content_key
from atropos_textworld.games import registry
from atropos_textworld.games.kind import MadeGame
from atropos_textworld.games.spec import GameError, GameSpec

LONGEST_PLAN = 300


def build(spec: GameSpec, cache: GameCache, phase: Callable[[str], None]) -> GameRecord:
    """Make and compile the spec's game unless the cache has it; `phase` is told when compiling begins.

    Raises GameError when the game cannot be made or its plan does not win it.
    """
    from textworld.generator import generate_inform7_source

    from atropos_textworld.games.knowledge import command_forms

    started = time.process_time()
    made = registry.make(spec)
    plan = tuple(command.lower() for command in prove(made))
    source = generate_inform7_source(made.game)
    key = content_key(source)
    record = GameRecord(
        spec=spec,
        key=key,
        objective=made.game.objective,
        plan=plan,
        forms=command_forms(made.game),
        max_score=int(made.game.max_score),
        make_seconds=time.process_time() - started,
    )
    if not cache.has_game(key):
        phase("compile")
        _compile(made.game, source, cache, key)
    cache.put_record(record)
    return record


def prove(made: MadeGame) -> tuple[str, ...]:
    """Replay the plan by the game's logic; the commands that were possible, up to the win.

    Plans of the challenges hold commands for what is already done (opening an open door): those
    are left out. Also strips the game of everything that could give the plan away or make
    TextWorld search for one. Raises GameError when the plan does not win.
    """
    from atropos_textworld.games.knowledge import Tracer

    game = made.game
    for quest in game.quests:
        quest.commands = ()
        for event in (*quest.win_events, *quest.fail_events):
            event.actions, event.commands = (), ()
    game.metadata = {}
    tracer = Tracer(game)
    done: list[str] = []
    for command in made.plan[:LONGEST_PLAN]:
        if tracer.progress.done:
            break
        if tracer.perform(command) is not None:
            done.append(command)
    if not done or not tracer.progress.completed:
        raise GameError(f"the plan of {len(made.plan)} commands does not win the game")
    return tuple(done)


def _compile(game: Any, source: str, cache: GameCache, key: str) -> None:
    from textworld.generator import CouldNotCompileGameError
    from textworld.generator.inform7 import compile_inform7_game

    work = Path("compile")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    try:
        compile_inform7_game(source, str(work / "game.z8"))
    except CouldNotCompileGameError as error:
        raise GameError(f"the game does not compile: {str(error)[-400:]}") from error
    unfinished = cache.unfinished()
    try:
        shutil.copyfile(work / "game.z8", unfinished)
        unfinished.with_suffix(".json").write_text(json.dumps(portable(game)), encoding="utf-8")
        cache.put_game(key, unfinished)
    finally:
        cache.discard(unfinished)
        shutil.rmtree(work, ignore_errors=True)


def portable(game: Any) -> Any:
    """The game as JSON, without the path of this machine's text grammars, which only generating needs."""
    data = game.serialize()
    data["KB"]["text_grammars_path"] = "text_grammars"
    return data
