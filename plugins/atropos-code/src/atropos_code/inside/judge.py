"""In the judge's process: run the tests against a program that lives in another sandbox.

The names that the tests check stand for functions over there. Their arguments are sent as data and
their results come back as data, so every comparison happens here, with this process's own built-ins
and with expected values that the program never sees. Ending its process, patching, printing or
raising does nothing for the program but fail the test.
"""

from __future__ import annotations

import builtins
import itertools
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from atropos_code.inside.wire import Channel, WireError, decode, encode

MOST_ITEMS = 10_000


class CandidateError(Exception):
    """The program raised an exception of its own, or one that ends processes."""


class Missing(NameError):
    """The program does not define a name that the tests need."""


class Link:
    """The program as the tests see it."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self._callbacks: list[Callable[..., Any]] = []

    def request(self, message: dict[str, Any]) -> dict[str, Any]:
        """Ask, serve callbacks in between, and return the answer or raise the program's exception."""
        self.channel.send(message)
        while True:
            reply = self.channel.receive()
            if reply.get("op") == "callback":
                self.channel.send(self._call_back(reply))
                continue
            if "error" in reply:
                error = _exception(reply["error"])
                if isinstance(error, StopIteration) and message["op"] != "next":
                    # It would end a map() or a loop of the tests early, as if all were well.
                    raise CandidateError("StopIteration")
                raise error
            return reply

    def ask(self, op: str, on: int, **fields: Any) -> Any:
        """One operation on an object of the program."""
        return self.decode(self.request({"op": op, "on": ["H", on], **fields}).get("ok"))

    def call(self, on: int, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Call a function of the program; arguments that it changed in place change here too."""
        reply = self.request(
            {
                "op": "call",
                "on": ["H", on],
                "args": [self.encode(item) for item in arguments],
                "kwargs": {name: self.encode(item) for name, item in keywords.items()},
            }
        )
        for index, after in reply.get("changed", ()):
            _replace(arguments[index], self.decode(after))
        return self.decode(reply.get("ok"))

    def encode(self, value: Any) -> Any:
        """A value of the tests for the program. Iterators are sent as lists are, functions as callbacks."""
        return encode(value, self._refer)

    def decode(self, data: Any) -> Any:
        """A value of the program."""
        return decode(data, self._resolve)

    def _refer(self, value: Any) -> list[Any]:
        if isinstance(value, Remote):
            return ["H", object.__getattribute__(value, "_number")]
        if hasattr(type(value), "__next__"):
            return ["L", [self.encode(item) for item in value]]
        if callable(value):
            self._callbacks.append(value)
            return ["K", len(self._callbacks) - 1]
        raise TypeError(f"a {type(value).__name__} cannot be passed to the program")

    def _resolve(self, tag: str, number: Any) -> Any:
        if tag != "H" or type(number) is not int:
            raise WireError("the answer refers to what is not there")
        return Remote(self, number)

    def _call_back(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            function = self._callbacks[message["on"]]
            arguments = [self.decode(item) for item in message["args"]]
            keywords = {name: self.decode(item) for name, item in message["kwargs"].items()}
            return {"ok": self.encode(function(*arguments, **keywords))}
        except WireError:
            raise
        except Exception as error:  # noqa: BLE001 - belongs to the program's call
            return {"error": f"{type(error).__name__}: {error}"}


class Remote:
    """An object of the program. It equals nothing but itself: its own idea of equality does not count."""

    __slots__ = ("_link", "_number")

    def __init__(self, link: Link, number: int) -> None:
        object.__setattr__(self, "_link", link)
        object.__setattr__(self, "_number", number)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._link.call(self._number, arguments, keywords)

    def __getattr__(self, name: str) -> Any:
        return self._link.ask("get", self._number, name=name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._link.ask("set", self._number, name=name, value=self._link.encode(value))

    def __getitem__(self, key: Any) -> Any:
        return self._link.ask("item", self._number, key=self._link.encode(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        self._link.ask("put", self._number, key=self._link.encode(key), value=self._link.encode(value))

    def __iter__(self) -> Iterator[Any]:
        return iter_remote(self._link.ask("iter", self._number))

    def __contains__(self, item: Any) -> bool:
        # All of it is read before anything is compared: an object that goes on guessing until it is right fails.
        there = list(itertools.islice(iter(self), MOST_ITEMS + 1))
        if len(there) > MOST_ITEMS:
            raise TypeError(f"an object with more than {MOST_ITEMS} items is not searched")
        return item in there

    def __next__(self) -> Any:
        return self._link.ask("next", self._number)

    def __len__(self) -> int:
        size = self._link.ask("len", self._number)
        if type(size) is not int:
            raise TypeError("the length is not an integer")
        return size

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        return str(self._link.ask("str", self._number))

    def __repr__(self) -> str:
        return str(self._link.ask("repr", self._number))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Remote) and other._number == self._number

    def __hash__(self) -> int:
        return hash(self._number)


def iter_remote(iterator: Any) -> Iterator[Any]:
    """The items of an iterator of the program."""
    while True:
        try:
            item = next(iterator)
        except StopIteration:
            return
        yield item


def _replace(argument: Any, after: Any) -> None:
    if type(argument) is not type(after):
        return
    if isinstance(argument, (list, bytearray)):
        argument[:] = after
    elif isinstance(argument, (dict, set)):
        argument.clear()
        argument.update(after)


def _exception(described: Any) -> BaseException:
    name, base, text = (str(part) for part in described)
    kind = getattr(builtins, base, None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        return CandidateError(f"{name}: {text}")
    try:
        return kind(text)
    except TypeError:
        return CandidateError(f"{name}: {text}")


def _stub(name: str) -> Callable[..., Any]:
    def missing(*_: Any, **__: Any) -> Any:
        raise Missing(f"name {name!r} is not defined")

    return missing


def run(suite: dict[str, Any], channel: Channel, verdict: int) -> None:
    """Run a suite and write one line of JSON a test: {"nonce", "stage", "passed", "error": [type, text] | null}.

    stage: "load" when the program did not get as far as its functions, "prepare" when what the task
    itself brings failed, else "test".
    """
    stage = "load"

    def say(passed: bool, error: BaseException | None = None) -> None:
        described = [type(error).__name__, str(error)[:500]] if error is not None else None
        line = {"nonce": suite["nonce"], "stage": stage, "passed": passed, "error": described}
        os.write(verdict, json.dumps(line).encode() + b"\n")

    try:
        loaded = channel.receive()
        if loaded.get("loaded") is not True:
            raise _exception(loaded["error"])
        stage = "prepare"
        there = Link(channel)
        namespace: dict[str, Any] = {"__name__": "tests"}
        exec(compile("\n".join(suite["imports"]), "imports", "exec"), namespace)  # noqa: S102 - part of the task
        exec(compile(suite["support"], "support", "exec"), namespace)  # noqa: S102 - part of the task
        names = there.request({"op": "names", "names": suite["names"]}).get("names", {})
        for name in suite["names"]:
            namespace[name] = there.decode(names[name]) if name in names else _stub(name)
        exec(compile(suite["setup"], "setup", "exec"), namespace)  # noqa: S102 - part of the task
    except BaseException as error:  # noqa: BLE001 - every test fails for this reason
        for _ in suite["tests"]:
            say(False, error)
        return
    stage = "test"
    tests = iter(suite["tests"])
    for number, test in enumerate(tests):
        try:
            exec(compile(test, f"test {number + 1}", "exec"), namespace)  # noqa: S102 - part of the task
        except WireError as error:
            for _ in itertools.chain([test], tests):
                say(False, error)
            return
        except BaseException as error:  # noqa: BLE001 - a failed test
            say(False, error)
        else:
            say(True)
