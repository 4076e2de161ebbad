"""In the tested program's process: run the program, then call what the tests ask for.

Nothing here is trusted: the program shares this process and may change all of it. It can only
send other data than it should, and that is what wrong answers are anyway.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable
from typing import Any, NoReturn

from atropos_code.inside.wire import Channel, WireError, decode, encode

_MUTABLE = (list, dict, set, bytearray)


class Candidate:
    """The objects of the program that the tests hold by number, and the calls made on them."""

    def __init__(self, namespace: dict[str, Any], channel: Channel) -> None:
        self._namespace = namespace
        self._channel = channel
        self._objects: list[Any] = []

    def answer_forever(self) -> NoReturn:
        """Until the tests are over. Their end of the channel closes then."""
        while True:
            self.answer(self._channel.receive())

    def answer(self, message: dict[str, Any]) -> None:
        """Do what one message asks and send the result, or the error."""
        try:
            operation: Callable[[dict[str, Any]], dict[str, Any]] = getattr(self, "_do_" + str(message["op"]))
            reply = operation(message)
        except WireError:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever the program raises is its answer
            reply = {"error": describe(error)}
        self._channel.send(reply)

    def _do_names(self, message: dict[str, Any]) -> dict[str, Any]:
        there = {name: self._namespace[name] for name in message["names"] if name in self._namespace}
        return {"names": {name: self._encode(value) for name, value in there.items()}}

    def _do_call(self, message: dict[str, Any]) -> dict[str, Any]:
        function = self._decode(message["on"])
        arguments = [self._decode(item) for item in message["args"]]
        keywords = {name: self._decode(item) for name, item in message["kwargs"].items()}
        result = self._encode(function(*arguments, **keywords))
        changed = []
        for index, value in enumerate(arguments):
            if isinstance(value, _MUTABLE):
                after = self._encode(value)
                if after != message["args"][index]:
                    changed.append([index, after])
        return {"ok": result, "changed": changed}

    def _do_get(self, message: dict[str, Any]) -> dict[str, Any]:
        return {"ok": self._encode(getattr(self._decode(message["on"]), message["name"]))}

    def _do_set(self, message: dict[str, Any]) -> dict[str, Any]:
        setattr(self._decode(message["on"]), message["name"], self._decode(message["value"]))
        return {"ok": None}

    def _do_item(self, message: dict[str, Any]) -> dict[str, Any]:
        return {"ok": self._encode(self._decode(message["on"])[self._decode(message["key"])])}

    def _do_put(self, message: dict[str, Any]) -> dict[str, Any]:
        self._decode(message["on"])[self._decode(message["key"])] = self._decode(message["value"])
        return {"ok": None}

    def _do_iter(self, message: dict[str, Any]) -> dict[str, Any]:
        return {"ok": self._refer(iter(self._decode(message["on"])))}

    def _do_next(self, message: dict[str, Any]) -> dict[str, Any]:
        return {"ok": self._encode(next(self._decode(message["on"])))}

    def _do_len(self, message: dict[str, Any]) -> dict[str, Any]:
        return {"ok": len(self._decode(message["on"]))}

    def _do_str(self, message: dict[str, Any]) -> dict[str, Any]:
        return {"ok": str.__str__(str(self._decode(message["on"])))}

    def _do_repr(self, message: dict[str, Any]) -> dict[str, Any]:
        return {"ok": str.__str__(repr(self._decode(message["on"])))}

    def _encode(self, value: Any) -> Any:
        return encode(value, self._refer)

    def _refer(self, value: Any) -> list[Any]:
        for number, known in enumerate(self._objects):
            if known is value:
                return ["H", number]
        self._objects.append(value)
        return ["H", len(self._objects) - 1]

    def _decode(self, data: Any) -> Any:
        return decode(data, lambda tag, number: self._objects[number] if tag == "H" else self._callback(number))

    def _callback(self, number: int) -> Callable[..., Any]:
        """A function of the tests, callable from the program."""

        def call(*arguments: Any, **keywords: Any) -> Any:
            self._channel.send(
                {
                    "op": "callback",
                    "on": number,
                    "args": [self._encode(item) for item in arguments],
                    "kwargs": {name: self._encode(item) for name, item in keywords.items()},
                }
            )
            while True:
                message = self._channel.receive()
                if "op" not in message:
                    break
                self.answer(message)
            if "error" in message:
                raise RuntimeError(str(message["error"]))
            return self._decode(message["ok"])

        return call


def describe(error: BaseException) -> list[str]:
    """[name, nearest built-in class, text] of an exception."""
    bases = [base.__name__ for base in type(error).__mro__ if base.__module__ == "builtins"]
    try:
        text = str(error)[:500]
    except BaseException:  # noqa: BLE001 - the program's own __str__
        text = ""
    return [type(error).__name__, bases[0] if bases else "Exception", text]


def serve(code: types.CodeType, namespace: dict[str, Any], channel: Channel) -> NoReturn:
    """Run the program's module, say how that went, and answer calls to the end of the process."""
    try:
        try:
            exec(code, namespace)  # noqa: S102 - this is what the sandbox is for
        except BaseException as error:  # noqa: BLE001 - SystemExit as well: the functions were not all defined
            channel.send({"loaded": False, "error": describe(error)})
            sys.excepthook(type(error), error, error.__traceback__)
            os._exit(1)
        channel.send({"loaded": True})
        Candidate(namespace, channel).answer_forever()
    except WireError:
        os._exit(0)
    finally:
        os._exit(1)
