"""Calls of tools: results, mistakes, limits of time, isolation, threads."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from atropos_cli.domain.messages import FunctionCall, ToolCall
from atropos_cli.errors import PluginError
from atropos_cli.tools.toolbox import EndEpisode, Limits, Toolbox, ToolError


def add(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


async def wait(seconds: float) -> dict[str, float]:
    """Wait."""
    await asyncio.sleep(seconds)
    return {"waited": seconds}


def sleep(seconds: float) -> str:
    """Sleep."""
    time.sleep(seconds)
    return threading.current_thread().name


def refuse() -> None:
    """Refuse."""
    raise ToolError("not today")


def crash() -> None:
    """Crash."""
    raise SystemExit(3)


def end(text: str) -> None:
    """End."""
    raise EndEpisode(text)


@asynccontextmanager
async def opened(make: Callable[[], Any], **limits: Any) -> AsyncIterator[Toolbox]:
    box = Toolbox(make, Limits(**limits))
    await box.open()
    try:
        yield box
    finally:
        await box.close()


async def ask(box: Toolbox, tool: str, /, **arguments: Any) -> tuple[str, str]:
    call = ToolCall(id="1", function=FunctionCall(name=tool, arguments=json.dumps(arguments)))
    outcome = await box.call(call)
    return outcome.kind, outcome.text


ALL = (add, wait, sleep, refuse, crash, end)


async def test_results_are_texts() -> None:
    async with opened(lambda: ALL) as box:
        assert await ask(box, "add", a=2) == ("ok", "3")
        assert await ask(box, "wait", seconds=0) == ("ok", '{"waited":0.0}')
        assert await ask(box, "sleep", seconds=0) == ("ok", "atropos-tools")


def names_of_files() -> dict[str, Any]:
    """As the system gives them: half surrogates, bytes."""
    return {"a\udcff": ["b\ud800", b"\xff", b"ok", {1}]}


async def test_names_of_files_are_results() -> None:
    async with opened(lambda: (names_of_files,)) as box:
        kind, text = await ask(box, "names_of_files")
    assert kind == "ok"
    assert json.loads(text) == {"a\udcff": ["b\ud800", "b'\\xff'", "b'ok'", "{1}"]}


async def test_mistakes_are_told_and_never_raised() -> None:
    async with opened(lambda: ALL) as box:
        assert await ask(box, "refuse") == ("error", "error: not today")
        assert (await ask(box, "crash"))[0] == "error"
        assert await ask(box, "add") == ("refused", "error: the argument 'a' is missing")
        assert await ask(box, "add", a="2") == ("refused", "error: the argument 'a' has the wrong type")
        assert (await ask(box, "none"))[1].startswith("error: there is no tool 'none'; there are: add, wait")


ENOUGH = threading.Event()
"""Ends the rows without end: a thread that is inside pydantic when Python ends takes pytest with it, by SIGABRT."""


def endless() -> Iterator[int]:
    """Rows without end."""
    while not ENOUGH.wait(0.01):
        yield 1


def circle() -> dict[str, Any]:
    """No JSON."""
    found: dict[str, Any] = {}
    found["me"] = found
    return found


def silent() -> None:
    """An exception without a text."""

    class Silent(Exception):
        def __str__(self) -> str:
            raise ValueError

    raise Silent


def over() -> None:
    """An exception that no future takes."""
    raise StopIteration


def refused_connection() -> None:
    """A time limit of its own."""
    raise TimeoutError("no answer of the database")


def leak() -> None:
    """A key in the text."""
    raise ValueError("https://someone:pass-4711-word@db.example/ refused")


async def leave() -> None:
    """An asynchronous end."""
    raise SystemExit(3)


async def give_up() -> None:
    """Cancelled by its own."""
    raise asyncio.CancelledError


ODD = (endless, circle, silent, over, refused_connection, leak, leave, give_up)


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("circle", "Circular"),
        ("silent", "Silent"),
        ("over", "StopIteration"),
        ("refused_connection", "TimeoutError: no answer of the database"),
        ("leak", "[secret]@db.example"),
        ("leave", "SystemExit"),
        ("give_up", "cancelled"),
    ],
)
async def test_no_error_of_a_tool_leaves_it(tool: str, words: str) -> None:
    async with opened(lambda: ODD, seconds=5) as box:
        kind, text = await ask(box, tool)
    assert (kind, words in text) == ("error", True), text


async def test_the_time_limit_covers_the_writing_of_the_result() -> None:
    async with opened(lambda: ODD, seconds=0.2) as box:
        assert await ask(box, "endless") == ("timeout", "error: endless took longer than 0.2 s")
        ENOUGH.set()


async def test_the_run_can_still_be_cancelled() -> None:
    async with opened(lambda: ALL) as box:
        task = asyncio.create_task(ask(box, "wait", seconds=30))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_refusals_are_cut_too() -> None:
    async with opened(lambda: ALL, characters=50) as box:
        assert len((await ask(box, "n" * 10_000))[1]) < 100
        assert len((await ask(box, "add", **{"y" * 10_000: 1}))[1]) < 100


async def test_the_end_is_told() -> None:
    async with opened(lambda: ALL) as box:
        call = ToolCall(function=FunctionCall(name="end", arguments='{"text": "done"}'))
        outcome = await box.call(call)
    assert (outcome.over, outcome.text) == (True, "done")


async def test_slow_tools_end_in_time_and_the_next_one_runs() -> None:
    began = time.monotonic()
    async with opened(lambda: ALL, seconds=0.2) as box:
        assert await ask(box, "wait", seconds=30) == ("timeout", "error: wait took longer than 0.2 s")
        assert await ask(box, "sleep", seconds=4) == ("timeout", "error: sleep took longer than 0.2 s")
        assert await ask(box, "add", a=1) == ("ok", "2")
    assert time.monotonic() - began < 3


async def test_long_results_are_cut() -> None:
    async with opened(lambda: (add,), characters=3) as box:
        assert await ask(box, "add", a=99999) == ("ok", "100\n... (3 more characters)")


async def test_an_object_lives_in_one_thread_and_is_closed() -> None:
    closed = []

    class Base:
        def __init__(self) -> None:
            self._connection = sqlite3.connect(":memory:")  # complains of any other thread

        def run(self, sql: str) -> list[Any]:
            """Run."""
            return self._connection.execute(sql).fetchall()

        def close(self) -> None:
            self._connection.close()
            closed.append(threading.current_thread().name)

    async with opened(Base) as box:
        assert await ask(box, "run", sql="SELECT 1, 2") == ("ok", "[[1,2]]")
    assert closed == ["atropos-tools"]


ISOLATED = '''
import os, time
from datetime import date
from pydantic import BaseModel


def pid() -> int:
    """The process."""
    return os.getpid()


def environment(name: str) -> str:
    """A variable."""
    return os.environ.get(name, "none")


def hang() -> None:
    """Never ends."""
    while True:
        time.sleep(1)


def fail() -> None:
    """Fails."""
    raise ValueError("it is broken")


class Place(BaseModel):
    zone: int


async def where(place: Place, day: date) -> str:
    """Asynchronous, with types of its own."""
    return f"{place!r} {day!r}"


def rows():
    """A generator."""
    yield Place(zone=1)


def names():
    return ["b\\ud800", b"\\xff"]
'''


def load(path: Path) -> Any:
    import importlib.util

    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_isolated_tools_run_in_processes_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "mine.py").write_text(ISOLATED)
    for place in (folder, *folder.parents):
        if place.stat().st_uid == folder.stat().st_uid and place != Path("/"):
            place.chmod(0o755)
    monkeypatch.setenv("A_SECRET", "told")
    mine = load(folder / "mine.py")
    tools = (mine.pid, mine.environment, mine.hang, mine.fail, mine.where, mine.rows, mine.names)
    async with opened(lambda: tools, seconds=2, isolated=True) as box:
        first, second = await ask(box, "pid"), await ask(box, "pid")
        assert first[0] == "ok", first[1]
        assert first != second
        assert await ask(box, "environment", name="A_SECRET") == ("ok", "none")
        assert await ask(box, "hang") == ("timeout", "error: hang took longer than 2 s")
        assert await ask(box, "fail") == ("error", "error: ValueError: it is broken")
        told = await ask(box, "where", place={"zone": 2.0}, day="2026-01-02")
        assert told == ("ok", "Place(zone=2) datetime.date(2026, 1, 2)")
        assert await ask(box, "rows") == ("ok", '[{"zone":1}]')
        assert await ask(box, "names") == ("ok", r"""["b\ud800", "b'\\xff'"]""")


async def test_tools_that_cannot_be_loaded_inside_are_no_answer_for_the_model(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import sys\nimport this_test\n\n\ndef get() -> int:\n    return 1\n")
    sys.modules["this_test"] = sys.modules[__name__]
    try:
        mine = load(tmp_path / "mine.py")
    finally:
        del sys.modules["this_test"]
    with pytest.raises(PluginError, match="no tools worker can be started"):
        async with opened(lambda: (mine.get,), isolated=True):
            pass


async def test_methods_cannot_be_isolated() -> None:
    class Box:
        def put(self) -> None:
            """Put."""

    with pytest.raises(PluginError, match="cannot be isolated"):
        async with opened(Box, isolated=True):
            pass
