"""Games made for real: by the same seed the same, and won by their own plan."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from atropos_textworld.engine.build import portable, prove
from atropos_textworld.games import registry
from atropos_textworld.games.kind import MadeGame
from atropos_textworld.games.knowledge import Tracer, native_walkthrough, share_knowledge_bases
from atropos_textworld.games.spec import DIFFICULTIES, GameError, GameSpec

from atropos_cli.sdk import Task


@pytest.fixture(scope="module", autouse=True)
def shared_knowledge() -> None:
    """As in a builder process."""
    share_knowledge_bases()


@pytest.mark.parametrize("kind", sorted(registry.kinds()))
@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_every_kind_is_won_by_its_plan(kind: str, difficulty: str) -> None:
    for seed in (1, 2):
        made = registry.make(GameSpec(kind, difficulty, seed, "test"))
        plan = prove(made)
        tracer = Tracer(made.game)
        for command in plan[:-1]:
            tracer.perform(command)
            assert not tracer.progress.done
        tracer.perform(plan[-1])
        assert tracer.progress.completed
        assert tracer.progress.score == made.game.max_score > 0


def test_a_plan_that_does_not_win_is_refused() -> None:
    made = registry.make(GameSpec("quest-fetch", "easy", 1))
    with pytest.raises(GameError, match="does not win"):
        prove(MadeGame(made.game, made.plan[:-1]))
    with pytest.raises(GameError, match="does not win"):
        prove(MadeGame(made.game, ()))


def test_a_game_file_gives_nothing_away() -> None:
    """Neither the plan nor a path of this machine is in it."""
    made = registry.make(GameSpec("tw-simple", "medium", 4))
    prove(made)
    data = portable(made.game)
    assert data["metadata"] == {}
    assert all(not event["actions"] and not event["commands"] for q in data["quests"] for event in q["win_events"])
    text = json.dumps(data)
    assert sys.prefix not in text
    assert made.plan[-1] not in text


@pytest.mark.filterwarnings("ignore:Game .* is not fully supported")
def test_the_walkthrough_is_traced_as_by_playing_the_game() -> None:
    """TextWorld's own way compiles and plays the game; ours must give the same objective and actions."""
    from textworld import GameOptions
    from textworld.challenges import CHALLENGES

    def make() -> Any:
        options = GameOptions()
        options.seeds = 11
        return CHALLENGES["tw-simple"][1]({"rewards": "dense", "goal": "detailed", "test": False}, options)

    theirs = make()
    with native_walkthrough():
        ours = make()
    assert ours.objective == theirs.objective
    assert [event.actions for quest in ours.quests for event in quest.win_events] == [
        event.actions for quest in theirs.quests for event in quest.win_events
    ]
    assert ours.metadata == theirs.metadata


PRINT_CONTENT = """
import sys, json
from atropos_textworld.games import registry
from atropos_textworld.games.knowledge import share_knowledge_bases
from atropos_textworld.games.spec import GameSpec
from atropos_textworld.engine.build import prove
from atropos_textworld.engine.cache import content_key
from textworld.generator import generate_inform7_source
share_knowledge_bases()
for spec in json.loads(sys.argv[1]):
    made = registry.make(GameSpec.from_json(spec))
    plan = prove(made)
    print(spec["kind"], content_key(generate_inform7_source(made.game)), made.game.objective, plan)
"""


def test_the_same_spec_is_the_same_game_in_any_process() -> None:
    """Whatever the hash seed, and whatever was made before in the process."""
    specs = [GameSpec(kind, "hard", 5).as_json() for kind in sorted(registry.kinds())]
    outputs = []
    for hash_seed, order in (("1", specs), ("2", specs[::-1])):
        done = subprocess.run(
            [sys.executable, "-c", PRINT_CONTENT, json.dumps(order)],
            env={"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.append(sorted(done.stdout.splitlines()))
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == len(specs)


@pytest.mark.asyncio(loop_scope="module")
async def test_compiled_games_are_won_by_their_plans(shared: Any, make_task: Callable[..., Task]) -> None:
    environment = shared()
    for kind in sorted(registry.kinds()):
        assert await environment.validate(make_task(kind, "medium")), kind
