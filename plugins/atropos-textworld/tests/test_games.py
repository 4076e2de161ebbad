"""Games made for real: by the same seed the same, and won by their own plan."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from atropos_textworld.engine.build import portable, prove
from atropos_textworld.engine.fleet import Session
from atropos_textworld.environment import TextWorldEnvironment
from atropos_textworld.games import registry
from atropos_textworld.games.kind import MadeGame
from atropos_textworld.games.knowledge import Tracer, share_knowledge_bases, walkthroughs
from atropos_textworld.games.spec import DIFFICULTIES, PLAN_BANDS, GameError, GameSpec

pytestmark = pytest.mark.filterwarnings("ignore:Not enough variation")


@pytest.fixture(scope="module", autouse=True)
def shared_knowledge() -> None:
    """As in a builder process."""
    share_knowledge_bases()


GAMES = [
    pytest.param(kind, difficulty, marks=[] if difficulty in ("easy", "medium") else [pytest.mark.slow])
    for kind in sorted(registry.kinds())
    for difficulty in DIFFICULTIES
]
COMPILED = ("mixed-adventure", "puzzle-combination-lock", "puzzle-weight", "puzzle-light", "tw-cooking")
"""One kind for each of our knowledge bases, and the challenge with the largest one."""


@pytest.mark.parametrize(("kind", "difficulty"), GAMES)
def test_every_kind_is_won_by_its_plan_and_no_sooner(kind: str, difficulty: str) -> None:
    made = registry.make(GameSpec(kind, difficulty, 1, "test"))
    plan = prove(made)
    if registry.kinds()[kind].origin == "generated":
        assert plan == made.plan
        assert PLAN_BANDS[difficulty][0] <= len(plan) <= PLAN_BANDS[difficulty][1]
        assert made.game.objective
    tracer = Tracer(made.game)
    for command in plan[:-1]:
        tracer.perform(command)
        assert not tracer.progress.done
    tracer.perform(plan[-1])
    assert tracer.progress.completed
    assert tracer.progress.score == made.game.max_score > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind.name for kind in registry.matching("") if kind.origin == "generated"])
def test_many_seeds_of_every_generated_kind(kind: str) -> None:
    for difficulty in DIFFICULTIES:
        for seed in range(20):
            made = registry.make(GameSpec(kind, difficulty, seed))
            assert prove(made) == made.plan


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
    with walkthroughs(trace=True):
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


SOME = ["mixed-adventure", "puzzle-light", "tw-cooking"]


@pytest.mark.parametrize("kinds", [SOME, pytest.param(sorted(registry.kinds()), marks=pytest.mark.slow)], ids=len)
def test_the_same_spec_is_the_same_game_in_any_process(kinds: list[str]) -> None:
    """Whatever the hash seed, and whatever was made before in the process."""
    specs = [GameSpec(kind, "medium", 5).as_json() for kind in kinds]
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


async def agrees(environment: TextWorldEnvironment, spec: GameSpec) -> None:
    """The compiled game offers every command of the plan, does it, and is won with full score by the last one."""
    record, session = await environment._play(spec)
    for command in record.plan:
        assert command in session.last.commands
        assert not session.last.done
        assert (await session.step(command)).acted, command
    assert session.last.won
    assert session.last.score == record.max_score
    await session.close()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("kind", COMPILED)
async def test_compiled_games_agree_with_their_plans(shared: Any, kind: str) -> None:
    await agrees(shared(), GameSpec(kind, "medium", 7))


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("kind", sorted(registry.kinds()))
@pytest.mark.parametrize("difficulty", ["easy", "expert"])
async def test_all_compiled_games_agree_with_their_plans(shared: Any, kind: str, difficulty: str) -> None:
    await agrees(shared(), GameSpec(kind, difficulty, 3, "valid"))


async def plan_until(environment: TextWorldEnvironment, kind: str, verb: str) -> tuple[Session, str]:
    """A game played by its plan up to the first command with this verb, and that command."""
    record, session = await environment._play(GameSpec(kind, "medium", 7))
    for command in record.plan:
        if command.startswith(verb):
            return session, command
        await session.step(command)
    raise AssertionError(f"no {verb!r} in the plan")


@pytest.mark.asyncio(loop_scope="module")
async def test_only_the_right_number_opens_a_safe(shared: Any) -> None:
    session, right = await plan_until(shared(), "puzzle-combination-lock", "dial")
    dials = [command for command in session.last.commands if command.startswith("dial")]
    assert right in dials
    assert len(dials) > 3
    for command in dials:
        if command != right:
            assert "Nothing else happens" in (await session.step(command)).text
    assert not [command for command in session.last.commands if command.startswith("open")]
    assert "a bolt slides back" in (await session.step(right)).text
    assert [command for command in session.last.commands if command.startswith("open")]
    assert "nothing to dial on" in (await session.step(right.rpartition(" on ")[0] + " on safe")).text
    await session.close()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_shaft_needs_a_burning_lantern_in_hand(shared: Any) -> None:
    session, kindle = await plan_until(shared(), "puzzle-light", "kindle")
    await session.step(kindle)
    lantern = kindle.removeprefix("kindle ")
    await session.close()
    session, traverse = await plan_until(shared(), "puzzle-light", "traverse")
    await session.step(f"drop {lantern}")
    assert traverse not in session.last.commands
    refused = await session.step(traverse)
    assert not refused.acted
    assert "pitch dark" in refused.text
    await session.step(f"take {lantern}")
    assert (await session.step(traverse)).acted
    assert any(command.startswith("traverse") for command in session.last.commands)
    await session.close()


@pytest.mark.asyncio(loop_scope="module")
async def test_only_a_weight_works_a_plate(shared: Any) -> None:
    session, put = await plan_until(shared(), "puzzle-weight", "put")
    gate = next(c for c in session.last.commands if c.startswith("examine") and c.endswith("gate"))
    assert "welded shut" in (await session.step(gate.replace("examine", "open"))).text
    assert "no longer locked" in (await session.step(put)).text
    assert gate.replace("examine", "open") in session.last.commands
    await session.close()
