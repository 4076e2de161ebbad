"""Python data between the two processes of a test run, as JSON: only data crosses, never code.

What arrives is built from plain types, so an object of the tested program cannot bring its own
`__eq__`. Other objects stay where they are and are referred to by number.
"""

from __future__ import annotations

import base64
import builtins
import collections
import datetime
import decimal
import fractions
from collections.abc import Callable
from typing import Any

Refer = Callable[[Any], list[Any]]
Resolve = Callable[[str, Any], Any]

_EMPTY: dict[Any, Any] = {}
_KEYS, _VALUES, _ITEMS = type(_EMPTY.keys()), type(_EMPTY.values()), type(_EMPTY.items())
_SEQUENCES: dict[type, str] = {list: "L", tuple: "T", set: "S", frozenset: "F"}
_TIMES: dict[type, str] = {datetime.datetime: "datetime", datetime.date: "date", datetime.time: "time"}
_BUILTIN_TYPES = {value: name for name, value in vars(builtins).items() if isinstance(value, type)}


class WireError(Exception):
    """Not a message, a message that is too large, or the other side has ended."""


def encode(value: Any, refer: Refer) -> Any:
    """JSON for a value. `refer(object)` gives the JSON for other objects."""
    kind = type(value)
    if value is None or kind is bool or kind is float or kind is str:
        return value
    if kind is int:
        return value if -(1 << 63) < value < 1 << 63 else ["I", hex(value)]
    if kind in _SEQUENCES:
        return [_SEQUENCES[kind], [encode(item, refer) for item in value]]
    if kind is dict:
        return ["D", _pairs(value, refer)]
    found = _encode_subclass(value, refer) or _encode_library(value, refer)
    return refer(value) if found is None else found[0]


def _pairs(value: dict[Any, Any], refer: Refer) -> list[Any]:
    return [[encode(key, refer), encode(item, refer)] for key, item in dict.items(value)]


def _encode_subclass(value: Any, refer: Refer) -> tuple[Any] | None:
    """Subclasses of plain data, named tuples and enumerations among them: sent as what they extend."""
    if isinstance(value, collections.Counter):
        return (["N", _pairs(value, refer)],)
    if isinstance(value, collections.OrderedDict):
        return (["O", _pairs(value, refer)],)
    if isinstance(value, dict):
        return (["D", _pairs(value, refer)],)
    if isinstance(value, int):
        return (encode(int.__int__(value), refer),)
    if isinstance(value, float):
        return (float.__float__(value),)
    if isinstance(value, str):
        return (str.__str__(value),)
    for base, tag in _SEQUENCES.items():
        if isinstance(value, base):
            return ([tag, [encode(item, refer) for item in base.__iter__(value)]],)  # type: ignore[attr-defined]
    return None


def _encode_library(value: Any, refer: Refer) -> tuple[Any] | None:
    kind = type(value)
    if kind is bytes or kind is bytearray:
        return (["B" if kind is bytes else "b", base64.b64encode(value).decode()],)
    if kind is complex:
        return (["C", value.real, value.imag],)
    if kind is range:
        return (["R", [encode(part, refer) for part in (value.start, value.stop, value.step)]],)
    if kind is collections.deque:
        return (["Q", [encode(item, refer) for item in value], value.maxlen],)
    if kind in (_KEYS, _VALUES, _ITEMS):
        return (["V", (_KEYS, _VALUES, _ITEMS).index(kind), [encode(item, refer) for item in value]],)
    if kind is decimal.Decimal:
        return (["E", str(value)],)
    if kind is fractions.Fraction:
        return (["f", encode(value.numerator, refer), encode(value.denominator, refer)],)
    if kind in _TIMES:
        return (["t", _TIMES[kind], value.isoformat()],)
    if kind is datetime.timedelta:
        return (["d", value.days, value.seconds, value.microseconds],)
    if value is Ellipsis:
        return (["."],)
    if kind is type and value in _BUILTIN_TYPES:
        return (["Y", _BUILTIN_TYPES[value]],)
    if kind.__module__ == "numpy" and getattr(value, "shape", None) == ():
        return (encode(value.item(), refer),)
    return None


def decode(data: Any, resolve: Resolve) -> Any:
    """The value of JSON that encode() made. `resolve(tag, number)` gives other objects. Raises WireError."""
    try:
        return _decode(data, resolve)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise WireError(f"the answer is malformed: {type(error).__name__}: {error}") from None


def _decode(data: Any, resolve: Resolve) -> Any:
    if not isinstance(data, list):
        if isinstance(data, dict):
            raise ValueError("a bare object")
        return data
    tag, *rest = data
    if tag in ("L", "T", "S", "F"):
        items = [_decode(item, resolve) for item in rest[0]]
        return {"L": list, "T": tuple, "S": set, "F": frozenset}[tag](items)
    if tag in ("D", "N", "O"):
        pairs = {_decode(key, resolve): _decode(item, resolve) for key, item in rest[0]}
        return {"D": dict, "N": collections.Counter, "O": collections.OrderedDict}[tag](pairs)
    if tag in ("H", "K"):
        return resolve(tag, rest[0])
    return _decode_library(tag, rest, resolve)


def _decode_library(tag: str, rest: list[Any], resolve: Resolve) -> Any:
    if tag == "I":
        return int(rest[0], 16)
    if tag in ("B", "b"):
        data = base64.b64decode(rest[0])
        return data if tag == "B" else bytearray(data)
    if tag == "C":
        return complex(float(rest[0]), float(rest[1]))
    if tag == "R":
        return range(*(int(_decode(part, resolve)) for part in rest[0]))
    if tag == "Q":
        return collections.deque([_decode(item, resolve) for item in rest[0]], rest[1])
    if tag == "V":
        items = [_decode(item, resolve) for item in rest[1]]
        if rest[0] == 1:
            return dict(enumerate(items)).values()
        return dict(items).items() if rest[0] == 2 else dict.fromkeys(items).keys()
    if tag == "E":
        return decimal.Decimal(rest[0])
    if tag == "f":
        return fractions.Fraction(_decode(rest[0], resolve), _decode(rest[1], resolve))
    if tag == "t":
        return {name: kind for kind, name in _TIMES.items()}[rest[0]].fromisoformat(rest[1])  # type: ignore[attr-defined]
    if tag == "d":
        return datetime.timedelta(*(int(part) for part in rest))
    if tag == ".":
        return Ellipsis
    if tag == "Y":
        return {name: kind for kind, name in _BUILTIN_TYPES.items()}[rest[0]]
    raise ValueError(f"unknown tag {tag!r}")


class Channel:
    """Messages to the other process, over a channel of the box (a `WorkerChannel`)."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    def send(self, message: dict[str, Any]) -> None:
        """Raises WireError when the other side is gone or the message is too large."""
        try:
            sent = self._channel.send(message)
        except (OSError, ValueError, RecursionError, MemoryError) as error:
            raise WireError(f"cannot send: {type(error).__name__}") from None
        if not sent:
            raise WireError("cannot send: the other process has ended")

    def receive(self) -> dict[str, Any]:
        """The next message. Raises WireError at the end and for anything that is not a message."""
        try:
            message: dict[str, Any] | None = self._channel.receive()
        except (OSError, ValueError, MemoryError) as error:
            raise WireError(f"cannot receive: {type(error).__name__}") from None
        if message is None:
            raise WireError("the program ended")
        return message
