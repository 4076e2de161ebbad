"""Servers that behave, and those that do not: what the model reads, what fails the rollout, what fails the run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from atropos_mcp.config import McpConfig
from atropos_mcp.connection import ServerError
from atropos_mcp.source import McpTools
from atropos_mcp.translate import functions

from atropos_cli.sdk import ConfigError
from atropos_cli.sdk.tools import ToolResult

Odd = Callable[..., McpTools]
FAST = Path(__file__).with_name("fast_server.py")


def played(source: McpTools, *calls: tuple[str, dict[str, Any]]) -> list[ToolResult]:
    """The results of calls of one episode."""

    async def play() -> list[ToolResult]:
        try:
            await source.open(workers=2)
            session = source.session()
            results = [await session.call(name, arguments) for name, arguments in calls]
            await session.close()
            return results
        finally:
            await source.close()

    return asyncio.run(play())


def echo(text: str) -> tuple[str, dict[str, Any]]:
    return ("echo", {"text": text})


def names(source: McpTools) -> list[str]:
    async def look() -> list[str]:
        try:
            return [str(tool["function"]["name"]) for tool in await source.open(workers=1)]  # type: ignore[index,call-overload]
        finally:
            await source.close()

    return asyncio.run(look())


def test_a_server_of_the_package_over_stdio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-servers")
    monkeypatch.setenv("SHOP_CITY", "Kyiv")
    source = McpTools(f"{sys.executable} {FAST}", McpConfig(env=("SHOP_CITY",), timeout=60.0, shared=True))
    price, bad, first, second, variables = played(
        source,
        ("price", {"product": "lamp", "pieces": 3}),
        ("price", {"product": "sofa"}),
        ("keep", {"text": "a"}),
        ("keep", {"text": "b"}),
        ("variables", {}),
    )
    assert price == ToolResult("90")
    assert bad.error
    assert "price" in bad.text
    assert (first.text.split(), second.text.split()) == (["a"], ["a", "b"])  # one server, with a memory
    assert "SHOP_CITY" in variables.text
    assert "OPENAI_API_KEY" not in variables.text


def test_a_server_of_the_package_over_http() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    server = subprocess.Popen([sys.executable, str(FAST), str(port)], stderr=subprocess.DEVNULL)
    try:
        source = McpTools(f"http://127.0.0.1:{port}/mcp", McpConfig(timeout=60.0))
        for _ in range(300):
            try:
                assert played(source, ("price", {"product": "chair"})) == [ToolResult("80")]
                break
            except ConfigError:
                assert server.poll() is None
                time.sleep(0.1)
        else:
            pytest.fail("the server did not start")
    finally:
        server.kill()
        server.wait()
    with pytest.raises(ConfigError, match="ConnectError"):
        played(source)


def test_parts_of_a_result_in_order(odd: Odd) -> None:
    parts, structured, failed = played(odd(), echo("parts"), echo("structured"), echo("fail"))
    assert parts.text == "first\n[image image/png, 3 bytes]\n[resource file:///a.txt]\ninside"
    assert structured.text == '{"n": 1}'
    assert failed == ToolResult("no such product", error=True)


def test_own_folder_and_environment(odd: Odd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    folder, variables = played(odd(), echo("folder"), echo("environment"))
    seen = json.loads(variables.text)
    assert set(seen) <= {"PATH", "LANG", "LC_CTYPE", "HOME", "TMPDIR", "USER", "LOGNAME", "SHELL", "TERM", "PWD"}
    assert seen["HOME"] != os.environ["HOME"]
    assert not Path(folder.text).exists()  # it ended with the episode


def test_a_server_ends_with_all_that_it_started(odd: Odd) -> None:
    (pids,) = played(odd(), echo("orphan"))
    deadline = time.monotonic() + 5
    while any(Path(f"/proc/{pid}").exists() for pid in pids.text.split()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids.text.split())


def runs(pid: str) -> bool:
    """Does the process run? One that has ended and waits for its parent, which may be slow, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_server_ends_with_a_run_that_is_killed(tmp_path: Path) -> None:
    script = f"""
import asyncio, os, signal, sys
from atropos_mcp.config import McpConfig
from atropos_mcp.source import McpTools
async def main():
    source = McpTools({f"{sys.executable} {Path(__file__).with_name('odd_server.py')}"!r}, McpConfig())
    await source.open(workers=1)
    print((await source.session().call("echo", {{"text": "orphan"}})).text, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    pids = ended.stdout.split()
    assert len(pids) == 2, ended.stderr
    deadline = time.monotonic() + 20
    while any(map(runs, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(runs, pids))


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


@pytest.mark.parametrize("which", [(0,), (1,), (0, 1)])
def test_a_server_ends_with_its_guards(odd: Odd, which: tuple[int, ...]) -> None:
    """Each of the two alone takes with it all that the server started, both at once at least the server."""
    source = odd()

    async def play() -> list[str]:
        await source.open(workers=1)
        try:
            session = source.session()
            pids = (await session.call("echo", {"text": "orphan"})).text.split()
            inner = parent(int(pids[0]))
            guards = (inner, parent(inner))
            assert guards[1] != os.getpid() == parent(guards[1])
            for place in which:
                os.kill(guards[place], signal.SIGKILL)
            with contextlib.suppress(ServerError):  # it may answer before it hears of its end
                await session.call("echo", {"text": "hi"})
            return pids
        finally:
            await source.close()

    pids = asyncio.run(play())
    awaited = pids if len(which) == 1 else pids[:1]
    deadline = time.monotonic() + 20
    while any(map(runs, awaited)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(runs, awaited))
    if len(which) > 1 and runs(pids[1]):
        os.kill(int(pids[1]), signal.SIGKILL)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("die", "the disk is on fire"),
        ("wrong", "valid list"),
        ("endless", "a line of more than 8 MB"),
    ],
)
def test_what_fails_the_rollout(odd: Odd, text: str, said: str) -> None:
    with pytest.raises(ServerError, match=said):
        played(odd(), echo(text))


def test_a_call_that_hangs_is_a_time_out_and_the_next_episode_is_well(odd: Odd) -> None:
    source = odd(timeout=0.5)

    async def play() -> str:
        await source.open(workers=1)
        try:
            slow, well = source.session(), source.session()
            with pytest.raises(TimeoutError):
                await slow.call("echo", {"text": "hang"})
            return (await well.call("echo", {"text": "well"})).text
        finally:
            await source.close()

    assert asyncio.run(play()) == "echo: well (1)"


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("twice", "lists the tool 'echo' twice"),
        ("alike", "tools 'a.b' and 'a/b', both 'a_b'"),
        ("nameless", "without a name"),
        ("dead", "No module named 'shop'"),
        ("version", "protocol version"),
        ("pages", "more than 100 pages"),
    ],
)
def test_what_fails_the_run_before_it_begins(odd: Odd, mode: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        played(odd(mode))


def test_a_server_that_says_nothing_has_a_time_limit(odd: Odd) -> None:
    with pytest.raises(ConfigError, match="did not answer within 1 s"):
        played(odd("silent", start_timeout=1.0))


def test_a_command_that_does_not_exist() -> None:
    with pytest.raises(ConfigError, match="No such file"):
        played(McpTools("/no/such/server --port 1", McpConfig()))


@pytest.mark.parametrize("mode", ["noise", "loud"])
def test_other_output_does_no_harm(odd: Odd, mode: str) -> None:
    assert played(odd(mode), echo("hi")) == [ToolResult("echo: hi (1)")]


def test_a_text_with_half_a_character_is_an_answer(odd: Odd) -> None:
    assert played(odd(timeout=20.0), echo("half")) == [ToolResult("caf?.txt \U0001f600")]


def test_schemas_that_lie_are_replaced(odd: Odd) -> None:
    source = odd("schemas")
    assert names(source) == ["huge", "remote", "loop", "deep"]
    assert [one.text for one in played(source, ("huge", {"text": "a"}), ("loop", {"text": "b"}))] == [
        "huge: a (1)",
        "loop: b (2)",
    ]


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        {"type": "string"},
        {"type": "object", "properties": {"text": "string"}},
        {"type": "object", "required": "text"},
        {"type": "object", "description": "x" * 200_000},
    ],
)
def test_a_schema_that_is_none_allows_all_arguments(schema: Any) -> None:
    ((_, function),) = functions([{"name": "a", "inputSchema": schema}]).values()
    assert function["function"]["parameters"] == {"type": "object", "properties": {}}  # type: ignore[index,call-overload]


def test_a_result_that_contradicts_its_schema_fails_the_rollout(odd: Odd) -> None:
    with pytest.raises(ServerError, match="output schema"):
        played(odd("output"), echo("hi"))


def test_errors_of_the_protocol_are_for_the_model(odd: Odd) -> None:
    assert played(odd("refuses"), ("state", {})) == [ToolResult("unknown tool", error=True)]
    closed, alive = played(odd("database"), ("state", {}), echo("hi"))
    assert closed == ToolResult("connection closed by the database", error=True)
    assert alive == ToolResult("echo: hi (2)")  # the server's own words are no end of it


def test_shared_servers_have_one_memory_and_come_back(odd: Odd) -> None:
    source = odd(shared=True)

    async def play() -> list[str]:
        await source.open(workers=2)
        try:
            one, other = source.session(), source.session()
            texts = [(await one.call("echo", {"text": "a"})).text, (await other.call("echo", {"text": "b"})).text]
            with pytest.raises(ServerError):
                await one.call("echo", {"text": "die"})
            return [*texts, (await other.call("echo", {"text": "c"})).text]
        finally:
            await source.close()

    assert asyncio.run(play()) == ["echo: a (1)", "echo: b (2)", "echo: c (1)"]


def test_names_for_a_model(odd: Odd) -> None:
    assert names(odd()) == ["echo", "other_tool", "state"]
    assert played(odd(), ("other_tool", {"text": "x"})) == [ToolResult("other.tool: x (1)")]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("'python server.py", "cannot be split"),
        ("ws://127.0.0.1/mcp", "not a URL of http"),
        ("http://user:secret@127.0.0.1/mcp", "no place in a URL"),
        ("http:///mcp", "names no host"),
        ("''", "a command or a URL"),
    ],
)
def test_targets_that_are_none(target: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        McpTools(target, McpConfig())


def test_a_command_names_files_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("server.py").write_text((Path(__file__).with_name("odd_server.py")).read_text())
    assert played(McpTools(f"{sys.executable} server.py", McpConfig()), echo("hi")) == [ToolResult("echo: hi (1)")]


def test_a_missing_variable_is_named(odd: Odd) -> None:
    with pytest.raises(ConfigError, match="NO_SUCH_VARIABLE"):
        played(odd(env=("NO_SUCH_VARIABLE",)))
