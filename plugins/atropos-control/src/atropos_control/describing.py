"""Spaces, observations and actions of Gymnasium in words, and actions read from replies."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from atropos_cli.sdk import ConfigError, split_thinking

_MOST_NUMBERS = 64
_LABEL = re.compile(r"\baction\b[\W_]*?[:=]", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w])")
_COLOURS = ("red", "green", "yellow", "blue")


@cache
def known(name: str) -> dict[str, Any]:
    """What games.toml has of an environment; name: its id without namespace and version."""
    table = tomllib.loads(files(__package__).joinpath("games.toml").read_text("utf-8"))
    found: dict[str, Any] = table.get(name, {})
    return found


class Actions:
    """The actions of a space: described, and read from replies. Raises ConfigError for a space it has no words for."""

    def __init__(self, space: Any, names: Sequence[str] = ()) -> None:
        self.space = space
        self.kind = type(space).__name__
        self.names: Sequence[str] = ()
        if self.kind == "Discrete":
            self.names = tuple(names) if len(names) == space.n else ()
        elif self.kind != "Box" or len(space.shape) != 1 or space.shape[0] > _MOST_NUMBERS:
            raise ConfigError(
                f"an action of {space} cannot be written in a reply",
                hint="Discrete actions can, and Box actions of one dimension",
            )

    @property
    def words(self) -> str:
        """How an action is written, in a sentence."""
        if self.names:
            return f"An action is one of: {', '.join(self.names)}."
        if self.kind == "Discrete":
            first = int(self.space.start)
            return f"An action is a number from {first} to {first + int(self.space.n) - 1}."
        count = self.space.shape[0]
        ranges = ", ".join(f"{_short(low)} to {_short(high)}" for low, high in zip(*self._bounds(), strict=True))
        if count == 1:
            return f"An action is a number from {ranges}."
        return f"An action is {count} numbers separated by commas, in the ranges {ranges}."

    @property
    def example(self) -> str:
        """One action, as written in a reply."""
        if self.names:
            return self.names[0]
        return str(int(self.space.start)) if self.kind == "Discrete" else ", ".join(["0.0"] * self.space.shape[0])

    def _bounds(self) -> tuple[list[float], list[float]]:
        return self.space.low.tolist(), self.space.high.tolist()

    def read(self, text: str) -> Any:
        """The action of a reply; None when it has none. Thoughts do not count.

        It is looked for in the line of the last "Action:", else in the last line that is not empty. Exactly one action
        must be there, so that a list of all actions is none.
        """
        _, answer = split_thinking(text)
        lines = [line for line in (answer or "").splitlines() if line.strip(" \t*`_$.")]
        labelled = [line for line in lines if _LABEL.search(line)]
        if not lines:
            return None
        line = _LABEL.split(labelled[-1])[-1] if labelled else lines[-1]
        return self._discrete(line) if self.kind == "Discrete" else self._numbers(line)

    def _discrete(self, line: str) -> int | None:
        first = int(self.space.start)
        for number, name in enumerate(self.names):
            if line.strip(" \t*`_\"'.[](){}<>!").casefold() == name.casefold():
                return first + number
        found = {
            first + number
            for number, name in enumerate(self.names)
            if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", line, re.IGNORECASE)
        }
        if not self.names:
            values = [float(text) for text in _NUMBER.findall(line)]
            found = {
                int(value) for value in values if value.is_integer() and first <= value < first + int(self.space.n)
            }
            if len(set(values)) != 1:
                return None
        return found.pop() if len(found) == 1 else None

    def _numbers(self, line: str) -> Any:
        import numpy as np

        values = [float(text) for text in _NUMBER.findall(line)]
        if len(values) != self.space.shape[0] or not all(map(math.isfinite, values)):
            return None
        return np.clip(np.asarray(values), self.space.low, self.space.high).astype(self.space.dtype)


def check_observations(space: Any) -> None:
    """Raises ConfigError for observations that are too large for words, such as pictures."""
    kind = type(space).__name__
    if kind in ("Tuple", "Dict"):
        for part in space.spaces.values() if kind == "Dict" else space.spaces:
            check_observations(part)
    elif kind not in ("Discrete", "Box", "MultiBinary", "MultiDiscrete", "Text") or (
        kind in ("Box", "MultiBinary", "MultiDiscrete") and math.prod(space.shape) > _MOST_NUMBERS
    ):
        raise ConfigError(
            f"an observation of {space} is too large for words",
            hint=f"environments whose observations have up to {_MOST_NUMBERS} numbers can be described",
        )


def observed(env: Any, name: str, value: Any, labels: Sequence[str]) -> str:
    """An observation in words."""
    plain = env.unwrapped
    if name.startswith("FrozenLake"):
        rows = [bytes(row).decode("ascii") for row in plain.desc]
        at = divmod(int(value), len(rows[0]))
        return "\n".join(rows) + f"\nYou are at row {at[0]}, column {at[1]}, both counted from 0."
    if name == "CliffWalking":
        row, column = divmod(int(value), 12)
        return f"You are at row {row}, column {column}, both counted from 0."
    if name == "Taxi":
        row, column, passenger, destination = plain.decode(int(value))
        where = "in the taxi" if passenger == len(_COLOURS) else f"at {_COLOURS[passenger]}"
        return (
            f"The taxi is at row {row}, column {column}, both counted from 0. "
            f"The passenger is {where} and wants to go to {_COLOURS[destination]}."
        )
    if name == "Blackjack":
        total, dealer, ace = (int(part) for part in value)
        return f"Your sum is {total}, {'with' if ace else 'without'} an ace that counts 11. The dealer shows {dealer}."
    return numbers(value, labels)


def numbers(value: Any, labels: Sequence[str] = ()) -> str:
    """An observation of any kind as names and numbers."""
    if isinstance(value, dict):
        return "\n".join(f"{key}: {numbers(part)}" for key, part in value.items())
    if isinstance(value, tuple):
        return "\n".join(numbers(part) for part in value)
    if isinstance(value, str):
        return value
    flat = value.ravel().tolist() if hasattr(value, "ravel") else [value]
    if len(labels) == len(flat):
        return "\n".join(f"{label}: {_short(part)}" for label, part in zip(labels, flat, strict=True))
    return ", ".join(_short(part) for part in flat)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
