"""The tools of one episode: made in its thread, called one after the other, every outcome a text for the model."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from atropos_cli.domain.base import JsonDict, clean_text
from atropos_cli.domain.messages import ToolCall
from atropos_cli.errors import PluginError
from atropos_cli.isolation.spec import WorkerError, WorkerSpec, WorkerTimeout
from atropos_cli.isolation.worker import IsolatedWorker, shared_worker
from atropos_cli.redaction import redacted
from atropos_cli.text.toolcalls import parse_tool_calls
from atropos_cli.tools.inside import text_of
from atropos_cli.tools.schema import Tool, tools_of
from atropos_cli.tools.threads import OutOfTime, ToolThread

OutcomeKind = Literal["ok", "refused", "error", "timeout"]
_INSIDE = str(Path(__file__).with_name("inside.py"))
_WHY = {
    "missing": "the argument {0!r} is missing",
    "unexpected": "there is no argument {0!r}",
    "wrong_type": "the argument {0!r} has the wrong type",
    "not_in_enum": "the argument {0!r} is none of the allowed values",
}


class ToolError(Exception):
    """Raised by a tool for a mistake of the model: the text is what the model reads, without the name of a class."""


class EndEpisode(Exception):
    """Raised by a tool to end the episode; the text becomes `info["ended_with"]`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call came to. kind refused: the call does not fit the schema, and nothing was executed."""

    text: str
    kind: OutcomeKind = "ok"
    over: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """seconds: of one call. characters: of one result. isolated: each call in a process of its own."""

    seconds: float = 30.0
    characters: int = 8000
    isolated: bool = False


class Toolbox:
    """Tools ready to be called. make: gives the functions, or an object whose methods they are (see `tools_of`)."""

    def __init__(self, make: Callable[[], Any], limits: Limits) -> None:
        self.limits = limits
        self.tools: dict[str, Tool] = {}
        self._make = make
        self._source: Any = None
        self._thread = ToolThread()

    @property
    def schemas(self) -> tuple[JsonDict, ...]:
        """OpenAI function schemas."""
        return tuple(tool.schema for tool in self.tools.values())

    async def open(self) -> None:
        """Make the tools. Raises what `make` raises, PluginError, and TimeoutError."""
        try:
            self._source = await self._thread.run(self._make, self.limits.seconds)
        except OutOfTime:
            raise OutOfTime(f"toolbox() took longer than {self.limits.seconds:g} s") from None
        self.tools = {tool.name: tool for tool in tools_of(self._source)}
        if self.limits.isolated:
            for file in {_file_of(tool) for tool in self.tools.values()}:
                await _start(self._worker(file))

    async def close(self) -> None:
        """Call close() of the object, in the thread that made it."""
        close = getattr(self._source, "close", None)
        try:
            if callable(close) and not isinstance(self._source, Sequence):
                if inspect.iscoroutinefunction(close):
                    await asyncio.wait_for(close(), self.limits.seconds)
                else:
                    await self._thread.run(close, self.limits.seconds)
        finally:
            self._thread.close()

    async def call(self, call: ToolCall) -> Outcome:
        """Execute one call. Nothing of a tool is raised: the model reads it."""
        outcome = await self._outcome(call)
        return replace(outcome, text=self._cut(outcome.text))

    async def _outcome(self, call: ToolCall) -> Outcome:
        name = call.function.name
        parse = parse_tool_calls({"tool_calls": [call.model_dump()]}, "openai", tools=self.schemas)
        tool = self.tools.get(name)
        if tool is None:
            return Outcome(f"error: there is no tool {name!r}; there are: {', '.join(self.tools)}", "refused")
        if parse.status != "ok":
            return Outcome(f"error: the arguments cannot be read ({parse.error})", "refused")
        if parse.validation_errors:
            return Outcome(f"error: {'; '.join(map(_problem, parse.validation_errors))}", "refused")
        try:
            arguments = tool.bind(parse.calls[0].arguments)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            return Outcome(f"error: {'.'.join(map(str, first['loc']))}: {first['msg']}", "refused")
        try:
            if self.limits.isolated:
                return await self._isolated(tool, parse.calls[0].arguments)
            return Outcome(await self._run(tool, arguments))
        except EndEpisode as end:
            return Outcome(str(end), over=True)
        except OutOfTime:
            return Outcome(f"error: {name} took longer than {self.limits.seconds:g} s", "timeout")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the model reads it
            return Outcome(f"error: {_said(error)}", "error")
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            return Outcome("error: it was cancelled", "error")

    async def _run(self, tool: Tool, arguments: dict[str, Any]) -> str:
        """The result as a text, which is made in the time of the call: it may be a generator."""
        seconds = self.limits.seconds

        def work() -> Any:
            value = tool.function(**arguments)
            return value if inspect.isawaitable(value) else text_of(value)

        result = work() if inspect.iscoroutinefunction(tool.function) else await self._thread.run(work, seconds)
        if not inspect.isawaitable(result):
            return str(result)
        try:
            async with asyncio.timeout(seconds) as scope:
                value = await result
        except TimeoutError as error:
            raise (OutOfTime() if scope.expired() else error) from None
        text = value if isinstance(value, str) else await self._thread.run(lambda: text_of(value), seconds)
        return str(text)

    def _worker(self, file: Path) -> IsolatedWorker:
        names = tuple(one.name for one in self.tools.values() if _file_of(one) == file)
        settings = json.dumps({"file": str(file), "names": names})
        return shared_worker(WorkerSpec(name="tools", module=_INSIDE, settings=settings, show=(str(file.parent),)))

    async def _isolated(self, tool: Tool, arguments: JsonDict) -> Outcome:
        request = {"tool": tool.name, "arguments": arguments}
        try:
            answer = await self._worker(_file_of(tool)).ask(request, seconds=self.limits.seconds)
        except WorkerTimeout:
            raise OutOfTime from None
        except WorkerError as error:
            return Outcome(f"error: {redacted(error.message)}", "error")
        if "error" in answer:
            return Outcome(f"error: {redacted(answer['error'])}", "error")
        return Outcome(answer["value"])

    def _cut(self, text: str) -> str:
        text, most = clean_text(text), self.limits.characters
        return text if len(text) <= most else f"{text[:most]}\n... ({len(text) - most} more characters)"


def _said(error: BaseException) -> str:
    """What the model reads of an exception."""
    try:
        text = redacted(str(error))
    except Exception:  # noqa: BLE001 - an exception that cannot even say what it is
        text = "it has no text"
    return text if isinstance(error, ToolError) else f"{type(error).__name__}: {text}"


def _problem(error: str) -> str:
    kind, _, name = error.partition(":")
    return _WHY.get(kind, "{0}").format(name)


async def _start(worker: IsolatedWorker) -> None:
    """A worker that cannot run is an error of the episode, not an answer for the model. Raises PluginError."""
    if worker.pid is not None:
        return
    try:
        await asyncio.to_thread(worker.start)
    except WorkerError as error:
        own = "leave out --isolate, or move the tools to a file that imports nothing of atropos"
        raise PluginError(error.message, hint=own if error.type else error.hint) from error


def _file_of(tool: Tool) -> Path:
    """The file of a function that can run alone. Raises PluginError for methods and inner functions."""
    function = tool.function
    file = inspect.getsourcefile(inspect.unwrap(function))
    if file is None or getattr(function, "__self__", None) is not None or "." in function.__qualname__:
        raise PluginError(
            f"tool {tool.name!r} cannot be isolated: it is not a function at the top of a file",
            hint="leave out --isolate, or move it to the top of a file that imports nothing of atropos",
        )
    return Path(file).resolve()
