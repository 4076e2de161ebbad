"""Whatever a model writes: no hang, no crash, no file, no secret, and the game goes on as if nothing was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from atropos_authoring import STRANGE_REPLIES
from atropos_textworld.engine.process import CallFailed
from atropos_textworld.engine.session import LONGEST_COMMAND
from atropos_textworld.games.spec import GameSpec

from atropos_cli.sdk import Task, assistant

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOSTILE = [
    *STRANGE_REPLIES,
    "\x00look",
    "look\x00",
    "lo\x00ok around",
    "look\nsave\nquit",
    "look\r\nrestart",
    "x" * 199,
    "take " + "é" * 150,
    "x" * 100_000,
    "> " + "open chest " * 11,
    "save",
    "restore",
    "script",
    "script on",
    "transcript",
    "restart",
    "yes",
    "quit",
    "y",
    "no",
    "print_state",
    "enable print state option",
    "superbrief",
    "restrict commands",
    "tw-extra-infos description",
    "tw-trace-actions",
    "tw-print max_score",
    "undo",
    "oops save",
    "oops",
    "again",
    "g",
    "verbose",
    "notify off",
    "version",
    "apple",
    "take all",
    "drop everything",
    "look. look. look",
    "look then quit",
    "me, quit",
    "say quit",
    "type save",
    "\N{ZERO WIDTH SPACE}save",
    "ｓａｖｅ",
    "s\N{COMBINING ACUTE ACCENT}ave",
    "*** The End ***",
    "</tool_call><tool_call>",
    "{}",
    "%s%n%d",
    "$(touch owned)",
    "`touch owned`",
    "../../etc/passwd",
    "\ud83d",
    "☃" * 300,
    "look " * 30,
    "x x x x x x x x x x x x x x x x x x x x x x",
    "<think>",
    "",
]


def files(folder: Path) -> set[str]:
    """Everything under a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


async def test_the_game_survives_everything(shared: Any, make_task: Callable[..., Task]) -> None:
    environment = shared(max_steps=1000, show_commands=True)
    task = make_task("tw-simple", "medium")
    plan = (await environment._runtime.pool.get(GameSpec.from_json(task.info))).plan
    clean, spoiled = environment.episode(task), environment.episode(task)
    await clean.reset()
    await spoiled.reset()
    pids, before = environment._runtime.fleet.pids(), files(environment._runtime.folder.path)

    for text in HOSTILE:
        answer = await spoiled.step(assistant(text))
        assert answer is not None, text
        shown = answer[0].text
        assert "answer yes or no" not in shown, text
        assert "-=STATE START=-" not in shown, text
        assert "[" not in shown, text
    assert (await spoiled.step(assistant("look")))[0].text == (await clean.step(assistant("look")))[0].text
    for command in plan[:-1]:
        ours, theirs = await spoiled.step(assistant(command)), await clean.step(assistant(command))
        assert ours[0].text == theirs[0].text
    assert await spoiled.step(assistant(plan[-1])) is None
    assert spoiled.result()["won"]
    assert spoiled.result()["score"] == spoiled.result()["max_score"]

    assert environment._runtime.fleet.pids() == pids
    assert files(environment._runtime.folder.path) == before
    assert spoiled.metrics()["refused_system"] > 15
    assert spoiled.metrics()["malformed_unclosed_think"] == 1
    await clean.close()
    await spoiled.close()


async def test_the_worker_refuses_what_was_not_sanitised(shared: Any, make_task: Callable[..., Task]) -> None:
    environment = shared()
    _, session = await environment._play(GameSpec.from_json(make_task("quest-fetch").info))
    process = session._home
    for command in ("look\nsave", "\x00", "a\x00b", "Look", "", "x" * (LONGEST_COMMAND + 1), "é"):
        with pytest.raises(CallFailed, match="unsafe command"):
            await process.ask("step", 5.0, session=session._name, command=command)
    assert (await session.step("look")).text
    await session.close()


async def test_nothing_is_played_after_the_end(shared: Any, make_task: Callable[..., Task]) -> None:
    """The interpreter itself would answer and forget that the game was won."""
    environment = shared()
    record, session = await environment._play(GameSpec.from_json(make_task("quest-fetch").info))
    for command in record.plan:
        end = await session.step(command)
    assert end.won
    assert end.text.endswith("*** The End ***")
    assert await session.step("look") == end
    await session.close()
