"""Stored rows with a prompt of a suite: recognised by the words of the prompt alone, in any shape of row.

HeldOut(digests).asks_the_same(row)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from atropos_cli.sdk import DataError, JsonDict, ScoredGroup
from atropos_cli.sdk.records import ROLES
from atropos_training.order import Turn, digests_of, task_digests

T = TypeVar("T")

_QUESTIONS = ("prompt", "question", "problem", "query", "instruction")
"""Fields that hold a prompt as text; `input` belongs to any of them."""


class HeldOut:
    """The tasks that a run is evaluated on, as digests of their prompts; skips rows that ask the same."""

    def __init__(self, digests: frozenset[bytes], warn: Callable[[str], None]) -> None:
        self.digests = digests
        self._warn = warn
        self._told = False

    def rows(self, rows: Iterable[JsonDict]) -> Iterator[JsonDict]:
        """The rows that no suite asks for. Raises DataError when none is left."""
        return self._without(rows, lambda row: not self.digests.isdisjoint(prompt_digests(row)), "rows")

    def groups(self, groups: Iterable[ScoredGroup]) -> Iterator[ScoredGroup]:
        """The groups of tasks that no suite asks for. Raises DataError when none is left."""
        return self._without(groups, lambda group: not self.digests.isdisjoint(task_digests(group.task)), "groups")

    def _without(self, items: Iterable[T], asked: Callable[[T], bool], noun: str) -> Iterator[T]:
        if not self.digests:
            yield from items
            return
        kept = skipped = 0
        for item in items:
            if asked(item):
                skipped += 1
            else:
                kept += 1
                yield item
        if skipped and not kept:
            raise DataError(
                f"all {skipped} {noun} of the data ask what tasks of an evaluation ask: none is left to train on",
                hint="give other data, or evaluate on other tasks: --eval ENV:split=test, or seed=N",
            )
        if skipped and not self._told:
            self._told = True
            self._warn(f"{skipped} {noun} of the data ask what tasks of an evaluation ask: they are left out")


def prompt_digests(row: JsonDict) -> set[bytes]:
    """Digests of what a row may mean as its prompt: up to the first answer and up to the last, with and without system.

    Empty for rows without one (token ids, plain text).
    """
    prompts: list[list[Turn]] = []
    given = next((turns for key in _QUESTIONS if (turns := _turns(row.get(key)))), [])
    if given:
        prompts.append(given)
        more = row.get("input")
        if isinstance(more, str) and more.strip():
            role, text = given[-1]
            prompts.append([*given[:-1], (role, f"{text}\n{more}")])
    else:
        dialogue = next(
            (turns for key in ("messages", "conversations", "chosen") if (turns := _turns(row.get(key)))), []
        )
        answers = [place for place, (role, _) in enumerate(dialogue) if role == "assistant"]
        if answers:
            prompts += [dialogue[: answers[0]], dialogue[: answers[-1]]]
        elif "chosen" in row:  # ShareGPT pairs: the dialogue is the prompt
            prompts.append(dialogue)
    return set().union(*map(digests_of, prompts))


def _turns(value: Any) -> list[Turn]:
    """(role, text) of a text or a list of messages; [] for anything else."""
    if isinstance(value, str):
        return [("user", value)]
    if not isinstance(value, list) or not all(isinstance(turn, dict) for turn in value):
        return []
    turns = []
    for turn in value:
        role = str(turn.get("role", turn.get("from", "")))
        turns.append((ROLES.get(role, role), _text(turn.get("content", turn.get("value")))))
    return turns


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
